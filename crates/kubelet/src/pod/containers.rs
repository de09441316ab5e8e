//! The containers of a pod's spec by name: init, app and ephemeral ones. An ephemeral container is
//! given the form of a plain one, so that everything that starts containers knows one form.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};

/// What kind of container a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Init,
    App,
    Ephemeral,
}

/// An init or app container.
pub fn find_lasting<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .find(|container| container.name == name)
}

/// Any container, ephemeral ones included.
pub fn find(pod: &Pod, name: &str) -> Option<Container> {
    find_lasting(pod, name).cloned().or_else(|| {
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
    fn ephemeral_containers_are_found_beside_the_others() {
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
        assert!(find_lasting(&pod, "e").is_none());
    }
}
