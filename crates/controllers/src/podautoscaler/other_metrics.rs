//! Metrics of pods, of other objects and from outside the cluster, from the custom and external
//! metrics APIs (`custom.metrics.k8s.io`, `external.metrics.k8s.io`), which extension API servers
//! serve.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, LabelSelector};
use kube::core::GroupVersionKind;
use kube::discovery::oneshot;
use serde::Deserialize;

use super::plan::Measure;

const CUSTOM: &str = "custom.metrics.k8s.io";
const EXTERNAL: &str = "external.metrics.k8s.io";
/// The versions of the custom metrics API that we can read.
const CUSTOM_VERSIONS: [&str; 2] = ["v1beta1", "v1beta2"];
/// A measurement that does not say over which time it was taken.
const DEFAULT_WINDOW: SignedDuration = SignedDuration::from_mins(1);

/// Why there is no metric, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum OtherMetricsError {
    #[error("unable to fetch metrics from {api} metrics API: {cause}")]
    Fetch { api: &'static str, cause: String },
    #[error("no metrics returned from {0} metrics API")]
    Nothing(&'static str),
}

fn failed(api: &'static str, cause: impl std::fmt::Display) -> OtherMetricsError {
    let cause = cause.to_string();
    OtherMetricsError::Fetch { api, cause }
}

#[derive(Deserialize)]
struct Values {
    #[serde(default)]
    items: Vec<MetricValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetricValue {
    #[serde(default)]
    described_object: Described,
    timestamp: Option<Timestamp>,
    /// In v1beta2 and, in v1beta1 and for external metrics, under the shorter name.
    #[serde(alias = "window")]
    window_seconds: Option<i64>,
    value: serde_json::Value,
}

#[derive(Default, Deserialize)]
struct Described {
    #[serde(default)]
    name: String,
}

impl MetricValue {
    /// In thousandths; `None` for what is no quantity.
    fn milli(&self) -> Option<i64> {
        let text = match &self.value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Quantity::parse(&text).ok().map(Quantity::milli)
    }
}

/// A metric of every pod that the selector finds, by name.
pub async fn of_pods(
    client: &kube::Client,
    namespace: &str,
    selector: &str,
    metric: &str,
    metric_selector: Option<&LabelSelector>,
) -> Result<BTreeMap<String, Measure>, OtherMetricsError> {
    let version = custom_version(client).await?;
    let query = query(&[
        ("labelSelector", selector),
        ("metricLabelSelector", &selector_text(metric_selector)),
    ]);
    let path = format!("/apis/{CUSTOM}/{version}/namespaces/{namespace}/pods/*/{metric}{query}");
    let values = fetch(client, "custom", &path, &format!("pods.{CUSTOM}")).await?;
    let measures = values.into_iter().filter_map(|value| {
        let window = value.window_seconds.map(SignedDuration::from_secs);
        let measure = Measure {
            milli: value.milli()?,
            at: value.timestamp.unwrap_or_default(),
            window: window.unwrap_or(DEFAULT_WINDOW),
        };
        Some((value.described_object.name, measure))
    });
    Ok(measures.collect())
}

/// A metric of one object, in thousandths.
pub async fn of_object(
    client: &kube::Client,
    namespace: &str,
    object: &CrossVersionObjectReference,
    metric: &str,
    metric_selector: Option<&LabelSelector>,
) -> Result<i64, OtherMetricsError> {
    let version = custom_version(client).await?;
    let api_version = object.api_version.as_deref().unwrap_or_default();
    let (group, short) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let below = if object.kind == "Namespace" && group.is_empty() {
        // The name does not matter: an autoscaler does not see beyond its namespace.
        format!("metrics/{metric}")
    } else {
        let kind = GroupVersionKind::gvk(group, short, &object.kind);
        let found = oneshot::pinned_kind(client, &kind).await;
        let (resource, _) = found.map_err(|error| {
            let kind = qualified(&object.kind, group);
            let cause = client::retry::sentence(&error);
            failed(
                "custom",
                format!("unable to map kind {kind} to resource: {cause}"),
            )
        })?;
        let resource = qualified(&resource.plural, group);
        format!("{resource}/{}/{metric}", object.name)
    };
    let query = query(&[("metricLabelSelector", &selector_text(metric_selector))]);
    let path = format!("/apis/{CUSTOM}/{version}/namespaces/{namespace}/{below}{query}");
    let values = fetch(client, "custom", &path, &format!("{metric}.{CUSTOM}")).await?;
    match values.as_slice() {
        [value] => value
            .milli()
            .ok_or_else(|| failed("custom", "the value is no quantity")),
        several => Err(failed(
            "custom",
            format!(
                "the custom metrics API server returned {} results when we asked for exactly one",
                several.len()
            ),
        )),
    }
}

/// All values of an external metric, in thousandths.
pub async fn external(
    client: &kube::Client,
    namespace: &str,
    metric: &str,
    metric_selector: Option<&LabelSelector>,
) -> Result<Vec<i64>, OtherMetricsError> {
    let query = query(&[("labelSelector", &selector_text(metric_selector))]);
    let path = format!("/apis/{EXTERNAL}/v1beta1/namespaces/{namespace}/{metric}{query}");
    let values = fetch(client, "external", &path, &format!("{metric}.{EXTERNAL}")).await?;
    values
        .iter()
        .map(|value| {
            value
                .milli()
                .ok_or_else(|| failed("external", "the value is no quantity"))
        })
        .collect()
}

async fn fetch(
    client: &kube::Client,
    api: &'static str,
    path: &str,
    resource: &str,
) -> Result<Vec<MetricValue>, OtherMetricsError> {
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|problem| failed(api, problem))?;
    let values: Values = client.request(request).await.map_err(|error| {
        let sentence = client::retry::sentence(&error);
        // The API is not served at all.
        match is_missing(&error) && sentence.starts_with("404 page not found") {
            true => failed(
                api,
                format!("the server could not find the requested resource (get {resource})"),
            ),
            false => failed(api, sentence),
        }
    })?;
    match values.items.is_empty() {
        true if !path.starts_with("/apis/custom") || path.contains("/pods/*/") => {
            Err(OtherMetricsError::Nothing(api))
        }
        _ => Ok(values.items),
    }
}

/// The version of the custom metrics API that the server prefers, if we can read it.
async fn custom_version(client: &kube::Client) -> Result<String, OtherMetricsError> {
    let request = http::Request::get(format!("/apis/{CUSTOM}")).body(Vec::new());
    let request = request.map_err(|problem| failed("custom", problem))?;
    let group: APIGroup =
        client
            .request(request)
            .await
            .map_err(|error| match is_missing(&error) {
                true => failed(
                    "custom",
                    format!("no custom metrics API ({CUSTOM}) registered"),
                ),
                false => failed("custom", client::retry::sentence(&error)),
            })?;
    let preferred = group.preferred_version.into_iter();
    let versions = preferred.chain(group.versions).map(|known| known.version);
    let mut readable = versions.filter(|version| CUSTOM_VERSIONS.contains(&version.as_str()));
    readable
        .next()
        .ok_or_else(|| failed("custom", "no known available metric versions found"))
}

/// Whether the answer was 404, with a `Status` or without.
fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// `pods` or `deployments.apps`.
fn qualified(name: &str, group: &str) -> String {
    match group {
        "" => name.to_owned(),
        group => format!("{name}.{group}"),
    }
}

/// A query of the parameters that have a value.
fn query(parameters: &[(&str, &str)]) -> String {
    let encoded = |text: &str| -> String {
        let bytes = text.bytes().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        });
        bytes.collect()
    };
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let given: Vec<String> = given
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    match given.is_empty() {
        true => String::new(),
        false => format!("?{}", given.join("&")),
    }
}

