//! Writes a pod's status through the API: a strategic merge patch of the status subresource that
//! names the UID, so that it never lands on another pod of the same name.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value, json};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pod is gone or is another one now: there is nothing to write to.
    #[error("the pod is gone")]
    Gone,
    #[error("the status could not be written")]
    Api(#[source] kube::Error),
}

/// The version of the object, as a number that grows.
pub fn version(pod: &Pod) -> u64 {
    let version = pod.metadata.resource_version.as_deref();
    version.and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub fn to_value(status: &PodStatus) -> Value {
    serde_json::to_value(status).unwrap_or(Value::Null)
}

/// The part of a status that others act upon: the phase, the containers' states, and the conditions but for the
/// sandbox's. The rest, such as addresses and ids, comes with the containers.
pub fn essence(status: &Value) -> Vec<&Value> {
    let mut essence: Vec<&Value> = Vec::new();
    for key in ["phase", "reason", "message", "startTime", "resize"] {
        essence.push(&status[key]);
    }
    for list in [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for container in status[list].as_array().into_iter().flatten() {
            for key in [
                "name",
                "state",
                "lastState",
                "ready",
                "started",
                "restartCount",
            ] {
                essence.push(&container[key]);
            }
        }
    }
    for condition in status["conditions"].as_array().into_iter().flatten() {
        if condition["type"] != "PodReadyToStartContainers" {
            essence.extend(["type", "status", "reason"].map(|key| &condition[key]));
        }
    }
    essence
}

/// The patch that turns `old` into `new`. Fields that vanished are nulled; lists that the server
/// would merge by key are marked to be replaced.
pub fn patch(uid: &str, old: &Value, new: &Value) -> Value {
    let empty = Map::new();
    let old = old.as_object().unwrap_or(&empty);
    let mut status = Map::new();
    for (key, value) in new.as_object().unwrap_or(&empty) {
        let before = old.get(key);
        if before == Some(value) {
            continue;
        }
        let value = match value {
            Value::Array(items) if key == "podIPs" && before.is_some() => {
                let mut items = items.clone();
                items.insert(0, json!({"$patch": "replace"}));
                Value::Array(items)
            }
            Value::Array(items) if key == "conditions" => {
                // Those that are as they were are left to others who may change them meanwhile.
                let known = before.and_then(Value::as_array);
                let changed = items
                    .iter()
                    .filter(|item| !known.is_some_and(|known| known.contains(item)));
                let mut patched: Vec<Value> = changed.map(complete_condition).collect();
                patched.extend(vanished(before, items));
                Value::Array(patched)
            }
            value => value.clone(),
        };
        status.insert(key.clone(), value);
    }
    for key in old.keys() {
        if new.get(key).is_none() {
            status.insert(key.clone(), Value::Null);
        }
    }
    json!({"metadata": {"uid": uid}, "status": status})
}

/// Conditions that are no more must be named, or they would stay.
fn vanished(before: Option<&Value>, now: &[Value]) -> Vec<Value> {
    let before = before.and_then(Value::as_array);
    before
        .into_iter()
        .flatten()
        .filter_map(|condition| condition.get("type"))
        .filter(|type_| {
            !now.iter()
                .any(|condition| condition.get("type") == Some(type_))
        })
        .map(|type_| json!({"$patch": "delete", "type": type_}))
        .collect()
}

/// Conditions merge by type: a reason that is over must be nulled, or it would stay.
fn complete_condition(condition: &Value) -> Value {
    let mut condition = condition.clone();
    if let Some(fields) = condition.as_object_mut() {
        for key in ["reason", "message"] {
            fields.entry(key).or_insert(Value::Null);
        }
    }
    condition
}

pub async fn write(client: &kube::Client, pod: &Pod, patch: Value) -> Result<Pod, Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let result = api
        .patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
        .await;
    result.map_err(|error| match &error {
        kube::Error::Api(status) if is_gone(status.code, &status.message) => Error::Gone,
        _ => Error::Api(error),
    })
}

/// Whether the answer says that there is no such pod, or another one of its name. A conflict with
/// another writer is worth another try.
fn is_gone(code: u16, message: &str) -> bool {
    match code {
        404 => true,
        409 => message.contains("UID in precondition"),
        // A patch that names a UID would change it.
        422 => message.contains("metadata.uid: Invalid value"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_ids_do_not_make_a_status_urgent() {
        let waiting = json!({"phase": "Pending",
            "conditions": [{"type": "PodReadyToStartContainers", "status": "False"},
                {"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]});
        let mut addressed = waiting.clone();
        addressed["podIP"] = "10.0.0.1".into();
        addressed["conditions"][0]["status"] = "True".into();
        addressed["containerStatuses"][0]["imageID"] = "i".into();
        assert_eq!(essence(&waiting), essence(&addressed));
        for (pointer, value) in [
            ("/phase", "Running"),
            ("/conditions/1/status", "True"),
            ("/containerStatuses/0/state/waiting/reason", "ErrImagePull"),
        ] {
            let mut changed = addressed.clone();
            *changed.pointer_mut(pointer).expect("a field") = value.into();
            assert_ne!(essence(&waiting), essence(&changed), "{pointer}");
        }
    }

    #[test]
    fn only_not_found_and_another_uid_mean_that_the_pod_is_gone() {
        let other = "Precondition failed: UID in precondition: 1, UID in object meta: 2";
        assert!(is_gone(404, "pods \"a\" not found"));
        assert!(is_gone(409, other));
        let changed =
            "Pod \"a\" is invalid: metadata.uid: Invalid value: \"1\": field is immutable";
        assert!(is_gone(422, changed));
        assert!(!is_gone(422, "status.phase: Invalid value"));
        assert!(!is_gone(409, "the object has been modified"));
        assert!(!is_gone(500, other));
    }

    #[test]
    fn unchanged_conditions_are_not_in_the_patch() {
        let (gate, ready) = (
            json!({"type": "example.com/gate", "status": "False"}),
            json!({"type": "Ready", "status": "False"}),
        );
        let now = json!({"type": "Ready", "status": "True"});
        let old = json!({"conditions": [gate, ready]});
        let new = json!({"conditions": [gate, now]});
        let patch = patch("u1", &old, &new);
        let named = patch["status"]["conditions"].as_array().expect("a list");
        assert_eq!(named.len(), 1, "{named:?}");
        assert_eq!(named[0]["type"], "Ready");
    }

    #[test]
    fn a_patch_has_changed_and_removed_fields() {
        let old = json!({"phase": "Pending", "message": "m", "hostIP": "a", "podIPs": [{"ip": "1"}],
                "conditions": [{"type": "Gone", "status": "True"}]});
        let new = json!({"phase": "Running", "hostIP": "a", "podIPs": [{"ip": "2"}],
            "conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(
            patch("u1", &old, &new),
            json!({"metadata": {"uid": "u1"}, "status": {
                "phase": "Running", "message": null,
                "podIPs": [{"$patch": "replace"}, {"ip": "2"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": null, "message": null},
                    {"$patch": "delete", "type": "Gone"}],
            }})
        );
    }
}
