//! Preemption: which pods of lower priority would have to be evicted from a node so that a pod
//! fits, and on which node that does the least harm. Pure; the scheduling loop carries it out.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};

use crate::{
    NodeFit, NodeInfo, NodeResult, PodInfo, Snapshot,
    decision::reasons_by_count,
    disruption_budget::split_by_budgets,
    framework::{NoPreemption, Preemption, UnschedulablePod},
};

/// Looks for the best preemption among the nodes that rejected the pod; otherwise says why there is
/// none.
pub(crate) fn preempt(
    unschedulable: &UnschedulablePod<'_>,
    enough: usize,
) -> Result<Preemption, NoPreemption> {
    let results = unschedulable.results;
    let (pod, snapshot) = (unschedulable.pod(), unschedulable.snapshot());
    let count = snapshot.node_count();
    if never_preempts(pod) {
        return Err(NoPreemption::NotEligible("preemptionPolicy=Never"));
    }
    if waits_for_victims(pod, snapshot, results) {
        let reason = "a terminating pod on the nominated node";
        return Err(NoPreemption::NotEligible(reason));
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut count_reason = |reason: String, by| *reasons.entry(reason).or_default() += by;
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut harmless = 0;
    // Every attempt begins at another node, so that all of them have their turn.
    let start = match results.len() {
        0 => 0,
        length => unschedulable.random as usize % length,
    };
    for result in results[start..].iter().chain(&results[..start]) {
        if !is_helpful(result) {
            count_reason(NOT_HELPFUL.to_owned(), 1);
            continue;
        }
        let Some(node) = snapshot.node(&result.node) else {
            continue;
        };
        match victims(unschedulable, node) {
            Ok(candidate) => {
                harmless += usize::from(candidate.violations == 0);
                candidates.push(candidate);
                if harmless > 0 && candidates.len() >= enough {
                    break;
                }
            }
            Err(given) => given.into_iter().for_each(|reason| count_reason(reason, 1)),
        }
    }
    // Preemption does not help on nodes that were never looked at.
    let unlisted = count.saturating_sub(results.len());
    if unlisted > 0 {
        count_reason(NOT_HELPFUL.to_owned(), unlisted);
    }
    let chosen = candidates.into_iter().min_by_key(Candidate::harm);
    chosen.map(Candidate::into_preemption).ok_or_else(|| {
        let reasons = reasons
            .iter()
            .map(|(reason, count)| (reason.as_str(), *count));
        NoPreemption::NoCandidate {
            nodes: count,
            reasons: reasons_by_count(&reasons.collect()),
        }
    })
}

/// Whether the node may pass after pods of it have been preempted.
fn is_helpful(result: &NodeResult) -> bool {
    matches!(
        result.fit,
        NodeFit::Rejected {
            resolvable: true,
            ..
        }
    )
}

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

struct Candidate {
    node: String,
    /// The most important first; never empty.
    victims: Vec<Arc<PodInfo>>,
    violations: usize,
}

impl Candidate {
    /// Least is best: broken budgets, the highest priority among the victims, the sum of their
    /// priorities, their number, and how long the most important of them have run.
    fn harm(&self) -> (usize, i32, i64, usize, Reverse<Timestamp>) {
        let highest = self.victims.first().map_or(i32::MIN, |pod| pod.priority);
        let sum = self
            .victims
            .iter()
            .map(|pod| i64::from(pod.priority) + (1 << 31))
            .sum();
        let started = self
            .victims
            .iter()
            .filter(|pod| pod.priority == highest)
            .map(|pod| start_time(&pod.pod))
            .min()
            .unwrap_or(Timestamp::MAX);
        (
            self.violations,
            highest,
            sum,
            self.victims.len(),
            Reverse(started),
        )
    }

    fn into_preemption(self) -> Preemption {
        Preemption {
            node: self.node,
            victims: self.victims,
        }
    }
}

/// The fewest, least important pods of lower priority without which the pod fits on the node; or
/// why it does not fit even without all of them.
fn victims(
    unschedulable: &UnschedulablePod<'_>,
    node: &NodeInfo,
) -> Result<Candidate, Vec<String>> {
    let mut potential: Vec<Arc<PodInfo>> = node
        .pods
        .values()
        .filter(|other| other.priority < unschedulable.pod().priority)
        .cloned()
        .collect();
    if potential.is_empty() {
        return Err(vec![NO_VICTIMS.to_owned()]);
    }
    let mut trial = unschedulable.try_out(node);
    for other in &potential {
        trial.remove_pod(other);
    }
    if let Some(rejection) = trial.reject() {
        return Err(rejection.reasons);
    }
    potential.sort_by_key(|other| (Reverse(other.priority), start_time(&other.pod)));
    let (violating, harmless) = split_by_budgets(potential, unschedulable.budgets);
    let mut victims = Vec::new();
    let mut violations = 0;
    for (other, violates) in violating
        .into_iter()
        .map(|other| (other, true))
        .chain(harmless.into_iter().map(|other| (other, false)))
    {
        trial.add_pod(other.clone());
        if trial.reject().is_some() {
            trial.remove_pod(&other);
            victims.push(other);
            violations += usize::from(violates);
        }
    }
    victims.sort_by_key(|other| (Reverse(other.priority), start_time(&other.pod)));
    if victims.is_empty() {
        return Err(vec![NO_VICTIMS.to_owned()]);
    }
    Ok(Candidate {
        node: node.name.clone(),
        victims,
        violations,
    })
}

fn never_preempts(pod: &PodInfo) -> bool {
    let policy = pod
        .spec()
        .and_then(|spec| spec.preemption_policy.as_deref());
    policy == Some("Never")
}

/// Whether a preemption is under way already: a pod of lower priority that was preempted is still
/// terminating on the node for which the pod is nominated. Pods that terminate for other reasons
/// may take their time.
fn waits_for_victims(pod: &PodInfo, snapshot: &Snapshot, results: &[NodeResult]) -> bool {
    let status = pod.pod.status.as_ref();
    let nominated = status.and_then(|status| status.nominated_node_name.as_deref());
    // A node on which the pod cannot run any more is not worth waiting for.
    let hopeless = results.iter().any(|result| {
        Some(result.node.as_str()) == nominated
            && matches!(result.fit, NodeFit::Rejected { resolvable, .. } if !resolvable)
    });
    if hopeless {
        return false;
    }
    let node = nominated.and_then(|name| snapshot.node(name));
    node.is_some_and(|node| {
        node.pods
            .values()
            .any(|other| other.priority < pod.priority && is_leaving_by_preemption(&other.pod))
    })
}

fn is_leaving_by_preemption(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let target = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "DisruptionTarget");
    pod.metadata.deletion_timestamp.is_some()
        && target.is_some_and(|target| {
            target.status == "True" && target.reason.as_deref() == Some("PreemptionByScheduler")
        })
}