/// A selector as it is written in a query, its keys in order.
fn selector_text(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else {
        return String::new();
    };
    let labels = selector.match_labels.iter().flatten();
    let mut parts: Vec<(String, String)> = labels
        .map(|(key, value)| (key.clone(), format!("{key}={value}")))
        .collect();
    for requirement in selector.match_expressions.iter().flatten() {
        let key = &requirement.key;
        let mut values = requirement.values.clone().unwrap_or_default();
        values.sort();
        let values = values.join(",");
        let text = match requirement.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            _ => format!("!{key}"),
        };
        parts.push((key.clone(), text));
    }
    parts.sort();
    let parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_written_in_the_order_of_its_keys() {
        let selector: LabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"b": "1"},
            "matchExpressions": [
                {"key": "c", "operator": "NotIn", "values": ["y", "x"]},
                {"key": "a", "operator": "Exists"},
                {"key": "d", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        let text = selector_text(Some(&selector));
        assert_eq!(text, "a,b=1,c notin (x,y),!d");
        assert_eq!(
            query(&[("x", &text), ("y", "")]),
            "?x=a%2Cb%3D1%2Cc%20notin%20%28x%2Cy%29%2C%21d"
        );
        assert_eq!(query(&[("x", "")]), "");
    }

    #[test]
    fn values_of_both_versions_are_read() {
        let of =
            |value: serde_json::Value| -> MetricValue { serde_json::from_value(value).unwrap() };
        let old = of(serde_json::json!({"metricName": "m", "window": 30, "value": "1500m"}));
        assert_eq!((old.milli(), old.window_seconds), (Some(1500), Some(30)));
        let new = of(serde_json::json!({"windowSeconds": 60, "value": 2,
            "describedObject": {"name": "p"}, "timestamp": "2026-01-01T00:00:00Z"}));
        assert_eq!((new.milli(), new.window_seconds), (Some(2000), Some(60)));
        assert_eq!(new.described_object.name, "p");
        assert_eq!(of(serde_json::json!({"value": "much"})).milli(), None);
    }
}
