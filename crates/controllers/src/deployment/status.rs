//! A Deployment's status: counts, and the conditions Available and Progressing. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::annotations::REVISION_HISTORY;
use super::observed::{Observed, available, replicas};
use super::rolling::Limits;
use crate::meta;

pub fn status(observed: &Observed<'_>, now: Timestamp) -> DeploymentStatus {
    let deployment = observed.deployment;
    let limits = Limits::of(deployment);
    let old = deployment.status.clone().unwrap_or_default();
    let actual = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
    let ready = |set: &ReplicaSet| {
        set.status
            .as_ref()
            .and_then(|status| status.ready_replicas)
            .unwrap_or(0)
    };
    let total: i32 = observed.sets.iter().map(|set| actual(set)).sum();
    let specified: i32 = observed.sets.iter().map(|set| replicas(set)).sum();
    let available_total: i32 = observed.sets.iter().map(|set| available(set)).sum();
    let updated = observed.new_set().map_or(0, |set| actual(set));
    let terminating: i32 = observed
        .sets
        .iter()
        .filter_map(|set| set.status.as_ref()?.terminating_replicas)
        .sum();
    let positive = |count: i32| Some(count).filter(|count| *count > 0);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: positive(total),
        updated_replicas: positive(updated),
        ready_replicas: positive(observed.sets.iter().map(|set| ready(set)).sum()),
        available_replicas: positive(available_total),
        unavailable_replicas: positive(specified - available_total),
        terminating_replicas: Some(terminating),
        collision_count: old.collision_count,
        conditions: old.conditions.clone(),
    };
    let (state, reason, message) = if available_total >= limits.minimum_available() {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    set_condition(&mut status, "Available", state, reason, message, false, now);
    set_progressing(&mut status, observed, &limits, &old, now);
    set_replica_failure(&mut status, observed, now);
    status
}

/// Whether the status as it is recorded says that the rollout is through.
pub fn is_complete(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    counts(&status).complete(Limits::of(deployment).wanted)
        && status.observed_generation >= deployment.metadata.generation
}

/// The status when the set of the current template could not be made.
pub fn of_failed_creation(
    deployment: &Deployment,
    message: &str,
    now: Timestamp,
) -> DeploymentStatus {
    let mut status = deployment.status.clone().unwrap_or_default();
    let deadline = deployment.spec.as_ref();
    let deadline = deadline.and_then(|spec| spec.progress_deadline_seconds);
    if deadline != Some(i32::MAX) {
        let reason = "ReplicaSetCreateError";
        set_condition(
            &mut status,
            "Progressing",
            "False",
            reason,
            message,
            false,
            now,
        );
    }
    status
}

/// When the progress deadline must be looked at again.
pub fn next_look(
    observed: &Observed<'_>,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let progressing = condition(status, "Progressing")?;
    let waiting = matches!(
        progressing.reason.as_deref(),
        Some("NewReplicaSetCreated" | "ReplicaSetUpdated" | "DeploymentResumed")
    );
    let deadline = deadline_seconds(observed);
    let since = progressing.last_update_time.as_ref()?.0;
    waiting.then(|| {
        let left = since.as_second() + deadline - now.as_second();
        Duration::from_secs(left.max(0) as u64 + 1)
    })
}

