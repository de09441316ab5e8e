//! The usage of pods from the resource metrics API (`metrics.k8s.io`).

use std::collections::BTreeMap;

use api::quantity::Quantity;
use environment::go_duration;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use thiserror::Error;

use super::plan::Measure;

#[derive(Deserialize)]
struct PodMetricsList {
    items: Vec<PodMetrics>,
}

#[derive(Deserialize)]
struct PodMetrics {
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    timestamp: Timestamp,
    /// In Go's notation, e.g. `30s`.
    window: String,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, String>,
}

/// Why there are no metrics of pods. The messages are parts of conditions and Events.
#[derive(Debug, Error)]
pub enum MetricsError {
    #[error("the request could not be built")]
    Request(#[from] http::Error),
    /// Its message is the server's own, because conditions repeat it.
    #[error("unable to fetch metrics from resource metrics API: {}", sentence(.0))]
    Api(kube::Error),
    #[error("no metrics returned from resource metrics API")]
    Empty,
}

fn sentence(error: &kube::Error) -> String {
    match client::retry::is_not_found(error) {
        true => "the server could not find the requested resource (get pods.metrics.k8s.io)".into(),
        false => client::retry::sentence(error),
    }
}

/// By pod name: of one container, or of all together.
pub async fn fetch(
    client: &kube::Client,
    namespace: &str,
    selector: &str,
    resource: &str,
    container: Option<&str>,
) -> Result<BTreeMap<String, Measure>, MetricsError> {
    let selector: String = selector
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect();
    let path = format!(
        "/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={selector}"
    );
    let request = http::Request::get(path).body(Vec::new())?;
    let list = client.request(request).await;
    let list: PodMetricsList = list.map_err(MetricsError::Api)?;
    if list.items.is_empty() {
        return Err(MetricsError::Empty);
    }
    let measures = list.items.into_iter().filter_map(|pod| {
        let counted = pod.containers.iter();
        let counted = counted.filter(|one| container.is_none_or(|wanted| one.name == wanted));
        // A pod without a measurement of every container is one without a measurement.
        let used: Option<Vec<i64>> = counted
            .map(|one| measured(one.usage.get(resource)?))
            .collect();
        let used = used.filter(|used| !used.is_empty())?;
        let measure = Measure {
            milli: used.into_iter().sum(),
            at: pod.timestamp,
            window: window(&pod.window),
        };
        Some((pod.metadata.name?, measure))
    });
    Ok(measures.collect())
}

/// In thousandths; `None` for what is no quantity: it says nothing about the use.
fn measured(usage: &str) -> Option<i64> {
    Quantity::parse(usage).ok().map(Quantity::milli)
}

fn window(text: &str) -> SignedDuration {
    go_duration::parse(text).map_or(SignedDuration::from_secs(30), SignedDuration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_that_cannot_be_read_is_unknown_and_not_zero() {
        assert_eq!(measured("250m"), Some(250));
        assert_eq!(measured("0"), Some(0));
        assert_eq!(measured("a lot"), None);
        assert_eq!(measured(""), None);
    }
}
