//! In-place resize: what a pod was granted against what it asks for, and how a running container
//! gets from what it has to what it was granted. Pure; granting is `admission`'s.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodStatus, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use serde_json::json;

use crate::resources;

/// How far a resize has come, as the pod's conditions show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub pending: Option<Pending>,
    pub in_progress: Option<Progress>,
}

/// Asked for and not granted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    pub reason: &'static str,
    pub message: String,
    pub generation: Option<i64>,
}

/// Granted and being carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub generation: Option<i64>,
    pub error: Option<String>,
}

/// `desired` with the resources that were granted, or `None` when they are the same.
pub fn as_granted(desired: &Pod, granted: &Pod) -> Option<Pod> {
    let (mut pod, other) = (desired.clone(), granted.spec.as_ref()?);
    let spec = pod.spec.as_mut()?;
    let mut changed = false;
    if !same(spec.resources.as_ref(), other.resources.as_ref()) {
        spec.resources = other.resources.clone();
        changed = true;
    }
    let granted_of = |name: &str| {
        other
            .containers
            .iter()
            .chain(other.init_containers.iter().flatten())
            .find(|container| container.name == name)
    };
    let containers = spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten());
    for container in containers {
        if let Some(granted) = granted_of(&container.name)
            && !same(container.resources.as_ref(), granted.resources.as_ref())
        {
            container.resources = granted.resources.clone();
            changed = true;
        }
    }
    changed.then_some(pod)
}

/// The pod with the resources that it was granted before this kubelet started, from its status.
pub fn from_status(pod: &Pod, status: &PodStatus) -> Option<Pod> {
    let mut granted = pod.clone();
    let spec = granted.spec.as_mut()?;
    let statuses: Vec<_> = status
        .container_statuses
        .iter()
        .flatten()
        .chain(status.init_container_statuses.iter().flatten())
        .collect();
    let containers = spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten());
    for container in containers {
        let found = statuses
            .iter()
            .find(|status| status.name == container.name && status.container_id.is_some());
        if let Some(actual) = found.and_then(|status| status.resources.clone()) {
            container.resources = Some(actual);
        }
    }
    if resources::pod_level(pod).is_some() && status.resources.is_some() {
        spec.resources = status.resources.clone();
    }
    as_granted(pod, &granted)
}

/// The resources of cpu and memory that differ between the wanted ones and a container's actual ones.
pub fn changes(
    wanted: Option<&ResourceRequirements>,
    actual: &ResourceRequirements,
) -> Vec<&'static str> {
    let nothing = ResourceRequirements::default();
    let wanted = wanted.unwrap_or(&nothing);
    ["cpu", "memory"]
        .into_iter()
        .filter(|resource| {
            amount(&wanted.requests, resource) != amount(&actual.requests, resource)
                || amount(&wanted.limits, resource) != amount(&actual.limits, resource)
        })
        .collect()
}

/// Whether the container says that such a change needs a new one.
pub fn needs_restart(container: &Container, changed: &[&str]) -> bool {
    container.resize_policy.iter().flatten().any(|policy| {
        changed.contains(&policy.resource_name.as_str())
            && policy.restart_policy == "RestartContainer"
    })
}

/// Why a container's memory limit must not be lowered to what is wanted now: it uses more.
pub fn refuses_decrease(
    container: &str,
    wanted: Option<i64>,
    present: Option<i64>,
    usage: Option<u64>,
) -> Option<String> {
    let wanted = wanted.filter(|wanted| present.is_none_or(|present| *wanted < present))?;
    let why = match usage {
        None => format!("missing container \"{container}\" memory usage"),
        Some(usage) if usage >= wanted as u64 => format!(
            "attempting to set container \"{container}\" memory limit ({wanted}) below current usage ({usage})"
        ),
        Some(_) => return None,
    };
    Some(format!("cannot decrease memory limits: {why}"))
}