/// Pods that have not started count as the youngest.
fn start_time(pod: &Pod) -> Timestamp {
    let started = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref());
    started.map_or(Timestamp::MAX, |time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Budget,
        cycle::Cycle,
        decide::decide_afresh,
        fixtures::{framework as default_framework, node_with, pod},
    };

    fn asking(name: &str, cpu: &str, priority: i32) -> Arc<PodInfo> {
        let spec = format!(
            r#"{{"priority":{priority},"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}"#
        );
        pod(name, &spec)
    }

    fn snapshot(placed: &[(&str, Arc<PodInfo>)]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.set_node(node_with("a", "2"));
        snapshot.set_node(node_with("b", "2"));
        for (node, pod) in placed {
            snapshot.confirm(pod.clone(), node);
        }
        snapshot
    }

    fn outcome(snapshot: &Snapshot, pod: &PodInfo, budgets: &[Budget]) -> Result<String, String> {
        let framework = default_framework(None);
        let decision = decide_afresh(&framework, pod, snapshot, || 0);
        let cycle = Cycle::begin(&framework, pod, snapshot).map_err(|(_, reason)| reason)?;
        let unschedulable = UnschedulablePod {
            trials: &cycle,
            budgets,
            results: &decision.nodes,
            random: 0,
        };
        let found = preempt(&unschedulable, usize::MAX).map_err(|reason| reason.to_string())?;
        let names: Vec<_> = found
            .victims
            .iter()
            .map(|pod| pod.key.name.as_str())
            .collect();
        Ok(format!("{}: {}", found.node, names.join(" ")))
    }

    #[test]
    fn the_fewest_and_least_important_pods_are_preempted() {
        let crowded = snapshot(&[
            ("a", asking("low", "1", 1)),
            ("a", asking("middle", "1", 5)),
            ("b", asking("high", "2", 9)),
        ]);
        assert_eq!(
            outcome(&crowded, &asking("web", "1", 10), &[]).unwrap(),
            "a: low"
        );
        assert_eq!(
            outcome(&crowded, &asking("web", "2", 10), &[]).unwrap(),
            "a: middle low"
        );
        // A pod that needs a whole node; on the other one runs a pod that cannot be preempted.
        let half = snapshot(&[
            ("a", asking("low", "1", 1)),
            ("a", asking("same", "1", 10)),
            ("b", asking("high", "2", 11)),
        ]);
        assert_eq!(
            outcome(&half, &asking("web", "2", 10), &[]).unwrap_err(),
            "preemption: 0/2 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod."
        );
        assert_eq!(
            outcome(&crowded, &asking("web", "1", 1), &[]).unwrap_err(),
            "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
        );
    }

    #[test]
    fn the_node_with_the_least_important_victim_is_chosen() {
        let crowded = snapshot(&[("a", asking("five", "2", 5)), ("b", asking("four", "2", 4))]);
        assert_eq!(
            outcome(&crowded, &asking("web", "1", 10), &[]).unwrap(),
            "b: four"
        );
        let budget = |pod: &Arc<PodInfo>| {
            let mut labelled = (*pod.pod).clone();
            labelled.metadata.labels = Some([("app".to_owned(), pod.key.name.clone())].into());
            Arc::new(PodInfo::new(Arc::new(labelled)))
        };
        let protected = budget(&asking("four", "2", 4));
        let crowded = snapshot(&[("a", asking("five", "2", 5)), ("b", protected)]);
        let text = r#"{"metadata":{"namespace":"default","name":"x"},"spec":{"selector":{"matchLabels":{"app":"four"}}},"status":{"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}}"#;
        let budget = Budget::of(&serde_json::from_str(text).expect("a budget")).expect("a budget");
        assert_eq!(
            outcome(&crowded, &asking("web", "1", 10), &[budget]).unwrap(),
            "a: five"
        );
    }

    #[test]
    fn preemption_that_cannot_help_is_explained() {
        let spec = r#"{"priority":10,"preemptionPolicy":"Never","containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}"#;
        let crowded = snapshot(&[("a", asking("x", "1", 0)), ("b", asking("y", "1", 0))]);
        assert_eq!(
            outcome(&crowded, &pod("web", spec), &[]).unwrap_err(),
            "preemption: not eligible due to preemptionPolicy=Never."
        );
        let spec = r#"{"priority":10,"nodeSelector":{"a":"b"},"containers":[]}"#;
        assert_eq!(
            outcome(&crowded, &pod("web", spec), &[]).unwrap_err(),
            "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        );
    }

    #[test]
    fn a_pod_waits_for_its_terminating_victims() {
        let mut leaving = (*asking("x", "2", 0).pod).clone();
        leaving.metadata.deletion_timestamp =
            Some(serde_json::from_str("\"2026-01-01T00:00:00Z\"").expect("a time"));
        let crowded = |leaving: &Pod| {
            snapshot(&[
                ("a", Arc::new(PodInfo::new(Arc::new(leaving.clone())))),
                ("b", asking("y", "2", 0)),
            ])
        };
        let mut nominated = (*asking("web", "2", 10).pod).clone();
        nominated.status =
            Some(serde_json::from_str(r#"{"nominatedNodeName":"a"}"#).expect("a status"));
        let nominated = PodInfo::new(Arc::new(nominated));
        // A pod that a user deletes may take an hour and was not preempted.
        assert!(outcome(&crowded(&leaving), &nominated, &[]).is_ok());
        let condition = r#"{"conditions":[{"type":"DisruptionTarget","status":"True",
            "reason":"PreemptionByScheduler"}]}"#;
        leaving.status = Some(serde_json::from_str(condition).expect("a status"));
        assert_eq!(
            outcome(&crowded(&leaving), &nominated, &[]).unwrap_err(),
            "preemption: not eligible due to a terminating pod on the nominated node."
        );
    }
}
