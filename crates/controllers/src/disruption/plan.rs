//! How many pods of a PodDisruptionBudget may be disrupted now. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::int_or_percent::{Rounding, resolve};

/// How long an evicted pod may take until its deletion is seen.
pub const DELETION_PATIENCE: SignedDuration = SignedDuration::from_mins(2);
const CONDITION: &str = "DisruptionAllowed";

/// A budget with the pods it selects.
pub struct Observed<'a> {
    pub budget: &'a PodDisruptionBudget,
    pub pods: &'a [Arc<Pod>],
    /// How many pods their controllers want together; asked for only when [`needs_scale`].
    pub scale: i32,
    pub now: Timestamp,
}

pub struct Plan {
    pub status: PodDisruptionBudgetStatus,
    /// Pods that an eviction announced and that did not go.
    pub not_deleted: Vec<Arc<Pod>>,
    pub retry: Option<Duration>,
}

/// Whether the budget is a share of what the pods' controllers want.
pub fn needs_scale(budget: &PodDisruptionBudget) -> bool {
    let spec = budget.spec.as_ref();
    spec.is_some_and(|spec| {
        spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
    })
}

pub fn plan(observed: &Observed<'_>) -> Plan {
    let (expected, desired) = expectation(observed);
    let mut disrupted = BTreeMap::new();
    let (mut not_deleted, mut retry) = (Vec::new(), None);
    let old = observed.budget.status.clone().unwrap_or_default();
    let announced = old.disrupted_pods.clone().unwrap_or_default();
    let staying = observed
        .pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut healthy = 0;
    for pod in staying {
        let name = pod.metadata.name.clone().unwrap_or_default();
        if let Some(since) = announced.get(&name) {
            let left = observed.now.duration_until(since.0) + DELETION_PATIENCE;
            match Duration::try_from(left) {
                Ok(left) if !left.is_zero() => {
                    retry = Some(retry.map_or(left, |earlier: Duration| earlier.min(left)));
                    disrupted.insert(name, since.clone());
                    continue;
                }
                _ => not_deleted.push(pod.clone()),
            }
        }
        healthy += i32::from(semantics::pod::is_ready(pod));
    }
    let allowed = if expected > 0 {
        (healthy - desired).max(0)
    } else {
        0
    };
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        expected_pods: Some(expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: Some(disrupted).filter(|pods| !pods.is_empty()),
        observed_generation: observed.budget.metadata.generation,
        conditions: old.conditions,
    };
    if allowed > 0 {
        set_condition(&mut status, "True", "SufficientPods", "", observed.now);
    } else {
        set_condition(&mut status, "False", "InsufficientPods", "", observed.now);
    }
    Plan {
        status,
        not_deleted,
        retry,
    }
}

/// No disruption is allowed while the number of pods is not known.
pub fn failure(
    budget: &PodDisruptionBudget,
    message: &str,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.clone().unwrap_or_default();
    status.disruptions_allowed = Some(0);
    set_condition(&mut status, "False", "SyncFailed", message, now);
    status
}

/// How many pods there should be, and how many of them healthy.
fn expectation(observed: &Observed<'_>) -> (i32, i32) {
    let spec = observed.budget.spec.clone().unwrap_or_default();
    let share = |value| resolve(value, observed.scale, Rounding::Up);
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            let desired = observed.scale.saturating_sub(share(most));
            (observed.scale, desired.max(0))
        }
        (None, Some(IntOrString::Int(least))) => (observed.pods.len() as i32, *least),
        (None, Some(least)) => (observed.scale, share(least)),
        (None, None) => (0, 0),
    }
}

fn set_condition(
    status: &mut PodDisruptionBudgetStatus,
    state: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let conditions = status.conditions.get_or_insert_default();
    let before = conditions.iter().find(|one| one.type_ == CONDITION);
    let since = match before {
        Some(before) if before.status == state => before.last_transition_time.clone(),
        _ => Time(now),
    };
    let made = Condition {
        type_: CONDITION.to_owned(),
        status: state.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since,
        observed_generation: status.observed_generation,
    };
    conditions.retain(|one| one.type_ != CONDITION);
    conditions.push(made);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(spec: serde_json::Value, disrupted: serde_json::Value) -> PodDisruptionBudget {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "b", "generation": 2},
            "spec": spec,
            "status": {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0,
                "expectedPods": 0, "disruptedPods": disrupted},
        }))
        .unwrap()
    }

    fn pods(ready: &[bool]) -> Vec<Arc<Pod>> {
        let pod = |(index, ready): (usize, &bool)| {
            Arc::new(
                serde_json::from_value(serde_json::json!({
                    "metadata": {"name": format!("p{index}")},
                    "status": {"conditions": [
                        {"type": "Ready", "status": if *ready { "True" } else { "False" }}]},
                }))
                .unwrap(),
            )
        };
        ready.iter().enumerate().map(pod).collect()
    }

    fn planned(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], scale: i32) -> Plan {
        plan(&Observed {
            budget,
            pods,
            scale,
            now: "2026-01-01T00:10:00Z".parse().unwrap(),
        })
    }

    #[test]
    fn numbers_and_shares_of_both_kinds() {
        let none = serde_json::json!({});
        for (spec, ready, scale, allowed, desired, expected) in [
            (
                serde_json::json!({"minAvailable": 2}),
                vec![true; 3],
                0,
                1,
                2,
                3,
            ),
            (
                serde_json::json!({"minAvailable": 3}),
                vec![true; 3],
                0,
                0,
                3,
                3,
            ),
            (serde_json::json!({"minAvailable": 1}), vec![], 0, 0, 1, 0),
            (
                serde_json::json!({"minAvailable": "50%"}),
                vec![true; 3],
                3,
                1,
                2,
                3,
            ),
            (
                serde_json::json!({"maxUnavailable": 1}),
                vec![true; 3],
                3,
                1,
                2,
                3,
            ),
            (
                serde_json::json!({"maxUnavailable": 1}),
                vec![true, true, false],
                3,
                0,
                2,
                3,
            ),
            (
                serde_json::json!({"maxUnavailable": "30%"}),
                vec![true; 10],
                10,
                3,
                7,
                10,
            ),
            (
                serde_json::json!({"maxUnavailable": 5}),
                vec![true; 3],
                3,
                3,
                0,
                3,
            ),
        ] {
            let status = planned(&budget(spec.clone(), none.clone()), &pods(&ready), scale).status;
            assert_eq!(
                (
                    status.disruptions_allowed,
                    status.desired_healthy,
                    status.expected_pods
                ),
                (Some(allowed), Some(desired), Some(expected)),
                "{spec}"
            );
            let condition = &status.conditions.unwrap()[0];
            assert_eq!(condition.status == "True", allowed > 0);
            assert_eq!(status.observed_generation, Some(2));
        }
    }

    #[test]
    fn an_announced_pod_counts_as_gone_until_patience_ends() {
        let spec = serde_json::json!({"minAvailable": 1});
        let fresh = budget(
            spec.clone(),
            serde_json::json!({"p0": "2026-01-01T00:09:00Z"}),
        );
        let plan = planned(&fresh, &pods(&[true, true]), 0);
        assert_eq!(plan.status.current_healthy, Some(1));
        assert_eq!(plan.retry, Some(Duration::from_secs(60)));
        let stale = budget(spec, serde_json::json!({"p0": "2026-01-01T00:07:00Z"}));
        let plan = planned(&stale, &pods(&[true, true]), 0);
        assert_eq!(plan.status.current_healthy, Some(2));
        assert_eq!(plan.status.disrupted_pods, None);
        assert_eq!(plan.not_deleted.len(), 1);
    }
}
