//! HorizontalPodAutoscalers of `autoscaling/v1`, which knows one metric, the use of CPU; what else
//! an object of `v2` says goes into annotations, as text.

use crate::conversion::ordered;
use crate::document;
use crate::document::Value;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const OURS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];
const DEFAULT_UTILIZATION: i64 = 80;

/// The sources of metrics, with the name of their field.
const SOURCES: [&str; 5] = [
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
];

pub fn to_v1(object: &mut Value) {
    drop_annotations(object);
    let mut annotate = Vec::new();
    let metrics = take_list(object, &["spec", "metrics"]);
    let cpu = metrics.iter().find(|metric| is_cpu_utilization(metric));
    if let Some(target) = cpu.and_then(|metric| metric.i64_at(&UTILIZATION)) {
        object.set(&["spec", "targetCPUUtilizationPercentage"], target);
    }
    let others: Vec<Value> = metrics
        .iter()
        .filter(|metric| !is_cpu_utilization(metric))
        .map(|metric| metric_to_v1(metric, "target"))
        .collect();
    if !others.is_empty() {
        annotate.push((METRICS, others.into()));
    }
    let current = take_list(object, &["status", "currentMetrics"]);
    let cpu = current.iter().rfind(|metric| {
        is_cpu(metric) && metric.has(&["resource", "current", "averageUtilization"])
    });
    if let Some(cpu) = cpu {
        let use_now = cpu.i64_at(&["resource", "current", "averageUtilization"]);
        object.set(
            &["status", "currentCPUUtilizationPercentage"],
            use_now.unwrap_or(0),
        );
    }
    if !current.is_empty() {
        let current: Vec<Value> = current
            .iter()
            .map(|metric| metric_to_v1(metric, "current"))
            .collect();
        annotate.push((CURRENT_METRICS, current.into()));
    }
    if let Some(behavior) = object
        .remove(&["spec", "behavior"])
        .filter(|value| !value.is_null())
    {
        annotate.push((BEHAVIOR, behavior_to_text(&behavior)));
    }
    let conditions = take_list(object, &["status", "conditions"]);
    if !conditions.is_empty() {
        annotate.push((CONDITIONS, conditions.into()));
    }
    for (name, value) in annotate {
        object.set(&["metadata", "annotations", name], ordered::text(&value));
    }
}

pub fn to_v2(object: &mut Value) {
    let annotation = |object: &Value, name: &str| {
        let text = object.at(&["metadata", "annotations", name])?.as_str()?;
        Value::from_json(text.as_bytes()).ok()
    };
    let target = object.remove(&["spec", "targetCPUUtilizationPercentage"]);
    let cpu = target.as_ref().and_then(Value::as_i64);
    let mut metrics: Vec<Value> = Vec::new();
    if let Some(Value::Array(others)) = annotation(object, METRICS) {
        metrics.extend(others.iter().map(|metric| metric_to_v2(metric, "target")));
    }
    match cpu {
        Some(target) => metrics.push(cpu_target(target)),
        None if metrics.is_empty() => metrics.push(cpu_target(DEFAULT_UTILIZATION)),
        None => {}
    }
    object.set(&["spec", "metrics"], metrics);
    if let Some(behavior) = annotation(object, BEHAVIOR)
        && let Some(behavior) = behavior_from_text(&behavior)
    {
        object.set(&["spec", "behavior"], behavior);
    }
    let current = object.remove(&["status", "currentCPUUtilizationPercentage"]);
    if let Some(current) = current.as_ref().and_then(Value::as_i64) {
        let metric = document!({
            "type": "Resource",
            "resource": {"name": "cpu", "current": {"averageUtilization": current}},
        });
        object.set(&["status", "currentMetrics"], vec![metric]);
    }
    if let Some(Value::Array(current)) = annotation(object, CURRENT_METRICS) {
        let current: Vec<Value> = current
            .iter()
            .map(|metric| metric_to_v2(metric, "current"))
            .collect();
        object.set(&["status", "currentMetrics"], current);
    }
    if let Some(Value::Array(conditions)) = annotation(object, CONDITIONS) {
        object.set(&["status", "conditions"], conditions);
    }
    drop_annotations(object);
}

