//! A Deployment's status: counts, and the conditions Available and Progressing. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::plan::{Observed, available, replicas};
use super::rolling::Limits;

pub fn status(observed: &Observed<'_>, now: Timestamp) -> DeploymentStatus {
    let deployment = observed.deployment;
    let limits = Limits::of(deployment);
    let old = deployment.status.clone().unwrap_or_default();
    let actual = |set: &k8s_openapi::api::apps::v1::ReplicaSet| {
        set.status.as_ref().map_or(0, |status| status.replicas)
    };
    let ready = |set: &k8s_openapi::api::apps::v1::ReplicaSet| {
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
        unavailable_replicas: positive((specified.max(total) - available_total).max(0)),
        terminating_replicas: positive(terminating),
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
        Some("NewReplicaSetCreated" | "ReplicaSetUpdated" | "FoundNewReplicaSet")
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
    let paused = deployment
        .spec
        .as_ref()
        .is_some_and(|spec| spec.paused == Some(true));
    let before = condition(old, "Progressing").cloned();
    let before_reason = before
        .as_ref()
        .and_then(|condition| condition.reason.clone());
    if paused {
        if before_reason.as_deref() != Some("DeploymentPaused") {
            let message = "Deployment is paused";
            set_condition(
                status,
                "Progressing",
                "Unknown",
                "DeploymentPaused",
                message,
                true,
                now,
            );
        }
        return;
    }
    let Some(set) = observed.new_set() else {
        return;
    };
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let complete = status.updated_replicas.unwrap_or(0) == limits.wanted
        && status.replicas.unwrap_or(0) == limits.wanted
        && status.available_replicas.unwrap_or(0) == limits.wanted
        && status.observed_generation >= deployment.metadata.generation;
    if complete {
        let message = format!("ReplicaSet \"{set_name}\" has successfully progressed.");
        let is_new = before_reason.as_deref() != Some("NewReplicaSetAvailable");
        set_condition(
            status,
            "Progressing",
            "True",
            "NewReplicaSetAvailable",
            &message,
            is_new,
            now,
        );
        return;
    }
    let progressed = status.updated_replicas > old.updated_replicas
        || status.ready_replicas > old.ready_replicas
        || status.available_replicas > old.available_replicas
        || old_count(status) < old_count(old);
    if before.is_none() {
        let message = format!("Created new replica set \"{set_name}\"");
        set_condition(
            status,
            "Progressing",
            "True",
            "NewReplicaSetCreated",
            &message,
            true,
            now,
        );
    } else if progressed || before_reason.as_deref() == Some("NewReplicaSetAvailable") {
        // A rollout that had finished starts its clock again.
        let message = format!("ReplicaSet \"{set_name}\" is progressing.");
        set_condition(
            status,
            "Progressing",
            "True",
            "ReplicaSetUpdated",
            &message,
            true,
            now,
        );
    } else if let Some(since) = before.and_then(|condition| condition.last_update_time)
        && since.0.as_second() + deadline_seconds(observed) < now.as_second()
        && before_reason.as_deref() != Some("ProgressDeadlineExceeded")
    {
        let message = format!("ReplicaSet \"{set_name}\" has timed out progressing.");
        set_condition(
            status,
            "Progressing",
            "False",
            "ProgressDeadlineExceeded",
            &message,
            true,
            now,
        );
    }
}

fn old_count(status: &DeploymentStatus) -> i32 {
    status.replicas.unwrap_or(0) - status.updated_replicas.unwrap_or(0)
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