fn set_progressing(
    status: &mut DeploymentStatus,
    observed: &Observed<'_>,
    limits: &Limits,
    old: &DeploymentStatus,
    now: Timestamp,
) {
    let deployment = observed.deployment;
    if deadline_seconds(observed) == i64::from(i32::MAX) {
        remove_condition(status, "Progressing");
        return;
    }
    let paused = deployment
        .spec
        .as_ref()
        .is_some_and(|spec| spec.paused == Some(true));
    let before = condition(old, "Progressing").cloned();
    let reason = before
        .as_ref()
        .and_then(|condition| condition.reason.clone())
        .unwrap_or_default();
    let current = counts(status);
    let mut set = |state: &str, reason: &str, message: &str| {
        set_condition(status, "Progressing", state, reason, message, true, now);
    };
    if paused {
        if reason != "DeploymentPaused" && reason != "ProgressDeadlineExceeded" {
            set("Unknown", "DeploymentPaused", "Deployment is paused");
        }
        return;
    }
    if reason == "DeploymentPaused" {
        set("Unknown", "DeploymentResumed", "Deployment is resumed");
        return;
    }
    let Some(new) = observed.new_set() else {
        return;
    };
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let Some(before) = before else {
        let message = format!("Created new replica set \"{name}\"");
        set("True", "NewReplicaSetCreated", &message);
        return;
    };
    let about_this_set = before
        .message
        .as_ref()
        .is_some_and(|message| message.contains(&format!("\"{name}\"")));
    let had_finished = reason == "NewReplicaSetAvailable";
    if had_finished && about_this_set && current.all_updated() {
        return;
    }
    // Another rollout has its own clock. A set that was current before is not new.
    let about_another = !about_this_set && before.message.is_some_and(|text| text.contains('"'));
    let is_new = meta::annotation(&new.metadata, REVISION_HISTORY).is_none();
    if about_another && is_new && !current.complete(limits.wanted) {
        let message = format!("Created new replica set \"{name}\"");
        set("True", "NewReplicaSetCreated", &message);
    } else if current.complete(limits.wanted) {
        let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
        set("True", "NewReplicaSetAvailable", &message);
    } else if current.progressed(&counts(old)) || had_finished && !about_this_set {
        // A rollout that had finished starts its clock again with the next one.
        let message = format!("ReplicaSet \"{name}\" is progressing.");
        set("True", "ReplicaSetUpdated", &message);
    } else if let Some(since) = &before.last_update_time
        && since.0.as_second() + deadline_seconds(observed) < now.as_second()
        && !had_finished
        && reason != "ProgressDeadlineExceeded"
    {
        let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
        set("False", "ProgressDeadlineExceeded", &message);
    }
}

/// The failure of the newest set that reports one, e.g. a quota that its pods do not fit into.
fn set_replica_failure(status: &mut DeploymentStatus, observed: &Observed<'_>, now: Timestamp) {
    let failure = observed
        .new_set()
        .into_iter()
        .chain(observed.old_sets())
        .filter_map(|set| set.status.as_ref()?.conditions.as_ref())
        .flatten()
        .find(|condition| condition.type_ == "ReplicaFailure");
    match failure {
        Some(failure) => {
            let reason = failure.reason.as_deref().unwrap_or_default();
            let message = failure.message.as_deref().unwrap_or_default();
            set_condition(
                status,
                "ReplicaFailure",
                &failure.status,
                reason,
                message,
                false,
                now,
            );
        }
        None => remove_condition(status, "ReplicaFailure"),
    }
}

struct Counts {
    total: i32,
    updated: i32,
    ready: i32,
    available: i32,
}

fn counts(status: &DeploymentStatus) -> Counts {
    Counts {
        total: status.replicas.unwrap_or(0),
        updated: status.updated_replicas.unwrap_or(0),
        ready: status.ready_replicas.unwrap_or(0),
        available: status.available_replicas.unwrap_or(0),
    }
}

impl Counts {
    fn all_updated(&self) -> bool {
        self.total == self.updated
    }

    fn complete(&self, wanted: i32) -> bool {
        self.updated == wanted && self.total == wanted && self.available == wanted
    }

    fn progressed(&self, before: &Counts) -> bool {
        self.updated > before.updated
            || self.ready > before.ready
            || self.available > before.available
            || self.total - self.updated < before.total - before.updated
    }
}

fn remove_condition(status: &mut DeploymentStatus, name: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != name);
    }
}

fn deadline_seconds(observed: &Observed<'_>) -> i64 {
    observed
        .deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.progress_deadline_seconds)
        .unwrap_or(600)
        .into()
}

fn condition<'a>(status: &'a DeploymentStatus, name: &str) -> Option<&'a DeploymentCondition> {
    status
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == name)
}

