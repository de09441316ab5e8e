//! The configuration of a pod's sandbox for CRI.

use cri::v1;
use k8s_openapi::api::{core::v1::Pod, node::v1::RuntimeClass};
use kube::Api;

use crate::{
    container::{dns, sandbox, users},
    pod::services::PodServices,
    runtime::Sandbox,
};

pub(super) fn of(
    services: &PodServices,
    pod: &Pod,
    attempt: u32,
    resolv_conf: &str,
) -> v1::PodSandboxConfig {
    let settings = &services.settings;
    let (servers, domain) = (&settings.cluster_dns, &settings.cluster_domain);
    let mut config = sandbox::config(
        pod,
        attempt,
        sandbox::Settings {
            log_directory: &settings.pod_log_dir(pod),
            cgroup_parent: &services.cgroups.pod_path(pod),
            dns: dns::config(pod, servers, domain, resolv_conf).config,
            domain,
        },
    );
    // Written before the sandbox is created; a few bytes, and only for pods that ask for it.
    if let Ok(Some(users)) = users::namespace(services.volumes.pods_root(), pod) {
        users::apply_to_sandbox(&mut config, &users);
    }
    config
}

/// A RuntimeClass that could not be read. The messages are those of the events.
#[derive(Debug, thiserror::Error)]
pub(super) enum RuntimeClassError {
    #[error("{0}")]
    Refused(String),
    #[error("failed to lookup RuntimeClass {class}")]
    Unreachable {
        class: String,
        #[source]
        source: kube::Error,
    },
}

/// The handler that the pod's RuntimeClass names, empty for the default.
pub(super) async fn runtime_handler(
    client: &kube::Client,
    pod: &Pod,
) -> Result<String, RuntimeClassError> {
    let class = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.runtime_class_name.as_deref())
        .filter(|name| !name.is_empty());
    let Some(class) = class else {
        return Ok(String::new());
    };
    let api: Api<RuntimeClass> = Api::all(client.clone());
    match api.get(class).await {
        Ok(found) => Ok(found.handler),
        Err(kube::Error::Api(status)) => Err(RuntimeClassError::Refused(status.message)),
        Err(source) => Err(RuntimeClassError::Unreachable {
            class: class.to_owned(),
            source,
        }),
    }
}

/// The addresses of the pod: the node's if it uses the host's network.
pub fn pod_ips(host_ip: &str, pod: &Pod, sandbox: &Sandbox) -> Vec<String> {
    let uses_host_network = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.host_network == Some(true));
    match uses_host_network {
        true => vec![host_ip.to_owned()],
        false => sandbox.ips.clone(),
    }
}
