//! The configuration of a container for CRI: environment, mounts, devices, limits, users.

use std::{collections::BTreeMap, sync::Arc};

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio_util::sync::CancellationToken;

use super::sandbox_config::runtime_handler;
use crate::{
    container::{config, env, hosts, security, service_env, users},
    image::Image,
    pod::services::PodServices,
    pod_spec,
    runtime::Sandbox,
    volumes::{self, HeldObjects, Mounted, mounts},
};

/// The input of one container start.
pub(super) struct Start {
    pub pod: Arc<Pod>,
    pub container: Container,
    pub image: Image,
    pub restart_count: i32,
    pub sandbox: Sandbox,
    pub mounted: Mounted,
    pub held: HeldObjects,
    /// The container whose processes this one is to see.
    pub target_id: Option<String>,
    pub wanted: i64,
    /// Cancelled when the pod is to terminate: then hooks are not waited for any more.
    pub stop: CancellationToken,
}

/// A container's configuration that cannot be made. The messages are those of its status.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    #[error("failed to sync {0} cache: timed out waiting for the condition")]
    NotSynced(&'static str),
    #[error(transparent)]
    Environment(#[from] env::Error),
    #[error(transparent)]
    Volume(#[from] volumes::Error),
    #[error(transparent)]
    Security(#[from] security::Error),
    #[error("reading the pod's users")]
    Users(#[source] std::io::Error),
}

pub(super) async fn of(
    services: &PodServices,
    start: &Start,
    pod_ips: &[String],
) -> Result<v1::ContainerConfig, ConfigError> {
    let settings = &services.settings;
    let (pod, container) = (&start.pod, &start.container);
    let spec = pod_spec::spec(pod);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let (in_namespace, kubernetes) = services.objects.services(namespace).await;
    let service_variables = service_env::variables(
        in_namespace.iter().map(AsRef::as_ref),
        kubernetes.as_deref(),
        spec.enable_service_links != Some(false),
    );
    let mut referenced = referenced(&start.held, container).await?;
    referenced.files = env_files(container, &start.mounted).await;
    let facts = settings.facts(pod_ips.to_vec());
    let environment = env::build(pod, container, &facts, &service_variables, &referenced)?;
    let (host_name, host_domain) = hosts::host_name(pod, &settings.cluster_domain);
    let host_file = if spec.host_network == Some(true) {
        let content = tokio::fs::read_to_string("/etc/hosts").await;
        Some(content.unwrap_or_default())
    } else {
        None
    };
    let hosts = hosts::content(
        pod,
        pod_ips,
        &host_name,
        host_domain.as_deref(),
        host_file.as_deref(),
    );
    let known = environment.iter().cloned().collect();
    let wants_recursive = container
        .volume_mounts
        .iter()
        .flatten()
        .any(|mount| mount.recursive_read_only.is_some());
    let recursive = wants_recursive && supports_recursive_read_only(services, pod).await;
    let mounts = mounts::prepare(
        &services.volumes,
        pod,
        container,
        &start.mounted,
        &known,
        mounts::Particulars {
            restart_count: start.restart_count,
            hosts,
            recursive,
        },
    )
    .await?;
    let parts = config::Parts {
        restart_count: start.restart_count,
        image: &start.image,
        environment,
        mounts,
        devices: volumes::devices::of(container, &start.mounted)?,
        machine: settings.machine(services.cgroups.limits_swap_of_containers()),
        seccomp_default: settings.configuration.seccomp_default,
        target_id: start.target_id.clone(),
    };
    let mut config = config::config(pod, container, parts)?;
    let users = users::namespace(services.volumes.pods_root(), pod);
    if let Some(users) = users.map_err(ConfigError::Users)? {
        users::apply_to_container(&mut config, &users);
    }
    let limits = config
        .linux
        .as_mut()
        .and_then(|linux| linux.resources.as_mut());
    if let Some(limits) = limits {
        config::enforce_cpu(limits, settings.configuration.cpu_quota_period());
    }
    Ok(config)
}

/// Whether the pod's runtime handler has recursive read-only mounts, as the Node's status reports it.
async fn supports_recursive_read_only(services: &PodServices, pod: &Pod) -> bool {
    let handler = runtime_handler(&services.client, pod).await;
    let handler = handler.unwrap_or_default();
    let found = services.node_object.registered();
    let status = found.as_ref().and_then(|found| found.status.as_ref());
    status
        .iter()
        .flat_map(|status| status.runtime_handlers.iter().flatten())
        .find(|known| known.name.as_deref().unwrap_or_default() == handler)
        .and_then(|known| known.features.as_ref())
        .and_then(|features| features.recursive_read_only_mounts)
        .unwrap_or(false)
}

/// The files in volumes that the environment refers to. Volumes that are not mounted are left out.
async fn env_files(
    container: &Container,
    mounted: &Mounted,
) -> BTreeMap<(String, String), Option<String>> {
    let wanted: Vec<_> = env::files(container)
        .into_iter()
        .filter_map(|place| Some((mounted.paths.get(&place.0)?.clone(), place)))
        .collect();
    if wanted.is_empty() {
        return BTreeMap::new();
    }
    let read = tokio::task::spawn_blocking(move || {
        wanted
            .into_iter()
            .map(|(root, place)| {
                let text = volumes::read_inside(&root, &place.1);
                (place, text)
            })
            .collect()
    });
    read.await.unwrap_or_default()
}

/// The ConfigMaps and Secrets that the environment refers to.
async fn referenced(
    held: &HeldObjects,
    container: &Container,
) -> Result<env::Referenced, ConfigError> {
    let (config_maps, secrets) = env::references(container);
    let mut referenced = env::Referenced::default();
    for name in config_maps {
        if let Some(held) = held.config_maps.get(&name) {
            let found = held.get().await;
            let found = found.ok_or(ConfigError::NotSynced("configmap"))?;
            referenced.config_maps.insert(name, found);
        }
    }
    for name in secrets {
        if let Some(held) = held.secrets.get(&name) {
            let found = held.get().await;
            let found = found.ok_or(ConfigError::NotSynced("secret"))?;
            referenced.secrets.insert(name, found);
        }
    }
    Ok(referenced)
}