const UTILIZATION: [&str; 3] = ["resource", "target", "averageUtilization"];

fn is_cpu(metric: &Value) -> bool {
    metric.str_at(&["type"]) == "Resource" && metric.str_at(&["resource", "name"]) == "cpu"
}

fn is_cpu_utilization(metric: &Value) -> bool {
    is_cpu(metric) && metric.has(&UTILIZATION)
}

fn cpu_target(utilization: i64) -> Value {
    document!({
        "type": "Resource",
        "resource": {
            "name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": utilization},
        },
    })
}

fn take_list(object: &mut Value, path: &[&str]) -> Vec<Value> {
    match object.remove(path) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn drop_annotations(object: &mut Value) {
    for name in OURS {
        object.remove(&["metadata", "annotations", name]);
    }
    if object.fields_at(&["metadata", "annotations"]).count() == 0 {
        object.remove(&["metadata", "annotations"]);
    }
}

/// `side` is `target` for what is wanted, `current` for what is.
fn metric_to_v1(metric: &Value, side: &str) -> Value {
    let mut made = document!({"type": metric.str_at(&["type"])});
    for source in SOURCES {
        let Some(old) = metric.get(source).filter(|value| !value.is_null()) else {
            continue;
        };
        let amount = |name: &str| {
            old.at(&[side, name])
                .filter(|value| !value.is_null())
                .cloned()
        };
        let zero = || Some(Value::from("0"));
        let mut new = Value::object();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                new.set(&[name], value);
            }
        };
        let metric_name = || Some(Value::from(old.str_at(&["metric", "name"])));
        let selector = || old.at(&["metric", "selector"]).cloned();
        let sided = |name: &str| format!("{side}{name}");
        match source {
            "object" => {
                let described = |name: &str| old.str_at(&["describedObject", name]);
                let mut target = document!({
                    "kind": described("kind"), "name": described("name"),
                });
                if !described("apiVersion").is_empty() {
                    target.set(&["apiVersion"], described("apiVersion"));
                }
                put("target", Some(target));
                put("metricName", metric_name());
                put(&sided("Value"), amount("value").or_else(zero));
                put("selector", selector());
                put("averageValue", amount("averageValue"));
            }
            "pods" => {
                put("metricName", metric_name());
                put(&sided("AverageValue"), amount("averageValue").or_else(zero));
                put("selector", selector());
            }
            "external" => {
                put("metricName", metric_name());
                put("metricSelector", selector());
                let value = match side {
                    "current" => amount("value").or_else(zero),
                    _ => amount("value"),
                };
                put(&sided("Value"), value);
                put(&sided("AverageValue"), amount("averageValue"));
            }
            _ => {
                put("name", old.get("name").cloned());
                put("container", old.get("container").cloned());
                put(&sided("AverageUtilization"), amount("averageUtilization"));
                let value = match side {
                    "current" => amount("averageValue").or_else(zero),
                    _ => amount("averageValue"),
                };
                put(&sided("AverageValue"), value);
            }
        }
        made.set(&[source], new);
    }
    made
}

