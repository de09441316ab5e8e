//! The column that says where an autoscaler's metrics are and where they should be.

use crate::document::Value;

const SHOWN: usize = 2;

/// `cpu: 12%/80%, 3/5`, with the number of metrics that are not shown.
pub fn targets(object: &Value) -> String {
    let metrics = object.list_at(&["spec", "metrics"]);
    if metrics.is_empty() {
        return "<none>".to_string();
    }
    let statuses = object.list_at(&["status", "currentMetrics"]);
    let all = metrics.iter().enumerate();
    let shown: Vec<String> = all
        .take(SHOWN)
        .map(|(index, metric)| one(metric, statuses.get(index)))
        .collect();
    let shown = shown.join(", ");
    match metrics.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{shown} + {more} more..."),
        _ => shown,
    }
}

fn one(metric: &Value, status: Option<&Value>) -> String {
    let source = match metric.str_at(&["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_string(),
    };
    let target = |name: &str| {
        metric
            .at(&[source, "target", name])
            .filter(|value| !value.is_null())
    };
    let current = |name: &str| {
        let status = status.filter(|status| status.has(&[source]))?;
        let value = status
            .at(&[source, "current", name])
            .filter(|value| !value.is_null());
        value.map(text)
    };
    let unknown = || "<unknown>".to_string();
    let average = target("averageValue");
    let amounts = match (source, average) {
        ("external" | "object", Some(average)) => {
            let current = current("averageValue").unwrap_or_else(unknown);
            format!("{current}/{} (avg)", text(average))
        }
        ("external" | "object", None) => {
            let current = current("value").unwrap_or_else(unknown);
            let target = target("value").map_or("<nil>".to_string(), text);
            format!("{current}/{target}")
        }
        ("pods", average) => {
            let current = current("averageValue").unwrap_or_else(unknown);
            format!("{current}/{}", average.map_or("<nil>".to_string(), text))
        }
        (_, Some(average)) => {
            let current = current("averageValue").unwrap_or_else(unknown);
            format!("{current}/{}", text(average))
        }
        (_, None) => {
            let percent = |value: String| format!("{value}%");
            let current = current("averageUtilization").map_or_else(unknown, percent);
            let target = target("averageUtilization").map(text).map(percent);
            format!(
                "{current}/{}",
                target.unwrap_or_else(|| "<auto>".to_string())
            )
        }
    };
    match source {
        "resource" | "containerResource" => {
            format!("{}: {amounts}", metric.str_at(&[source, "name"]))
        }
        _ => amounts,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