/// Replaces a condition when it says something new; `touch` moves its update time regardless.
fn set_condition(
    status: &mut DeploymentStatus,
    name: &str,
    state: &str,
    reason: &str,
    message: &str,
    touch: bool,
    now: Timestamp,
) {
    let conditions = status.conditions.get_or_insert_default();
    let existing = conditions
        .iter()
        .position(|condition| condition.type_ == name);
    let before = existing.map(|index| conditions[index].clone());
    if let Some(before) = &before
        && !touch
        && before.status == state
        && before.reason.as_deref() == Some(reason)
    {
        return;
    }
    let changed_at = match &before {
        Some(before) if before.status == state => before.last_transition_time.clone(),
        _ => Some(Time(now)),
    };
    let made = DeploymentCondition {
        type_: name.to_string(),
        status: state.to_string(),
        reason: Some(reason.to_string()),
        message: Some(message.to_string()),
        last_transition_time: changed_at,
        last_update_time: Some(Time(now)),
    };
    match existing {
        Some(index) => conditions[index] = made,
        None => conditions.push(made),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn deployment(status: serde_json::Value) -> Deployment {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "generation": 2},
            "spec": {"replicas": 1, "progressDeadlineSeconds": 60, "selector": {},
                "template": {"spec": {"containers": [{"name": "c", "image": "v2"}]}}},
            "status": status,
        }))
        .unwrap()
    }

    fn set(annotations: serde_json::Value) -> Arc<ReplicaSet> {
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "new", "uid": "new", "annotations": annotations},
                "spec": {"replicas": 1, "selector": {},
                    "template": {"spec": {"containers": [{"name": "c", "image": "v2"}]}}},
                "status": {"replicas": 1},
            }))
            .unwrap(),
        )
    }

    fn progressing(reason: &str, message: &str) -> serde_json::Value {
        serde_json::json!({"replicas": 1, "updatedReplicas": 1, "conditions": [
            {"type": "Progressing", "status": "True", "reason": reason, "message": message,
                "lastUpdateTime": "2026-01-01T00:00:00Z"}]})
    }

    fn reason(status: serde_json::Value, set: Arc<ReplicaSet>, second: i64) -> String {
        let deployment = deployment(status);
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let now = start + jiff::SignedDuration::from_secs(second);
        let observed = Observed {
            deployment: &deployment,
            sets: &[set],
            old_pods_exist: false,
        };
        let status = super::status(&observed, now);
        let condition = condition(&status, "Progressing").unwrap();
        condition.reason.clone().unwrap()
    }

    #[test]
    fn another_rollout_has_its_own_deadline() {
        let other = progressing("ReplicaSetUpdated", "ReplicaSet \"old\" is progressing.");
        let own = progressing("ReplicaSetUpdated", "ReplicaSet \"new\" is progressing.");
        let fresh = || set(serde_json::json!({}));
        assert_eq!(reason(other.clone(), fresh(), 61), "NewReplicaSetCreated");
        assert_eq!(reason(own.clone(), fresh(), 59), "ReplicaSetUpdated");
        assert_eq!(reason(own, fresh(), 61), "ProgressDeadlineExceeded");
        // A set that was current before is not new: its rollout keeps its progress time.
        let former = set(serde_json::json!({REVISION_HISTORY: "1"}));
        assert_eq!(reason(other, former, 61), "ProgressDeadlineExceeded");
        let resumed = progressing("DeploymentResumed", "Deployment is resumed");
        assert_eq!(reason(resumed, fresh(), 30), "DeploymentResumed");
    }

    #[test]
    fn a_failed_creation_of_a_set_is_reported_in_the_status() {
        let deployment = deployment(progressing("ReplicaSetUpdated", ""));
        let status = of_failed_creation(&deployment, "no", Timestamp::UNIX_EPOCH);
        let condition = condition(&status, "Progressing").unwrap();
        assert_eq!(condition.status, "False");
        assert_eq!(condition.reason.as_deref(), Some("ReplicaSetCreateError"));
    }
}
