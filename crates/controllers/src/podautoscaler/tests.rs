//! Custom and external metrics, from a metrics API that answers by path.

use std::convert::Infallible;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::MetricSpec;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use serde_json::{Value, json};

use super::other::{self, Failed, Proposed, Scaled};
use super::plan::Tolerance;

/// A client of a server that answers these paths, and no others.
fn client(answers: Vec<(&'static str, Value)>) -> kube::Client {
    let answers = Arc::new(answers);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path_and_query().map(ToString::to_string);
        let found = answers
            .iter()
            .find(|(known, _)| Some(*known) == path.as_deref());
        let (code, body) = match found {
            Some((_, answer)) => (200, answer.to_string().into_bytes()),
            None => (404, b"404 page not found\n".to_vec()),
        };
        let response = http::Response::builder()
            .status(code)
            .body(Body::from(body));
        async move { Ok::<_, Infallible>(response.unwrap()) }
    });
    client::connect::from_service(service)
}

fn group() -> (&'static str, Value) {
    let version = json!({"groupVersion": "custom.metrics.k8s.io/v1beta2", "version": "v1beta2"});
    let group = json!({
        "name": "custom.metrics.k8s.io", "versions": [version], "preferredVersion": version,
    });
    ("/apis/custom.metrics.k8s.io", group)
}

async fn propose(client: &kube::Client, metric: Value) -> Result<Proposed, Failed> {
    let metric: MetricSpec = serde_json::from_value(metric).unwrap();
    let pods: Vec<Arc<Pod>> = ["a", "b"]
        .into_iter()
        .map(|name| {
            let pod = json!({
                "metadata": {"name": name},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            });
            Arc::new(serde_json::from_value(pod).unwrap())
        })
        .collect();
    let scaled = Scaled {
        namespace: "n",
        selector: "app=web",
        pods: &pods,
        replicas: 2,
        running: 2,
        tolerance: Tolerance { down: 0.1, up: 0.1 },
        now: Timestamp::UNIX_EPOCH,
    };
    let proposed = other::propose(client, &metric, &scaled).await;
    proposed.expect("a metric of these APIs")
}

#[tokio::test]
async fn metrics_of_pods_are_averaged_over_the_pods() {
    let path =
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/pods/*/rate?labelSelector=app%3Dweb";
    let value = |name: &str, value: &str| {
        json!({"describedObject": {"name": name}, "timestamp": "2026-01-01T00:00:00Z",
            "value": value})
    };
    let values = json!({"items": [value("a", "1500m"), value("b", "2500m")]});
    let client = client(vec![group(), (path, values)]);
    let metric = json!({"type": "Pods", "pods": {"metric": {"name": "rate"},
        "target": {"type": "AverageValue", "averageValue": "1"}}});
    let (replicas, shown, name) = propose(&client, metric).await.ok().unwrap();
    assert_eq!((replicas, name.as_str()), (4, "pods metric rate"));
    let current = shown.pods.unwrap().current;
    assert_eq!(current.average_value.unwrap().0, "2");
}

#[tokio::test]
async fn a_metric_of_an_object_is_compared_with_its_target() {
    let resources = json!({"groupVersion": "networking.k8s.io/v1", "resources": [
        {"name": "ingresses", "singularName": "ingress", "namespaced": true, "kind": "Ingress",
            "verbs": ["get"]},
    ]});
    let path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/\
                ingresses.networking.k8s.io/main/rate?metricLabelSelector=a%3Db";
    let values = json!({"items": [{"value": "30"}]});
    let client = client(vec![
        group(),
        ("/apis/networking.k8s.io/v1", resources),
        (path, values),
    ]);
    let metric = |target: Value| {
        json!({"type": "Object", "object": {
            "describedObject": {"kind": "Ingress", "name": "main",
                "apiVersion": "networking.k8s.io/v1"},
            "metric": {"name": "rate", "selector": {"matchLabels": {"a": "b"}}},
            "target": target,
        }})
    };
    let whole = metric(json!({"type": "Value", "value": "10"}));
    let (replicas, shown, name) = propose(&client, whole).await.ok().unwrap();
    assert_eq!((replicas, name.as_str()), (6, "Ingress metric rate"));
    assert_eq!(shown.object.unwrap().current.value.unwrap().0, "30");
    let each = metric(json!({"type": "AverageValue", "averageValue": "10"}));
    let (replicas, shown, _) = propose(&client, each).await.ok().unwrap();
    assert_eq!(replicas, 3);
    assert_eq!(shown.object.unwrap().current.average_value.unwrap().0, "15");
}

#[tokio::test]
async fn external_metrics_are_added_up() {
    let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/queue";
    let values = json!({"items": [{"value": "30"}, {"value": "12"}]});
    let client = client(vec![(path, values)]);
    let metric = json!({"type": "External", "external": {"metric": {"name": "queue"},
        "target": {"type": "AverageValue", "averageValue": "10"}}});
    let (replicas, shown, name) = propose(&client, metric).await.ok().unwrap();
    assert_eq!((replicas, name.as_str()), (5, "external metric queue(nil)"));
    assert_eq!(
        shown.external.unwrap().current.average_value.unwrap().0,
        "21"
    );
}

#[tokio::test]
async fn apis_that_are_not_served_are_named_in_the_failure() {
    let client = client(Vec::new());
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "rate"},
        "target": {"type": "AverageValue", "averageValue": "1"}}});
    let failed = propose(&client, pods).await.err().unwrap();
    assert_eq!(failed.reason, "FailedGetPodsMetric");
    assert_eq!(
        failed.cause,
        "unable to get metric rate: unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
    );
    let external = json!({"type": "External", "external": {"metric": {"name": "queue"},
        "target": {"type": "Value", "value": "10"}}});
    let failed = propose(&client, external).await.err().unwrap();
    assert_eq!(failed.reason, "FailedGetExternalMetric");
    let cause = "unable to get external metric n/queue/nil: unable to fetch metrics from external metrics API: the server could not find the requested resource (get queue.external.metrics.k8s.io)";
    assert_eq!(failed.cause, cause);
    assert_eq!(
        failed.error,
        format!("failed to get external metric queue: {cause}")
    );
}