/// The text of a resize event.
pub fn event_message(prefix: &str, pod: &Pod, generation: Option<i64>, error: &str) -> String {
    let summary = |containers: &[Container]| -> Vec<serde_json::Value> {
        containers
            .iter()
            .map(|container| json!({"name": container.name, "resources": container.resources}))
            .collect()
    };
    let mut text = serde_json::Map::new();
    if let Some(spec) = &pod.spec {
        let init = summary(spec.init_containers.as_deref().unwrap_or_default());
        if !init.is_empty() {
            text.insert("initContainers".to_owned(), init.into());
        }
        text.insert("containers".to_owned(), summary(&spec.containers).into());
    }
    text.insert("generation".to_owned(), generation.unwrap_or(0).into());
    if !error.is_empty() {
        text.insert("error".to_owned(), error.into());
    }
    format!("{prefix}: {}", serde_json::Value::Object(text))
}

fn same(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    let nothing = ResourceRequirements::default();
    let (a, b) = (a.unwrap_or(&nothing), b.unwrap_or(&nothing));
    changes(Some(a), b).is_empty()
}

fn amount(amounts: &Option<BTreeMap<String, Quantity>>, resource: &str) -> Option<i64> {
    resources::milli(amounts.as_ref()?.get(resource)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cpu: &str, status: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c",
                "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
                "resources": {"requests": {"cpu": cpu}}}]},
            "status": status,
        }))
        .expect("a pod")
    }

    fn cpu(pod: &Pod) -> String {
        let spec = pod.spec.as_ref().expect("spec");
        let resources = spec.containers[0].resources.as_ref().expect("resources");
        resources.requests.as_ref().expect("requests")["cpu"]
            .0
            .clone()
    }

    #[test]
    fn a_pod_keeps_what_it_was_granted() {
        let (old, new) = (pod("1", json!({})), pod("2", json!({})));
        assert_eq!(cpu(&as_granted(&new, &old).expect("differs")), "1");
        assert!(
            as_granted(&new, &pod("2000m", json!({}))).is_none(),
            "the same amount"
        );
    }

    #[test]
    fn a_restarted_kubelet_restores_granted_resources_from_the_status() {
        let status = json!({"containerStatuses": [{"name": "c", "containerID": "x://1", "image": "",
            "imageID": "", "ready": true, "restartCount": 0,
            "resources": {"requests": {"cpu": "1"}}}]});
        let pod = pod("2", status);
        let granted = from_status(&pod, pod.status.as_ref().expect("status")).expect("differs");
        assert_eq!(cpu(&granted), "1");
    }

    #[test]
    fn resize_policies_decide_whether_a_container_restarts() {
        let pod = pod("2", json!({}));
        let container = &pod.spec.as_ref().expect("spec").containers[0];
        let actual: ResourceRequirements =
            serde_json::from_value(json!({"requests": {"cpu": "1", "memory": "1Mi"}}))
                .expect("resources");
        assert_eq!(
            changes(container.resources.as_ref(), &actual),
            ["cpu", "memory"]
        );
        assert!(needs_restart(container, &["memory"]));
        assert!(!needs_restart(container, &["cpu"]));
    }

    #[test]
    fn a_limit_is_not_lowered_below_what_is_used() {
        assert_eq!(
            refuses_decrease("c", Some(20), Some(10), None),
            None,
            "more"
        );
        assert_eq!(
            refuses_decrease("c", None, Some(10), None),
            None,
            "no limit"
        );
        assert_eq!(refuses_decrease("c", Some(10), Some(20), Some(5)), None);
        assert_eq!(
            refuses_decrease("c", Some(10), None, Some(10)).as_deref(),
            Some(
                "cannot decrease memory limits: attempting to set container \"c\" memory limit (10) below current usage (10)"
            )
        );
        assert!(refuses_decrease("c", Some(10), Some(20), None).is_some());
    }

    #[test]
    fn the_event_shows_what_was_asked_for() {
        assert_eq!(
            event_message("Pod resize started", &pod("2", json!({})), Some(3), ""),
            "Pod resize started: {\"containers\":[{\"name\":\"c\",\"resources\":{\"requests\":{\"cpu\":\"2\"}}}],\"generation\":3}"
        );
    }
}
