//! Whether another client has changed what this kubelet wrote of a pod's status. Pure. Times, and
//! what the server may format in its own way, do not count.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodCondition, PodStatus};

/// `api` is what the API has, `ours` what was computed last.
pub fn differs(api: &PodStatus, ours: &PodStatus) -> bool {
    api.phase != ours.phase
        || text(&api.reason) != text(&ours.reason)
        || api.pod_ip != ours.pod_ip
        || api.host_ip != ours.host_ip
        || conditions_differ(list(&api.conditions), list(&ours.conditions))
        || [
            (&api.init_container_statuses, &ours.init_container_statuses),
            (&api.container_statuses, &ours.container_statuses),
            (
                &api.ephemeral_container_statuses,
                &ours.ephemeral_container_statuses,
            ),
        ]
        .into_iter()
        .any(|(api, ours)| containers_differ(list(api), list(ours)))
}

fn list<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

fn text(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

/// Their order is the server's.
fn conditions_differ(api: &[PodCondition], ours: &[PodCondition]) -> bool {
    api.len() != ours.len()
        || ours.iter().any(|ours| {
            let found = api.iter().find(|api| api.type_ == ours.type_);
            found.is_none_or(|api| {
                api.status != ours.status
                    || text(&api.reason) != text(&ours.reason)
                    || text(&api.message) != text(&ours.message)
            })
        })
}

fn containers_differ(api: &[ContainerStatus], ours: &[ContainerStatus]) -> bool {
    api.len() != ours.len()
        || api.iter().zip(ours).any(|(api, ours)| {
            api.name != ours.name
                || api.ready != ours.ready
                || api.started != ours.started
                || api.restart_count != ours.restart_count
                || text(&api.container_id) != text(&ours.container_id)
                || outline(api.state.as_ref()) != outline(ours.state.as_ref())
                || outline(api.last_state.as_ref()) != outline(ours.last_state.as_ref())
        })
}

/// The state's name, its reason and its exit code.
fn outline(state: Option<&ContainerState>) -> Option<(&'static str, &str, i32)> {
    let state = state?;
    if let Some(ended) = &state.terminated {
        return Some(("terminated", text(&ended.reason), ended.exit_code));
    }
    if let Some(waiting) = &state.waiting {
        return Some(("waiting", text(&waiting.reason), 0));
    }
    state.running.as_ref().map(|_| ("running", "", 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ours() -> Value {
        json!({"phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.1.0.1",
            "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "containerStatuses": [{"name": "c", "ready": true, "started": true, "image": "i",
                "imageID": "i", "restartCount": 0, "containerID": "r://1",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]})
    }

    fn check(pointer: &str, value: Value, expected: bool) {
        let mut api = ours();
        *api.pointer_mut(pointer).expect("a field") = value;
        let status = |value| serde_json::from_value::<PodStatus>(value).expect("a status");
        assert_eq!(
            differs(&status(api), &status(ours())),
            expected,
            "{pointer}"
        );
    }

    #[test]
    fn own_fields_count_as_overwritten_but_times_and_order_do_not() {
        check("/phase", json!("Running"), false);
        check("/phase", json!("Pending"), true);
        check("/podIP", json!("10.0.0.2"), true);
        check("/conditions/1/status", json!("False"), true);
        check("/conditions/1/type", json!("Other"), true);
        check("/conditions/1/lastTransitionTime", Value::Null, false);
        let mut turned = ours()["conditions"].as_array().cloned().expect("a list");
        turned.reverse();
        check("/conditions", json!(turned), false);
        check("/conditions", json!([]), true);
        check("/containerStatuses/0/ready", json!(false), true);
        let later = json!({"running": {"startedAt": "2026-01-01T00:00:09Z"}});
        check("/containerStatuses/0/state", later, false);
        let ended = json!({"terminated": {"exitCode": 0}});
        check("/containerStatuses/0/state", ended, true);
        check("/containerStatuses", json!([]), true);
    }
}
