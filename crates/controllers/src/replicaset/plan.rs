//! Which pods to create or delete, and what the status says. Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::meta;

/// At most this many pods are created or deleted in one round.
const BURST: usize = 500;

/// What the controller sees of one set.
pub struct Observed {
    wanted: usize,
    min_ready: i64,
    active: Vec<Arc<Pod>>,
    terminating: usize,
    template_labels: Vec<(String, String)>,
}

/// What to do about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub create: usize,
    /// Name and UID, the least valuable first.
    pub delete: Vec<(String, String)>,
}

impl Observed {
    pub fn new(set: &ReplicaSet, owned: &[Arc<Pod>]) -> Observed {
        let spec = set.spec.clone().unwrap_or_default();
        Observed {
            wanted: spec.replicas.unwrap_or(1).max(0) as usize,
            min_ready: spec.min_ready_seconds.unwrap_or(0).into(),
            active: owned
                .iter()
                .filter(|pod| meta::is_active(pod))
                .cloned()
                .collect(),
            terminating: owned
                .iter()
                .filter(|pod| {
                    pod.metadata.deletion_timestamp.is_some()
                        && !matches!(meta::phase(pod), "Succeeded" | "Failed")
                })
                .count(),
            template_labels: spec
                .template
                .and_then(|template| template.metadata?.labels)
                .unwrap_or_default()
                .into_iter()
                .collect(),
        }
    }

    /// When the next ready pod will have been ready long enough, if one is waiting for that.
    pub fn next_availability(&self, now: Timestamp) -> Option<Duration> {
        self.active
            .iter()
            .filter(|pod| meta::is_ready(pod))
            .filter_map(|pod| ready_since(pod))
            .map(|since| since.as_second() + self.min_ready - now.as_second())
            .filter(|seconds| *seconds > 0)
            .min()
            .map(|seconds| Duration::from_secs(seconds as u64))
    }

    fn is_available(&self, pod: &Pod, now: Timestamp) -> bool {
        meta::is_ready(pod)
            && (self.min_ready == 0
                || ready_since(pod)
                    .is_some_and(|since| since.as_second() + self.min_ready <= now.as_second()))
    }
}

pub fn plan(observed: &Observed) -> Plan {
    let have = observed.active.len();
    if have < observed.wanted {
        return Plan {
            create: (observed.wanted - have).min(BURST),
            delete: Vec::new(),
        };
    }
    let mut candidates: Vec<&Arc<Pod>> = observed.active.iter().collect();
    candidates.sort_by_key(|pod| deletion_rank(pod));
    Plan {
        create: 0,
        delete: candidates
            .into_iter()
            .take((have - observed.wanted).min(BURST))
            .map(|pod| {
                (
                    pod.metadata.name.clone().unwrap_or_default(),
                    pod.metadata.uid.clone().unwrap_or_default(),
                )
            })
            .collect(),
    }
}

/// Lower ranks go first: unassigned before assigned, Pending before Running, not ready before
/// ready, lower deletion cost before higher, younger before older.
fn deletion_rank(pod: &Pod) -> (bool, u8, bool, i64, std::cmp::Reverse<i64>, String) {
    let assigned = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .is_some_and(|name| !name.is_empty());
    let phase = match meta::phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let cost = pod
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("controller.kubernetes.io/pod-deletion-cost"))
        .and_then(|cost| cost.parse().ok())
        .unwrap_or(0);
    let age = pod
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(0, |time| time.0.as_second());
    (
        assigned,
        phase,
        meta::is_ready(pod),
        cost,
        std::cmp::Reverse(age),
        pod.metadata.name.clone().unwrap_or_default(),
    )
}

pub fn status(
    set: &ReplicaSet,
    observed: &Observed,
    failure: Option<String>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let count =
        |test: &dyn Fn(&Pod) -> bool| observed.active.iter().filter(|pod| test(pod)).count() as i32;
    let old = set.status.clone().unwrap_or_default();
    let mut conditions = old.conditions.unwrap_or_default();
    match failure {
        Some(message) => {
            if !conditions.iter().any(|c| c.type_ == "ReplicaFailure") {
                conditions.push(ReplicaSetCondition {
                    type_: "ReplicaFailure".to_string(),
                    status: "True".to_string(),
                    reason: Some("FailedCreate".to_string()),
                    message: Some(message),
                    last_transition_time: Some(Time(now)),
                });
            }
        }
        None => conditions.retain(|condition| condition.type_ != "ReplicaFailure"),
    }
    ReplicaSetStatus {
        replicas: observed.active.len() as i32,
        fully_labeled_replicas: Some(count(&|pod| {
            let labels = pod.metadata.labels.clone().unwrap_or_default();
            observed
                .template_labels
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value))
        }))
        .filter(|count| *count > 0),
        ready_replicas: Some(count(&|pod| meta::is_ready(pod))).filter(|count| *count > 0),
        available_replicas: Some(count(&|pod| observed.is_available(pod, now)))
            .filter(|count| *count > 0),
        terminating_replicas: Some(observed.terminating as i32).filter(|count| *count > 0),
        observed_generation: set.metadata.generation,
        conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
    }
}

fn ready_since(pod: &Pod) -> Option<Timestamp> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")?
        .last_transition_time
        .as_ref()
        .map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, ready: bool, created: i64) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {
                    "name": name, "uid": name,
                    "creationTimestamp": Timestamp::from_second(created).unwrap().to_string(),
                },
                "spec": {"containers": [], "nodeName": node},
                "status": {
                    "phase": if ready { "Running" } else { "Pending" },
                    "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
                },
            }))
            .unwrap(),
        )
    }

    fn set(replicas: i32) -> ReplicaSet {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "generation": 3},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}},
        }))
        .unwrap()
    }

    #[test]
    fn missing_pods_are_created_and_surplus_ones_deleted_least_valuable_first() {
        let pods = [
            pod("old-ready", "n", true, 100),
            pod("young-ready", "n", true, 200),
            pod("waiting", "n", false, 50),
            pod("unassigned", "", false, 10),
        ];
        let check = |wanted, create, delete: &[&str]| {
            let made = plan(&Observed::new(&set(wanted), &pods));
            let names: Vec<&str> = made.delete.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(
                (made.create, names.as_slice()),
                (create, delete),
                "{wanted}"
            );
        };
        check(6, 2, &[]);
        check(4, 0, &[]);
        check(3, 0, &["unassigned"]);
        check(1, 0, &["unassigned", "waiting", "young-ready"]);
        check(0, 0, &["unassigned", "waiting", "young-ready", "old-ready"]);
    }

    #[test]
    fn status_counts_ready_and_available_pods() {
        let now = Timestamp::from_second(1000).unwrap();
        let pods = [pod("a", "n", true, 1), pod("b", "n", false, 1)];
        let status = status(&set(2), &Observed::new(&set(2), &pods), None, now);
        assert_eq!(status.replicas, 2);
        assert_eq!(status.ready_replicas, Some(1));
        assert_eq!(status.available_replicas, Some(1));
        assert_eq!(status.observed_generation, Some(3));
    }
}
