//! Questions about a pod and its containers that every component asks.
//!
//! Upstream decides in package `k8s.io/kubernetes/pkg/api/v1/pod` (`IsPodTerminal`, `IsPodReady`,
//! `GetPodCondition`, `IsRestartableInitContainer`) and in `IsPodActive` (`pkg/controller`).

use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodSpec};

/// Whether an init container keeps running alongside the others (a restartable init container).
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The init containers that keep running alongside the others.
pub fn sidecars(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let init = spec.init_containers.iter().flatten();
    init.filter(|container| is_sidecar(container))
}

/// The pod's phase; `Pending` while no status was written.
pub fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

/// Whether all containers have stopped and none will start again.
pub fn is_terminal(pod: &Pod) -> bool {
    is_terminal_phase(phase(pod))
}

/// Whether a pod in this phase has stopped for good.
pub fn is_terminal_phase(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// Whether the pod counts as a replica: it is neither terminal nor being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// The pod's condition of this type.
pub fn condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == name)
}

/// Whether the pod's condition of this type is `True`.
pub fn is_condition_true(pod: &Pod, name: &str) -> bool {
    condition(pod, name).is_some_and(|condition| condition.status == "True")
}

/// Whether the pod's condition `Ready` is `True`.
pub fn is_ready(pod: &Pod) -> bool {
    is_condition_true(pod, "Ready")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(status: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"status": status})).expect("a pod")
    }

    #[test]
    fn phases_decide_what_is_terminal() {
        for (phase, terminal) in [
            ("Pending", false),
            ("Running", false),
            ("Unknown", false),
            ("Succeeded", true),
            ("Failed", true),
        ] {
            let mut pod = pod(json!({"phase": phase}));
            assert_eq!(is_terminal(&pod), terminal, "{phase}");
            assert_eq!(is_active(&pod), !terminal, "{phase}");
            pod.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
            assert!(!is_active(&pod), "{phase} and being deleted");
        }
        assert_eq!(phase(&Pod::default()), "Pending");
    }

    #[test]
    fn the_first_condition_of_its_type_counts() {
        assert!(is_ready(&pod(
            json!({"conditions": [{"type": "Ready", "status": "True"}]})
        )));
        assert!(!is_ready(&pod(json!({"conditions": [
            {"type": "Ready", "status": "False"}, {"type": "Ready", "status": "True"}]}))));
        assert!(!is_ready(&pod(
            json!({"conditions": [{"type": "ContainersReady", "status": "True"}]})
        )));
        assert!(!is_ready(&Pod::default()));
    }

    #[test]
    fn sidecars_are_the_init_containers_that_always_restart() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [{"name": "app", "restartPolicy": "Always"}],
            "initContainers": [{"name": "once"}, {"name": "never", "restartPolicy": "Never"},
                {"name": "proxy", "restartPolicy": "Always"}],
        }))
        .expect("a spec");
        let names: Vec<&str> = sidecars(&spec).map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["proxy"]);
    }
}
