//! What is converted there and back again is what it was.

use super::*;
use crate::{catalogue, document};

fn resource(group: &str, version: &str, plural: &str) -> &'static Arc<Resource> {
    let found = catalogue::built_in().find(group, version, plural);
    found.unwrap_or_else(|| panic!("{plural} is served"))
}

#[test]
fn autoscalers_with_more_than_version_one_knows() {
    let v1 = resource("autoscaling", "v1", "horizontalpodautoscalers");
    let stored = document!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "annotations": {"mine": "1"}},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "minReplicas": 1, "maxReplicas": 3,
            "metrics": [
                {"type": "Pods", "pods": {
                    "metric": {"name": "m"},
                    "target": {"type": "AverageValue", "averageValue": "5"},
                }},
                {"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70},
                }},
            ],
            "behavior": {"scaleUp": {
                "stabilizationWindowSeconds": 3, "selectPolicy": "Max",
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
            }},
        },
        "status": {
            "currentMetrics": null,
            "desiredReplicas": 0,
            "conditions": [{
                "type": "AbleToScale", "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "r", "message": "m",
            }],
        },
    });
    let shown = from_storage(v1, stored.clone());
    assert_eq!(shown.str_at(&["apiVersion"]), "autoscaling/v1");
    assert_eq!(
        shown.i64_at(&["spec", "targetCPUUtilizationPercentage"]),
        Some(70)
    );
    let annotation = |name: &str| {
        let name = format!("autoscaling.alpha.kubernetes.io/{name}");
        shown
            .str_at(&["metadata", "annotations", &name])
            .to_string()
    };
    assert_eq!(
        annotation("metrics"),
        r#"[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"5"}}]"#
    );
    assert_eq!(
        annotation("behavior"),
        r#"{"ScaleUp":{"StabilizationWindowSeconds":3,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":null}"#
    );
    let back = to_storage(v1, shown);
    for path in [
        ["spec", "metrics"],
        ["spec", "behavior"],
        ["status", "conditions"],
        ["metadata", "annotations"],
    ] {
        assert_eq!(back.at(&path), stored.at(&path));
    }
}

#[test]
fn an_autoscaler_without_metrics_gets_the_default_one() {
    let v1 = resource("autoscaling", "v1", "horizontalpodautoscalers");
    let sent = document!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"}, "spec": {"maxReplicas": 3},
    });
    let stored = to_storage(v1, sent);
    let metric = &stored.list_at(&["spec", "metrics"])[0];
    let target = metric.i64_at(&["resource", "target", "averageUtilization"]);
    assert_eq!(target, Some(80));
    let shown = from_storage(v1, stored);
    assert_eq!(
        shown.i64_at(&["spec", "targetCPUUtilizationPercentage"]),
        Some(80)
    );
}

#[test]
fn events_have_two_names_for_everything() {
    let events = resource("events.k8s.io", "v1", "events");
    let sent = document!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p"}, "note": "n", "reason": "r",
        "reportingController": "c/d", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let stored = to_storage(events, sent);
    assert_eq!(stored.str_at(&["apiVersion"]), "v1");
    assert_eq!(stored.str_at(&["involvedObject", "name"]), "p");
    assert_eq!(stored.str_at(&["message"]), "n");
    let shown = from_storage(events, stored);
    assert_eq!(shown.str_at(&["regarding", "name"]), "p");
    assert_eq!(shown.str_at(&["reportingController"]), "c/d");
    assert_eq!(shown.get("involvedObject"), None);
    assert_eq!(
        selectable_field(events, "regarding.name"),
        Some("involvedObject.name")
    );
    assert_eq!(selectable_field(events, "involvedObject.name"), None);
}