fn metric_to_v2(metric: &Value, side: &str) -> Value {
    let mut made = document!({"type": metric.str_at(&["type"])});
    for source in SOURCES {
        let Some(old) = metric.get(source).filter(|value| !value.is_null()) else {
            continue;
        };
        let sided = |name: &str| {
            old.get(&format!("{side}{name}"))
                .filter(|value| !value.is_null())
        };
        let mut new = Value::object();
        let (mut value, mut utilization) = (None, None);
        let average;
        let mut kind = "AverageValue";
        let selector = match source {
            "object" => {
                let target = old.get("target").cloned().unwrap_or_else(Value::object);
                new.set(&["describedObject"], target);
                average = old.get("averageValue").filter(|value| !value.is_null());
                value = sided("Value");
                if average.is_none() {
                    kind = "Value";
                } else if side == "target" && value.and_then(Value::as_str) == Some("0") {
                    value = None;
                }
                "selector"
            }
            "pods" => {
                average = sided("AverageValue");
                "selector"
            }
            "external" => {
                value = sided("Value");
                average = sided("AverageValue");
                if value.is_some() {
                    kind = "Value";
                }
                "metricSelector"
            }
            _ => {
                utilization = sided("AverageUtilization");
                average = sided("AverageValue");
                if utilization.is_some() {
                    kind = "Utilization";
                }
                for name in ["name", "container"] {
                    if let Some(value) = old.get(name) {
                        new.set(&[name], value.clone());
                    }
                }
                ""
            }
        };
        if !selector.is_empty() {
            new.set(&["metric", "name"], old.str_at(&["metricName"]));
            if let Some(value) = old.get(selector).filter(|value| !value.is_null()) {
                new.set(&["metric", "selector"], value.clone());
            }
        }
        new.set(&[side], Value::object());
        if side == "target" {
            new.set(&[side, "type"], kind);
        }
        for (name, amount) in [
            ("value", value),
            ("averageValue", average),
            ("averageUtilization", utilization),
        ] {
            if let Some(amount) = amount {
                new.set(&[side, name], amount.clone());
            }
        }
        made.set(&[source], new);
    }
    made
}

/// Upstream writes its internal type there, with Go's names and a null for what is not set.
fn behavior_to_text(behavior: &Value) -> Value {
    let rules = |name: &str| {
        let Some(rules) = behavior.get(name).filter(|value| !value.is_null()) else {
            return Value::Null;
        };
        let field = |name: &str| rules.get(name).cloned().unwrap_or_default();
        let policies: Vec<Value> = rules
            .list_at(&["policies"])
            .iter()
            .map(|policy| {
                let mut made = Value::object();
                for (new, old) in [
                    ("Type", "type"),
                    ("Value", "value"),
                    ("PeriodSeconds", "periodSeconds"),
                ] {
                    made.set(&[new], policy.get(old).cloned().unwrap_or_default());
                }
                made
            })
            .collect();
        let mut made = Value::object();
        made.set(
            &["StabilizationWindowSeconds"],
            field("stabilizationWindowSeconds"),
        );
        made.set(&["SelectPolicy"], field("selectPolicy"));
        made.set(&["Policies"], policies);
        made.set(&["Tolerance"], field("tolerance"));
        made
    };
    let mut made = Value::object();
    made.set(&["ScaleUp"], rules("scaleUp"));
    made.set(&["ScaleDown"], rules("scaleDown"));
    made
}

/// Go reads field names regardless of their case.
fn behavior_from_text(text: &Value) -> Option<Value> {
    let mut made = Value::object();
    for (name, rules) in text.as_object()?.iter() {
        let name = match name.to_lowercase().as_str() {
            "scaleup" => "scaleUp",
            "scaledown" => "scaleDown",
            _ => continue,
        };
        for (field, value) in rules.as_object().into_iter().flat_map(|rules| rules.iter()) {
            if value.is_null() {
                continue;
            }
            let field = match field.to_lowercase().as_str() {
                "stabilizationwindowseconds" => "stabilizationWindowSeconds",
                "selectpolicy" => "selectPolicy",
                "tolerance" => "tolerance",
                "policies" => {
                    let policies: Vec<Value> = value
                        .as_array()?
                        .iter()
                        .map(|policy| {
                            let mut made = Value::object();
                            let fields = policy.as_object();
                            for (name, value) in fields.into_iter().flat_map(|fields| fields.iter())
                            {
                                let name = match name.to_lowercase().as_str() {
                                    "type" => "type",
                                    "value" => "value",
                                    "periodseconds" => "periodSeconds",
                                    _ => continue,
                                };
                                made.set(&[name], value.clone());
                            }
                            made
                        })
                        .collect();
                    made.set(&[name, "policies"], policies);
                    continue;
                }
                _ => continue,
            };
            made.set(&[name, field], value.clone());
        }
    }
    let empty = made.as_object().is_none_or(|fields| fields.is_empty());
    (!empty).then_some(made)
}
