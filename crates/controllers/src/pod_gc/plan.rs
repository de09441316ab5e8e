//! Which pods to collect. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::meta;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Too many pods have ended.
    Ended,
    /// Its node is out of service and will not end it.
    OutOfService,
    /// Its node exists no more.
    Orphaned,
    /// It is leaving and never was on a node.
    Unscheduled,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Removal {
    pub pod: Arc<Pod>,
    pub reason: Reason,
}

/// `gone` are nodes that certainly exist no more.
pub fn plan(
    pods: &[Arc<Pod>],
    nodes: &[Arc<Node>],
    gone: &BTreeSet<String>,
    most_ended: usize,
) -> Vec<Removal> {
    let mut removals = surplus(pods, most_ended);
    let by_name: BTreeMap<&str, &Arc<Node>> = nodes
        .iter()
        .map(|node| (node.metadata.name.as_deref().unwrap_or_default(), node))
        .collect();
    for pod in pods {
        let node = meta::node_name(pod);
        let leaving = pod.metadata.deletion_timestamp.is_some();
        let reason = if leaving
            && by_name
                .get(node)
                .is_some_and(|node| is_out_of_service(node))
        {
            Reason::OutOfService
        } else if gone.contains(node) {
            Reason::Orphaned
        } else if is_unscheduled_and_leaving(pod) {
            Reason::Unscheduled
        } else {
            continue;
        };
        removals.push(Removal {
            pod: pod.clone(),
            reason,
        });
    }
    removals
}

pub fn is_unscheduled_and_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && meta::node_name(pod).is_empty()
}

/// Nodes that pods are bound to and that are not there.
pub fn nodes_away(pods: &[Arc<Pod>], nodes: &[Arc<Node>]) -> BTreeSet<String> {
    let present: BTreeSet<&str> = nodes
        .iter()
        .filter_map(|node| node.metadata.name.as_deref())
        .collect();
    pods.iter()
        .map(|pod| meta::node_name(pod))
        .filter(|node| !node.is_empty() && !present.contains(node))
        .map(str::to_owned)
        .collect()
}

/// The status of a collected pod.
pub fn failure_patch(removal: &Removal, now: Timestamp) -> serde_json::Value {
    let mut status = serde_json::json!({
        "phase": "Failed",
        "observedGeneration": removal.pod.metadata.generation,
    });
    if removal.reason == Reason::Orphaned {
        status["conditions"] = serde_json::json!([{
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
            "lastTransitionTime": now.to_string(),
            "observedGeneration": removal.pod.metadata.generation,
        }]);
    }
    serde_json::json!({"metadata": {"uid": removal.pod.metadata.uid}, "status": status})
}

/// Ended pods beyond the threshold: evicted ones first, then the oldest.
fn surplus(pods: &[Arc<Pod>], most: usize) -> Vec<Removal> {
    let mut ended: Vec<&Arc<Pod>> = pods
        .iter()
        .filter(|pod| semantics::pod::is_terminal(pod))
        .collect();
    if ended.len() <= most {
        return Vec::new();
    }
    ended.sort_by_key(|pod| {
        let status = pod.status.as_ref();
        let evicted = status.is_some_and(|status| status.reason.as_deref() == Some("Evicted"));
        (
            !evicted,
            meta::created(&pod.metadata),
            pod.metadata.name.clone(),
        )
    });
    let surplus = ended.len() - most;
    ended
        .into_iter()
        .take(surplus)
        .map(|pod| Removal {
            pod: pod.clone(),
            reason: Reason::Ended,
        })
        .collect()
}

fn is_out_of_service(node: &Node) -> bool {
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    let tainted = taints
        .into_iter()
        .any(|taint| taint.key == "node.kubernetes.io/out-of-service");
    tainted && !semantics::node::is_ready(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, phase: &str, leaving: bool, created: i64) -> Arc<Pod> {
        let deleted = leaving.then_some("2026-01-01T00:00:00Z");
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "uid": name, "deletionTimestamp": deleted,
                    "creationTimestamp": Timestamp::from_second(created).unwrap().to_string()},
                "spec": {"containers": [], "nodeName": node},
                "status": {"phase": phase, "reason": if name == "evicted" { "Evicted" } else { "" }},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn each_kind_of_leftover_is_found_and_nothing_else() {
        let nodes: Vec<Arc<Node>> = [("up", "True", false), ("down", "False", true)]
            .iter()
            .map(|(name, ready, tainted)| {
                let taints = tainted.then(|| {
                    serde_json::json!([{"key": "node.kubernetes.io/out-of-service",
                        "effect": "NoExecute"}])
                });
                Arc::new(
                    serde_json::from_value(serde_json::json!({
                        "metadata": {"name": name}, "spec": {"taints": taints},
                        "status": {"conditions": [{"type": "Ready", "status": ready}]},
                    }))
                    .unwrap(),
                )
            })
            .collect();
        let pods = [
            pod("fine", "up", "Running", false, 1),
            pod("leaving", "up", "Running", true, 1),
            pod("stuck", "down", "Running", true, 1),
            pod("lost", "gone", "Running", false, 1),
            pod("late", "away", "Running", false, 1),
            pod("waiting", "", "Pending", false, 1),
            pod("unscheduled", "", "Pending", true, 1),
        ];
        let away = nodes_away(&pods, &nodes);
        assert_eq!(away, ["away", "gone"].map(str::to_owned).into());
        let removals = plan(&pods, &nodes, &BTreeSet::from(["gone".to_owned()]), 10);
        let found: Vec<(&str, Reason)> = removals
            .iter()
            .map(|removal| {
                (
                    removal.pod.metadata.name.as_deref().unwrap(),
                    removal.reason,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("stuck", Reason::OutOfService),
                ("lost", Reason::Orphaned),
                ("unscheduled", Reason::Unscheduled),
            ]
        );
    }

    #[test]
    fn ended_pods_beyond_the_threshold_are_deleted_evicted_ones_first() {
        let pods = [
            pod("old", "n", "Succeeded", false, 1),
            pod("young", "n", "Failed", false, 3),
            pod("evicted", "n", "Failed", false, 9),
        ];
        let removals = surplus(&pods, 1);
        let names: Vec<_> = removals
            .iter()
            .filter_map(|r| r.pod.metadata.name.clone())
            .collect();
        assert_eq!(names, ["evicted", "old"]);
        assert!(surplus(&pods, 3).is_empty());
    }
}
