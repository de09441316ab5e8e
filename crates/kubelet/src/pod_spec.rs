//! Pure questions about a pod object that several parts of the kubelet ask: its identity, whether
//! it is static or critical, and its containers by name. An ephemeral container is returned as a
//! plain container, so that the code that starts containers handles one type only.

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};

/// The annotation with the source of a static pod's manifest. Pods from the API do not have
/// it.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Pods with this priority or a higher one are critical: the system priority classes start here.
pub const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The kind of a container in the pod's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Init,
    App,
    Ephemeral,
}

/// The pod's spec, an empty one if it has none.
pub fn spec(pod: &Pod) -> &PodSpec {
    static EMPTY: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&EMPTY)
}

/// An init or app container.
pub fn find_init_or_app<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .find(|container| container.name == name)
}

/// Any container, ephemeral ones included.
pub fn find(pod: &Pod, name: &str) -> Option<Container> {
    find_init_or_app(pod, name).cloned().or_else(|| {
        ephemeral(pod)
            .into_iter()
            .find(|container| container.name == name)
    })
}

pub fn ephemeral(pod: &Pod) -> Vec<Container> {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.ephemeral_containers.as_deref())
        .unwrap_or_default()
        .iter()
        .map(as_container)
        .collect()
}

pub fn role(pod: &Pod, name: &str) -> Role {
    let Some(spec) = &pod.spec else {
        return Role::App;
    };
    if spec
        .init_containers
        .iter()
        .flatten()
        .any(|container| container.name == name)
    {
        Role::Init
    } else if spec
        .ephemeral_containers
        .iter()
        .flatten()
        .any(|container| container.name == name)
    {
        Role::Ephemeral
    } else {
        Role::App
    }
}

/// The container whose processes an ephemeral container is to see.
pub fn target<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let spec = pod.spec.as_ref()?;
    spec.ephemeral_containers
        .iter()
        .flatten()
        .find(|container| container.name == name)?
        .target_container_name
        .as_deref()
        .filter(|target| !target.is_empty())
}

pub fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// `name_namespace(uid)`, as upstream writes a pod in messages.
pub fn format_pod(pod: &Pod) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let metadata = &pod.metadata;
    format!(
        "{}_{}({})",
        text(&metadata.name),
        text(&metadata.namespace),
        text(&metadata.uid)
    )
}

pub fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

pub fn is_static(pod: &Pod) -> bool {
    annotation(pod, CONFIG_SOURCE).is_some_and(|source| source != "api")
}

/// Whether the pod is never evicted and may preempt others: static pods and system priorities.
pub fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || priority(pod) >= CRITICAL_PRIORITY
}

pub fn priority(pod: &Pod) -> i32 {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.priority)
        .unwrap_or(0)
}

/// Identifies what of a container cannot change without a new one: its name and image.
pub fn definition_hash(container: &Container) -> String {
    use sha2::{Digest, Sha256};
    let image = container.image.as_deref().unwrap_or_default();
    let digest = Sha256::digest(format!("{}\0{image}", container.name));
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Probes, hooks, ports and resources are not allowed on ephemeral containers and left out.
fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let ephemeral = ephemeral.clone();
    Container {
        args: ephemeral.args,
        command: ephemeral.command,
        env: ephemeral.env,
        env_from: ephemeral.env_from,
        image: ephemeral.image,
        image_pull_policy: ephemeral.image_pull_policy,
        name: ephemeral.name,
        security_context: ephemeral.security_context,
        stdin: ephemeral.stdin,
        stdin_once: ephemeral.stdin_once,
        termination_message_path: ephemeral.termination_message_path,
        termination_message_policy: ephemeral.termination_message_policy,
        tty: ephemeral.tty,
        volume_mounts: ephemeral.volume_mounts,
        working_dir: ephemeral.working_dir,
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ephemeral_containers_are_found_like_the_others() {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {
            "initContainers": [{"name": "i"}], "containers": [{"name": "c"}],
            "ephemeralContainers": [{"name": "e", "image": "img", "targetContainerName": "c"}],
        }}))
        .expect("a pod");
        assert_eq!(role(&pod, "i"), Role::Init);
        assert_eq!(role(&pod, "c"), Role::App);
        assert_eq!(role(&pod, "e"), Role::Ephemeral);
        assert_eq!(
            find(&pod, "e").expect("found").image.as_deref(),
            Some("img")
        );
        assert_eq!(target(&pod, "e"), Some("c"));
        assert!(find_init_or_app(&pod, "e").is_none());
    }
}
