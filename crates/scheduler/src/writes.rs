//! The writes of the scheduler: bindings, and the condition of unschedulable pods. Each runs as
//! its own task, outside the decision loop.

use std::sync::Arc;

use client::retry::{is_conflict, is_not_found, sentence};
use environment::Environment;
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use trace::{Hop, Span};

use crate::{
    PodInfo,
    framework::{Bind, BindError, Preparation},
    pod_info::assigned_node,
    queue::Queued,
    waiting::Answer,
};

const CONDITION: &str = "PodScheduled";
const ATTEMPTS: usize = 5;

/// The end of a write, reported to the loop.
pub(crate) enum Written {
    Bound {
        queued: Queued,
        node: String,
        result: Result<(), BindError>,
    },
    Condition,
    Preempted,
}

/// The steps from a decision to the binding.
pub(crate) struct Steps {
    /// `None` if no plugin delays the binding.
    pub(crate) permission: Option<Answer>,
    pub(crate) preparations: Vec<Preparation>,
    pub(crate) binder: Arc<dyn Bind>,
}

/// Waits for permission, carries out the preparations, posts the binding and records hop 8.
pub(crate) async fn bind(
    steps: Steps,
    environment: Environment,
    recorder: trace::Recorder,
    queued: Queued,
    node: String,
    decided_micros: i64,
) -> Written {
    let Steps {
        permission,
        preparations,
        binder,
    } = steps;
    if let Some(permission) = permission
        && let Err(error) = permission.wait().await
    {
        let result = Err(error);
        return Written::Bound {
            queued,
            node,
            result,
        };
    }
    for preparation in preparations {
        if let Err(error) = preparation.await {
            let result = Err(BindError::Unprepared(error));
            return Written::Bound {
                queued,
                node,
                result,
            };
        }
    }
    let start = environment.now_micros();
    let result = binder.bind(&queued.pod, &node).await;
    let result = result.map(|bytes| {
        let span = Span {
            hop: Hop::Bind,
            name: "POST binding".to_owned(),
            component: "scheduler".to_owned(),
            start,
            queue_us: elapsed(decided_micros, start),
            work_us: elapsed(start, environment.now_micros()),
            bytes,
            failure: None,
        };
        recorder.record(&queued.pod.uid, span);
    });
    Written::Bound {
        queued,
        node,
        result,
    }
}

/// Says in the pod's status why it has no node. Written under the resourceVersion it was decided
/// on, so that it can never overwrite the condition of a pod bound meanwhile.
pub(crate) async fn explain(
    client: kube::Client,
    environment: Environment,
    pod: Arc<PodInfo>,
    reason: &'static str,
    message: String,
) -> Written {
    let api: Api<Pod> = Api::namespaced(client, &pod.key.namespace);
    let mut current = pod.pod.clone();
    for _ in 0..ATTEMPTS {
        if current.metadata.uid.as_deref() != Some(&pod.uid) || assigned_node(&current).is_some() {
            break;
        }
        let Some(condition) = condition(&current, reason, &message, environment.now()) else {
            break;
        };
        let patch = serde_json::json!({
            "metadata": {
                "uid": pod.uid,
                "resourceVersion": current.metadata.resource_version,
            },
            "status": { "conditions": [condition] },
        });
        let patch = Patch::Strategic(patch);
        let parameters = PatchParams::default();
        match api.patch_status(&pod.key.name, &parameters, &patch).await {
            Err(error) if is_conflict(&error) => match api.get(&pod.key.name).await {
                Ok(pod) => current = Arc::new(pod),
                Err(_) => break,
            },
            Err(error) if !is_not_found(&error) => {
                // The next attempt says it again.
                tracing::warn!(pod = %pod.key, error = sentence(&error), "the condition could not be written");
                break;
            }
            _ => break,
        }
    }
    Written::Condition
}

