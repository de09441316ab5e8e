//! Which pods to create or delete, and what the status says. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::replicated::Replicated;
use crate::meta;
use crate::owned_pods::{BURST, rank::rank};

/// What the controller sees of one set.
pub struct Observed {
    wanted: usize,
    min_ready_seconds: i32,
    active: Vec<Arc<Pod>>,
    terminating: usize,
    template_labels: BTreeMap<String, String>,
}

/// What to do about it.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    pub create: usize,
    /// The least valuable first.
    pub delete: Vec<Arc<Pod>>,
}

impl Observed {
    pub fn new<K: Replicated>(set: &K, owned: &[Arc<Pod>]) -> Observed {
        let active = owned.iter().filter(|pod| semantics::pod::is_active(pod));
        Observed {
            wanted: set.wanted() as usize,
            min_ready_seconds: set.min_ready_seconds(),
            active: active.cloned().collect(),
            terminating: owned.iter().filter(|pod| meta::is_terminating(pod)).count(),
            template_labels: set
                .template()
                .and_then(|template| template.metadata.as_ref()?.labels.clone())
                .unwrap_or_default(),
        }
    }

    /// When the next ready pod will have been ready long enough, if one is waiting for that.
    pub fn next_availability(&self, now: Timestamp) -> Option<Duration> {
        let pods = self.active.iter().map(|pod| &**pod);
        meta::next_availability(pods, self.min_ready_seconds, now)
    }
}

/// `siblings` counts related pods by node: of pods that share a node one is worth less. They are
/// counted only when a pod has to go.
pub fn plan(
    observed: &Observed,
    siblings: impl FnOnce() -> BTreeMap<String, usize>,
    now: Timestamp,
) -> Plan {
    let have = observed.active.len();
    if have < observed.wanted {
        return Plan {
            create: (observed.wanted - have).min(BURST),
            delete: Vec::new(),
        };
    }
    if have == observed.wanted {
        return Plan {
            create: 0,
            delete: Vec::new(),
        };
    }
    let siblings = siblings();
    let mut candidates = observed.active.clone();
    candidates.sort_by_cached_key(|pod| {
        let doubled_up = siblings.get(meta::node_name(pod)).copied().unwrap_or(0);
        rank(pod, doubled_up, now)
    });
    candidates.truncate((have - observed.wanted).min(BURST));
    Plan {
        create: 0,
        delete: candidates,
    }
}

/// `failure` is the reason and message of the condition ReplicaFailure, if anything failed.
pub fn status(
    old: &ReplicaSetStatus,
    generation: Option<i64>,
    observed: &Observed,
    failure: Option<(&str, String)>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let count = |test: &dyn Fn(&Pod) -> bool| {
        let number = observed.active.iter().filter(|pod| test(pod)).count();
        Some(number as i32).filter(|number| *number > 0)
    };
    let mut conditions = old.conditions.clone().unwrap_or_default();
    match failure {
        Some((reason, message)) => {
            if !conditions.iter().any(|c| c.type_ == "ReplicaFailure") {
                conditions.push(ReplicaSetCondition {
                    type_: "ReplicaFailure".to_string(),
                    status: "True".to_string(),
                    reason: Some(reason.to_string()),
                    message: Some(message),
                    last_transition_time: Some(Time(now)),
                });
            }
        }
        None => conditions.retain(|condition| condition.type_ != "ReplicaFailure"),
    }
    ReplicaSetStatus {
        replicas: observed.active.len() as i32,
        fully_labeled_replicas: count(&|pod| {
            let labels = pod.metadata.labels.as_ref();
            observed
                .template_labels
                .iter()
                .all(|(key, value)| labels.is_some_and(|labels| labels.get(key) == Some(value)))
        }),
        ready_replicas: count(&semantics::pod::is_ready),
        available_replicas: count(&|pod| meta::is_available(pod, observed.min_ready_seconds, now)),
        terminating_replicas: Some(observed.terminating as i32),
        observed_generation: generation,
        conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;

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

    fn planned(wanted: i32, pods: &[Arc<Pod>], siblings: &[(&str, usize)]) -> (usize, Vec<String>) {
        let now = Timestamp::from_second(1000).unwrap();
        let siblings = siblings
            .iter()
            .map(|(node, count)| (node.to_string(), *count));
        let siblings = || siblings.collect();
        let made = plan(&Observed::new(&set(wanted), pods), siblings, now);
        let names = made
            .delete
            .iter()
            .filter_map(|pod| pod.metadata.name.clone());
        (made.create, names.collect())
    }

    #[test]
    fn missing_pods_are_created_and_surplus_ones_deleted_least_valuable_first() {
        let pods = [
            pod("old-ready", "n", true, 100),
            pod("young-ready", "n", true, 900),
            pod("waiting", "n", false, 50),
            pod("unassigned", "", false, 10),
        ];
        let check = |wanted, create, delete: &[&str]| {
            let delete = delete.iter().map(|name| name.to_string()).collect();
            assert_eq!(planned(wanted, &pods, &[]), (create, delete), "{wanted}");
        };
        check(6, 2, &[]);
        check(4, 0, &[]);
        check(3, 0, &["unassigned"]);
        check(1, 0, &["unassigned", "waiting", "young-ready"]);
        check(0, 0, &["unassigned", "waiting", "young-ready", "old-ready"]);
    }

    #[test]
    fn of_pods_that_share_a_node_one_goes_before_those_that_are_alone() {
        let pods = [
            pod("alone", "a", true, 900),
            pod("together", "b", true, 100),
        ];
        let (_, delete) = planned(1, &pods, &[("a", 1), ("b", 2)]);
        assert_eq!(delete, ["together"]);
    }

    /// From every state, one reconciliation brings the number of active pods to the wanted
    /// one (or by a burst nearer to it), and never creates and deletes at once.
    #[test]
    fn one_round_reaches_the_wanted_number() {
        for have in 0..12 {
            let pods: Vec<Arc<Pod>> = (0..have)
                .map(|index| pod(&format!("p{index}"), "n", index % 2 == 0, i64::from(index)))
                .collect();
            for wanted in 0..12 {
                let (create, delete) = planned(wanted, &pods, &[]);
                assert!(create == 0 || delete.is_empty());
                assert_eq!(have as usize + create - delete.len(), wanted as usize);
            }
        }
        let (create, _) = planned(2000, &[], &[]);
        assert_eq!(create, BURST);
    }

    #[test]
    fn status_counts_ready_and_available_pods_and_keeps_a_failure_until_it_is_over() {
        let now = Timestamp::from_second(1000).unwrap();
        let pods = [pod("a", "n", true, 1), pod("b", "n", false, 1)];
        let observed = Observed::new(&set(2), &pods);
        let failure = Some(("FailedCreate", "no room".to_string()));
        let failed = status(
            &ReplicaSetStatus::default(),
            Some(3),
            &observed,
            failure,
            now,
        );
        assert_eq!(failed.replicas, 2);
        assert_eq!(failed.ready_replicas, Some(1));
        assert_eq!(failed.available_replicas, Some(1));
        assert_eq!(failed.observed_generation, Some(3));
        assert_eq!(
            failed.conditions.as_ref().unwrap()[0].type_,
            "ReplicaFailure"
        );
        let healed = status(&failed, Some(3), &observed, None, now);
        assert_eq!(healed.conditions, None);
    }
}