/// Nominates the pod for the node, and deletes the victims there, marking each as disrupted first.
pub(crate) async fn preempt(
    client: kube::Client,
    environment: Environment,
    pod: Arc<PodInfo>,
    node: String,
    victims: Vec<Arc<PodInfo>>,
) -> Written {
    nominate(&client, &pod, Some(&node)).await;
    for victim in victims {
        let api: Api<Pod> = Api::namespaced(client.clone(), &victim.key.namespace);
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some("PreemptionByScheduler".to_owned()),
            message: Some(format!(
                "{}: preempting to accommodate a higher priority pod",
                crate::SCHEDULER_NAME
            )),
            last_transition_time: Some(Time(environment.now())),
            observed_generation: victim.pod.metadata.generation,
            ..PodCondition::default()
        };
        let patch = Patch::Strategic(serde_json::json!({
            "metadata": { "uid": victim.uid },
            "status": { "conditions": [condition] },
        }));
        let marked = api
            .patch_status(&victim.key.name, &PatchParams::default(), &patch)
            .await;
        if let Err(error) = marked
            && !is_not_found(&error)
        {
            tracing::warn!(pod = %victim.key, error = sentence(&error), "the victim could not be marked");
        }
        let parameters = DeleteParams {
            preconditions: Some(kube::api::Preconditions {
                uid: Some(victim.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        if let Err(error) = api.delete(&victim.key.name, &parameters).await
            && !is_not_found(&error)
        {
            tracing::warn!(pod = %victim.key, error = sentence(&error), "the victim could not be deleted");
        }
    }
    Written::Preempted
}

/// Removes a pod's nomination.
pub(crate) async fn withdraw(client: kube::Client, pod: Arc<PodInfo>) -> Written {
    nominate(&client, &pod, None).await;
    Written::Condition
}

async fn nominate(client: &kube::Client, pod: &PodInfo, node: Option<&str>) {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.key.namespace);
    let patch = Patch::Strategic(serde_json::json!({
        "metadata": { "uid": pod.uid },
        "status": { "nominatedNodeName": node },
    }));
    let written = api
        .patch_status(&pod.key.name, &PatchParams::default(), &patch)
        .await;
    if let Err(error) = written
        && !is_not_found(&error)
    {
        tracing::warn!(pod = %pod.key, error = sentence(&error), "the nominated node could not be written");
    }
}

/// The condition to be set, or none if the pod has it already.
fn condition(
    pod: &Pod,
    reason: &str,
    message: &str,
    now: k8s_openapi::jiff::Timestamp,
) -> Option<PodCondition> {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let old = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == CONDITION);
    let unchanged = old.filter(|old| old.status == "False");
    let same = |text: &Option<String>, other: &str| text.as_deref() == Some(other);
    if unchanged.is_some_and(|old| same(&old.reason, reason) && same(&old.message, message)) {
        return None;
    }
    let transition = unchanged.and_then(|old| old.last_transition_time.clone());
    Some(PodCondition {
        type_: CONDITION.to_owned(),
        status: "False".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: transition.or(Some(Time(now))),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    })
}

/// Microseconds from one reading of the clock to a later one.
pub(crate) fn elapsed(from_micros: i64, to_micros: i64) -> u64 {
    u64::try_from(to_micros - from_micros).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_is_written_once_and_keeps_its_transition() {
        let pod = |conditions: &str| -> Pod {
            let text = format!(r#"{{"metadata":{{}},"status":{{"conditions":[{conditions}]}}}}"#);
            serde_json::from_str(&text).expect("a pod")
        };
        let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
        let fresh = condition(&pod(""), "Unschedulable", "no", now).expect("a condition");
        assert_eq!(fresh.last_transition_time, Some(Time(now)));
        let old = r#"{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"no","lastTransitionTime":"2026-01-01T00:00:00Z"}"#;
        assert!(condition(&pod(old), "Unschedulable", "no", now).is_none());
        let changed = condition(&pod(old), "Unschedulable", "other", now).expect("a condition");
        assert_ne!(changed.last_transition_time, Some(Time(now)));
        let bound = old.replace("False", "True");
        let back = condition(&pod(&bound), "Unschedulable", "no", now).expect("a condition");
        assert_eq!(back.last_transition_time, Some(Time(now)));
    }
}
