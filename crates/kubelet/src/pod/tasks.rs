//! The steps of a pod's life, each a task of its own: called by the worker, talking to the
//! runtime, the disk and the API, and coming back with what they found. They decide nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use client::events::Severity;
use cri::v1;
use k8s_openapi::api::{
    core::v1::{Container, Pod, PodStatus, Secret},
    node::v1::RuntimeClass,
};
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use trace::Hop;

use super::{
    measuring::{SandboxStart, cgroups_changed},
    resize,
    services::PodServices,
    status_writer,
};
use crate::{
    container::{
        config, dns, env, hosts, sandbox, security, service_env, termination_message, users,
    },
    images::{self, Image},
    lifecycle,
    measures::{Counter, Histogram},
    pod_spec::{self, find_lasting as find_container, uid},
    resources,
    runtime::{self, ContainerRecord, ContainerState, Observed, Sandbox, observe, rpc_error},
    volumes::{self, HeldObjects, Mounted, mounts},
};

/// Pause before something that failed at the runtime or the API is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const MINIMUM_GRACE: i64 = 2;
/// The exit code of a container of which nobody knows how it ended.
const UNKNOWN_EXIT: i32 = 255;

/// Why a container did not start.
#[derive(Clone, Debug)]
pub struct StartFailure {
    pub reason: &'static str,
    pub message: String,
    /// What is left of it in the runtime.
    pub record: Option<ContainerRecord>,
}

pub async fn observe_pod(node: Arc<PodServices>, pod: Arc<Pod>) -> Result<Observed, tonic::Status> {
    let uid = uid(&pod);
    let began = Instant::now();
    let observed = observe::pod(&node.cri, &uid).await;
    let took = began.elapsed();
    node.telemetry
        .measures
        .time(Histogram::PlegRelistDuration, &[], took);
    match observed {
        Ok(mut observed) => {
            for record in &mut observed.containers {
                complete_message(&node, &pod, record).await;
            }
            Ok(observed)
        }
        Err(status) => {
            tokio::time::sleep(RETRY_PAUSE / 5).await;
            Err(status)
        }
    }
}

pub fn sandbox_config(
    node: &PodServices,
    pod: &Pod,
    attempt: u32,
    resolv_conf: &str,
) -> v1::PodSandboxConfig {
    let mut config = sandbox::config(
        pod,
        attempt,
        sandbox::Settings {
            log_directory: &node.settings.pod_log_dir(pod),
            cgroup_parent: &node.cgroups.pod_path(pod),
            dns: dns::config(
                pod,
                &node.settings.cluster_dns,
                &node.settings.cluster_domain,
                resolv_conf,
            )
            .config,
            domain: &node.settings.cluster_domain,
        },
    );
    // Written before the sandbox is made; a few bytes, and only for pods that ask for it.
    if let Ok(Some(users)) = users::namespace(node.volumes.pods_root(), pod) {
        users::apply_to_sandbox(&mut config, &users);
    }
    config
}

/// Makes the cgroup and the log directory, then runs the sandbox.
pub async fn create_sandbox(
    node: Arc<PodServices>,
    pod: Arc<Pod>,
    attempt: u32,
    wanted: i64,
) -> Result<Sandbox, String> {
    let start = node.telemetry.spans.now();
    let (cgroups, for_cgroup) = (node.cgroups.clone(), pod.clone());
    let log_dir = node.settings.pod_log_dir(&pod);
    let pods_root = node.volumes.pods_root().to_owned();
    let resolver = node.settings.configuration.resolv_conf.clone();
    let measures = node.telemetry.measures.clone();
    let prepared = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        cgroups
            .create(&for_cgroup)
            .map_err(|error| error.to_string())?;
        cgroups_changed(&measures, "create", began.elapsed());
        std::fs::create_dir_all(&log_dir).map_err(|error| error.to_string())?;
        users::ensure(&pods_root, &for_cgroup).map_err(|error| error.to_string())?;
        // Absent on a machine without a resolver: then there is nothing to inherit.
        Ok::<String, String>(std::fs::read_to_string(resolver).unwrap_or_default())
    })
    .await
    .map_err(|error| error.to_string())
    .and_then(|result| result);
    let resolv_conf = match prepared {
        Ok(resolv_conf) => resolv_conf,
        Err(error) => {
            let message = format!("unable to ensure pod container exists: {error}");
            node.telemetry
                .events
                .warning(&pod, "FailedCreatePodContainer", &message);
            return Err(message);
        }
    };
    let formed = dns::config(
        &pod,
        &node.settings.cluster_dns,
        &node.settings.cluster_domain,
        &resolv_conf,
    );
    for warning in formed.warnings {
        node.telemetry
            .events
            .warning(&pod, "DNSConfigForming", warning);
    }
    if let Err(why) = hosts::kernel_name(&pod, &node.settings.cluster_domain) {
        let message = format!("Failed to create pod sandbox: {why}");
        node.telemetry
            .events
            .warning(&pod, "FailedCreatePodSandBox", &message);
        return Err(message);
    }
    let runtime_handler = match runtime_handler(&node, &pod).await {
        Ok(handler) => handler,
        Err(error) => {
            let message =
                format!("Failed to create pod sandbox: failed to get sandbox runtime: {error}");
            node.telemetry
                .events
                .warning(&pod, "FailedCreatePodSandBox", &message);
            return Err(message);
        }
    };
    let request = v1::RunPodSandboxRequest {
        config: Some(sandbox_config(&node, &pod, attempt, &resolv_conf)),
        runtime_handler: runtime_handler.clone(),
    };
    let measured = SandboxStart::begin(&node.telemetry.measures, &pod, &runtime_handler);
    let run = async {
        let response = node.cri.runtime.clone().run_pod_sandbox(request).await;
        measured.end(response.is_ok());
        let response = response?;
        let id = response.into_inner().pod_sandbox_id;
        let found = observe::sandbox(&node.cri, id).await?;
        found.ok_or_else(|| tonic::Status::not_found("the new sandbox is gone"))
    };
    match run.await {
        Ok(sandbox) => {
            node.telemetry
                .spans
                .record(&uid(&pod), Hop::Node, "RunPodSandbox", wanted, start);
            Ok(sandbox)
        }
        Err(status) => {
            let message = format!("Failed to create pod sandbox: {}", rpc_error(&status));
            node.telemetry
                .events
                .warning(&pod, "FailedCreatePodSandBox", &message);
            Err(message)
        }
    }
}

/// The handler that the pod's RuntimeClass names, empty for the default.
async fn runtime_handler(node: &PodServices, pod: &Pod) -> Result<String, String> {
    let class = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.runtime_class_name.as_deref())
        .filter(|name| !name.is_empty());
    let Some(class) = class else {
        return Ok(String::new());
    };
    let api: Api<RuntimeClass> = Api::all(node.client.clone());
    match api.get(class).await {
        Ok(found) => Ok(found.handler),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => Err(format!("failed to lookup RuntimeClass {class}: {error}")),
    }
}

pub async fn ensure_image(
    node: Arc<PodServices>,
    pod: Arc<Pod>,
    container: Container,
    held: HeldObjects,
    wanted: i64,
) -> Result<Image, images::PullFailure> {
    let start = node.telemetry.spans.now();
    let secrets = pull_secrets(&node, &pod, &held).await;
    let request = images::Request {
        pod: &pod,
        container: &container,
        secrets: &secrets,
    };
    let mut result = node.images.ensure(request).await;
    if let Ok(image) = &mut result {
        match volume_images(&node, &pod, &container, &secrets).await {
            Ok(images) => image.volumes = images,
            Err(failure) => result = Err(failure),
        }
    }
    if result.is_ok() {
        let name = format!("EnsureImage {}", container.name);
        node.telemetry
            .spans
            .record(&uid(&pod), Hop::Node, name, wanted, start);
    }
    result
}

/// What one container start needs.
pub struct Start {
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
    /// The pod is to end: nobody waits for a hook any more.
    pub stop: CancellationToken,
}

/// Creates and starts a container and runs its postStart hook.
pub async fn start_container(
    node: Arc<PodServices>,
    mut start: Start,
) -> Result<ContainerRecord, StartFailure> {
    start.mounted.images = std::mem::take(&mut start.image.volumes);
    let (pod, container) = (&start.pod, &start.container);
    let tell = |severity, reason: &str, message: &str| {
        node.telemetry
            .events
            .container(pod, &container.name, severity, reason, message);
    };
    let kind = kind(pod, &container.name);
    node.telemetry
        .measures
        .count(Counter::StartedContainers, &[kind]);
    let fail = |reason: &'static str, message: String, record| {
        node.telemetry
            .measures
            .count(Counter::StartedContainersErrors, &[kind, reason]);
        tell(Severity::Warning, "Failed", &format!("Error: {message}"));
        StartFailure {
            reason,
            message,
            record,
        }
    };
    let began = node.telemetry.spans.now();
    let pod_ips = pod_ips(&node, pod, &start.sandbox);
    let container_config = match container_config(&node, &start, &pod_ips).await {
        Ok(container_config) => container_config,
        Err(message) => return Err(fail("CreateContainerConfigError", message, None)),
    };
    let resolv_conf = tokio::fs::read_to_string(&node.settings.configuration.resolv_conf)
        .await
        .unwrap_or_default();
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: start.sandbox.id.clone(),
        config: Some(container_config),
        sandbox_config: Some(sandbox_config(
            &node,
            pod,
            start.sandbox.attempt,
            &resolv_conf,
        )),
    };
    let id = match node.cri.runtime.clone().create_container(request).await {
        Ok(response) => response.into_inner().container_id,
        Err(status) => {
            return Err(fail(
                "CreateContainerError",
                status.message().to_owned(),
                None,
            ));
        }
    };
    let name = format!("CreateContainer {}", container.name);
    let uid = uid(pod);
    node.telemetry
        .spans
        .record(&uid, Hop::Node, name, start.wanted, began);
    tell(Severity::Normal, "Created", "Container created");

    let began = node.telemetry.spans.now();
    let request = v1::StartContainerRequest {
        container_id: id.clone(),
    };
    let started = node.cri.runtime.clone().start_container(request).await;
    let record = || async {
        let record = observe::container(&node.cri, id.clone(), start.sandbox.id.clone()).await;
        record.ok().flatten()
    };
    if let Err(status) = started {
        let record = record().await;
        return Err(fail(
            "RunContainerError",
            status.message().to_owned(),
            record,
        ));
    }
    let name = format!("StartContainer {}", container.name);
    node.telemetry
        .spans
        .record(&uid, Hop::Node, name, began, began);
    tell(Severity::Normal, "Started", "Container started");

    let hook = container
        .lifecycle
        .as_ref()
        .and_then(|lifecycle| lifecycle.post_start.as_ref());
    if let Some(hook) = hook {
        let ip = pod_ips.first().cloned().unwrap_or_default();
        let run = lifecycle::run(&node.cri, &node.telemetry, hook, pod, container, &id, &ip);
        let result = tokio::select! {
            result = run => result,
            () = start.stop.cancelled() => Ok(()),
        };
        if let Err(error) = result {
            tracing::info!(pod = uid, container = container.name, %error, "a postStart hook failed");
            tell(
                Severity::Warning,
                "FailedPostStartHook",
                "PostStartHook failed",
            );
            let kill = Kill {
                pod: pod.clone(),
                id: id.clone(),
                sandbox_id: start.sandbox.id.clone(),
                container: container.name.clone(),
                message: "FailedPostStartHook".to_owned(),
                grace: grace(pod, None),
                pod_ip: ip,
                turn: None,
            };
            let record = kill_container(node.clone(), kill).await;
            return Err(StartFailure {
                reason: "PostStartHookError",
                message: error.to_string(),
                record,
            });
        }
    }
    match record().await {
        Some(mut record) => {
            complete_message(&node, pod, &mut record).await;
            Ok(record)
        }
        None => Err(fail(
            "RunContainerError",
            "the container is gone right after its start".to_owned(),
            None,
        )),
    }
}

async fn container_config(
    node: &PodServices,
    start: &Start,
    pod_ips: &[String],
) -> Result<v1::ContainerConfig, String> {
    let (pod, container) = (&start.pod, &start.container);
    let spec = pod.spec.clone().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let (services, kubernetes) = node.objects.services(namespace).await;
    let service_variables = service_env::variables(
        services.iter().map(AsRef::as_ref),
        kubernetes.as_deref(),
        spec.enable_service_links != Some(false),
    );
    let mut referenced = referenced(&start.held, container).await?;
    referenced.files = env_files(container, &start.mounted).await;
    let facts = node.settings.facts(pod_ips.to_vec());
    let environment = env::build(pod, container, &facts, &service_variables, &referenced)
        .map_err(|error| error.to_string())?;
    let (host_name, host_domain) = hosts::host_name(pod, &node.settings.cluster_domain);
    let host_file = if spec.host_network == Some(true) {
        Some(
            tokio::fs::read_to_string("/etc/hosts")
                .await
                .unwrap_or_default(),
        )
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
    let asked = container
        .volume_mounts
        .iter()
        .flatten()
        .any(|mount| mount.recursive_read_only.is_some());
    let recursive = asked && supports_recursive_read_only(node, pod).await;
    let mounts = mounts::prepare(
        &node.volumes,
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
    .await
    .map_err(|error| error.to_string())?;
    let devices =
        volumes::devices::of(container, &start.mounted).map_err(|error| error.to_string())?;
    let parts = config::Parts {
        restart_count: start.restart_count,
        image: &start.image,
        environment,
        mounts,
        devices,
        machine: node
            .settings
            .machine(node.cgroups.limits_swap_of_containers()),
        seccomp_default: node.settings.configuration.seccomp_default,
        target_id: start.target_id.clone(),
    };
    let mut config = config::config(pod, container, parts)
        .map_err(|error: security::Error| error.to_string())?;
    let users = users::namespace(node.volumes.pods_root(), pod);
    if let Some(users) = users.map_err(|error| format!("reading the pod's users: {error}"))? {
        users::apply_to_container(&mut config, &users);
    }
    let limits = config
        .linux
        .as_mut()
        .and_then(|linux| linux.resources.as_mut());
    if let Some(limits) = limits {
        config::enforce_cpu(limits, node.settings.configuration.cpu_quota_period());
    }
    Ok(config)
}

/// By the word of the pod's runtime handler, as the Node has it.
async fn supports_recursive_read_only(node: &PodServices, pod: &Pod) -> bool {
    let handler = runtime_handler(node, pod).await.unwrap_or_default();
    let found = node.node_object.registered();
    let status = found.as_ref().and_then(|found| found.status.as_ref());
    status
        .iter()
        .flat_map(|status| status.runtime_handlers.iter().flatten())
        .find(|known| known.name.as_deref().unwrap_or_default() == handler)
        .and_then(|known| known.features.as_ref())
        .and_then(|features| features.recursive_read_only_mounts)
        .unwrap_or(false)
}

/// The files in volumes that the environment refers to; those of volumes that are not there are
/// left out.
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

/// Fetches the images that the container mounts as volumes.
async fn volume_images(
    node: &PodServices,
    pod: &Pod,
    container: &Container,
    secrets: &[Arc<Secret>],
) -> Result<BTreeMap<String, String>, images::PullFailure> {
    let mut found = BTreeMap::new();
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    for volume in volumes {
        let mounts = container.volume_mounts.iter().flatten();
        let is_mounted = mounts.into_iter().any(|mount| mount.name == volume.name);
        let Some(source) = volume.image.as_ref().filter(|_| is_mounted) else {
            continue;
        };
        let wanted = Container {
            name: container.name.clone(),
            image: source.reference.clone(),
            image_pull_policy: source.pull_policy.clone(),
            ..Container::default()
        };
        let request = images::Request {
            pod,
            container: &wanted,
            secrets,
        };
        let image = node.images.ensure(request).await?;
        found.insert(volume.name.clone(), image.reference);
    }
    Ok(found)
}

async fn pull_secrets(node: &PodServices, pod: &Pod, held: &HeldObjects) -> Vec<Arc<Secret>> {
    let mut secrets: Vec<Arc<Secret>> = Vec::new();
    let mut missing: Vec<&str> = Vec::new();
    let spec = pod.spec.as_ref();
    for reference in spec
        .iter()
        .flat_map(|s| s.image_pull_secrets.iter().flatten())
        .filter(|reference| !reference.name.is_empty())
    {
        let found = match held.secrets.get(&reference.name) {
            Some(held) => held.get().await.flatten(),
            None => None,
        };
        match found {
            Some(secret) => secrets.push(secret),
            None => missing.push(&reference.name),
        }
    }
    if !missing.is_empty() {
        node.telemetry.events.warning(
            pod,
            "FailedToRetrieveImagePullSecret",
            format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            ),
        );
    }
    secrets
}

async fn referenced(held: &HeldObjects, container: &Container) -> Result<env::Referenced, String> {
    let (config_maps, secrets) = env::references(container);
    let mut referenced = env::Referenced::default();
    let not_synced =
        |kind: &str| format!("failed to sync {kind} cache: timed out waiting for the condition");
    for name in config_maps {
        if let Some(held) = held.config_maps.get(&name) {
            let found = held.get().await.ok_or_else(|| not_synced("configmap"))?;
            referenced.config_maps.insert(name, found);
        }
    }
    for name in secrets {
        if let Some(held) = held.secrets.get(&name) {
            let found = held.get().await.ok_or_else(|| not_synced("secret"))?;
            referenced.secrets.insert(name, found);
        }
    }
    Ok(referenced)
}

/// What one container's end needs.
#[derive(Clone)]
pub struct Kill {
    pub pod: Arc<Pod>,
    pub id: String,
    pub sandbox_id: String,
    pub container: String,
    /// The Killing event's message.
    pub message: String,
    /// Seconds.
    pub grace: i64,
    pub pod_ip: String,
    /// Whom it waits for.
    pub turn: Option<Turn>,
}

/// A sidecar ends after those that may still need it.
#[derive(Clone)]
pub struct Turn {
    pub after: BTreeSet<String>,
    /// The containers that run, by name.
    pub alive: watch::Receiver<BTreeSet<String>>,
}

impl Turn {
    async fn come(&mut self) {
        let after = &self.after;
        // An error means that the worker is gone: then there is nobody to wait for.
        let _ = self.alive.wait_for(|alive| alive.is_disjoint(after)).await;
    }
}

/// Ends a container: preStop, SIGTERM with grace, SIGKILL. Returns what is left of it.
pub async fn kill_container(node: Arc<PodServices>, mut kill: Kill) -> Option<ContainerRecord> {
    let pod = &kill.pod;
    let tell = |severity, reason: &str, message: &str| {
        node.telemetry
            .events
            .container(pod, &kill.container, severity, reason, message);
    };
    tell(Severity::Normal, "Killing", &kill.message);
    let began = node.telemetry.spans.now();
    let spec = find_container(pod, &kill.container);
    let hook = spec
        .and_then(|spec| spec.lifecycle.as_ref())
        .and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    let mut grace = kill.grace;
    if let (Some(hook), Some(spec)) = (hook, spec)
        && grace > 0
    {
        let limit = Duration::from_secs(grace as u64);
        let run = lifecycle::run(
            &node.cri,
            &node.telemetry,
            hook,
            pod,
            spec,
            &kill.id,
            &kill.pod_ip,
        );
        match tokio::time::timeout(limit, run).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::info!(container = kill.container, %error, "a preStop hook failed");
                tell(Severity::Warning, "FailedPreStopHook", "PreStopHook failed");
            }
            Err(_) => tracing::info!(container = kill.container, "a preStop hook took too long"),
        }
        grace -= (node.telemetry.spans.now() - began) / 1_000_000;
        let name = format!("preStop {}", kill.container);
        node.telemetry
            .spans
            .record(&uid(pod), Hop::After, name, began, began);
    }
    if let Some(turn) = &mut kill.turn
        && grace > 0
    {
        let began = node.telemetry.spans.now();
        let _ = tokio::time::timeout(Duration::from_secs(grace as u64), turn.come()).await;
        grace -= (node.telemetry.spans.now() - began) / 1_000_000;
    }
    let began = node.telemetry.spans.now();
    // Always long enough to end by itself.
    let grace = grace.max(MINIMUM_GRACE);
    let request = v1::StopContainerRequest {
        container_id: kill.id.clone(),
        timeout: grace,
    };
    let request = cri::with_time(request, Duration::from_secs(grace.cast_unsigned()));
    let stopped = match node.cri.runtime.clone().stop_container(request).await {
        Err(status) if status.code() != tonic::Code::NotFound => {
            tracing::warn!(container = kill.container, %status, "a container could not be stopped");
            tokio::time::sleep(RETRY_PAUSE).await;
            false
        }
        _ => {
            let name = format!("StopContainer {}", kill.container);
            node.telemetry
                .spans
                .record(&uid(pod), Hop::After, name, began, began);
            true
        }
    };
    let mut record = observe::container(&node.cri, kill.id, kill.sandbox_id)
        .await
        .ok()
        .flatten()?;
    if stopped && record.state == ContainerState::Unknown {
        // By the runtime's own word it no longer runs, though it cannot say how it ended.
        record.state = ContainerState::Exited;
        record.exit_code = UNKNOWN_EXIT;
    }
    complete_message(&node, pod, &mut record).await;
    Some(record)
}

async fn memory_usage(node: &PodServices, id: &str) -> Option<u64> {
    let request = v1::ContainerStatsRequest {
        container_id: id.to_owned(),
    };
    let response = node.cri.runtime.clone().container_stats(request).await;
    let memory = response.ok()?.into_inner().stats?.memory?;
    let used = memory.usage_bytes.or(memory.working_set_bytes)?;
    Some(used.value)
}

/// Gives a running container other limits; the pod's cgroup is widened first where it must be.
/// `present`: its memory limit as it is.
pub async fn resize_container(
    node: Arc<PodServices>,
    pod: Arc<Pod>,
    id: String,
    container: Container,
    present: Option<i64>,
) -> Result<(), String> {
    let wanted = resources::effective_limit(&pod, &container, "memory").and_then(resources::whole);
    if wanted.is_some_and(|wanted| present.is_none_or(|present| wanted < present)) {
        let usage = memory_usage(&node, &id).await;
        if let Some(why) = resize::refuses_decrease(&container.name, wanted, present, usage) {
            return Err(why);
        }
    }
    let (cgroups, for_cgroup) = (node.cgroups.clone(), pod.clone());
    let began = Instant::now();
    tokio::task::spawn_blocking(move || cgroups.widen(&for_cgroup))
        .await
        .map_err(|error| error.to_string())?;
    cgroups_changed(&node.telemetry.measures, "update", began.elapsed());
    let mut limits = config::limits(
        &pod,
        &container,
        &node
            .settings
            .machine(node.cgroups.limits_swap_of_containers()),
    );
    config::enforce_cpu(&mut limits, node.settings.configuration.cpu_quota_period());
    // Unset means unchanged here; no limit has to be said.
    if limits.cpu_quota == 0 {
        limits.cpu_quota = -1;
    }
    let request = v1::UpdateContainerResourcesRequest {
        container_id: id,
        linux: Some(limits),
        ..Default::default()
    };
    let mut runtime = node.cri.runtime.clone();
    match runtime.update_container_resources(request).await {
        Ok(_) => Ok(()),
        Err(status) => Err(rpc_error(&status)),
    }
}

/// The seconds a container gets to end by itself.
pub fn grace(pod: &Pod, probe: Option<i64>) -> i64 {
    pod.metadata
        .deletion_grace_period_seconds
        .filter(|_| pod.metadata.deletion_timestamp.is_some())
        .or(probe)
        .or_else(|| pod.spec.as_ref()?.termination_grace_period_seconds)
        .unwrap_or(30)
        .max(0)
}

pub async fn stop_sandbox(node: Arc<PodServices>, uid: String, id: String) -> bool {
    let began = node.telemetry.spans.now();
    let request = v1::StopPodSandboxRequest { pod_sandbox_id: id };
    match node.cri.runtime.clone().stop_pod_sandbox(request).await {
        Err(status) if status.code() != tonic::Code::NotFound => {
            tracing::warn!(%status, "a sandbox could not be stopped");
            tokio::time::sleep(RETRY_PAUSE).await;
            false
        }
        _ => {
            node.telemetry
                .spans
                .record(&uid, Hop::After, "StopPodSandbox", began, began);
            true
        }
    }
}

/// Gives back what the volumes of a pod that has ended hold.
pub async fn release_volumes(node: &PodServices, uid: &str) -> bool {
    match node.volumes.release(uid).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(pod = uid, %error, "an ended pod's volumes could not be removed");
            tokio::time::sleep(RETRY_PAUSE).await;
            false
        }
    }
}

/// The last act: final status, everything removed from the node, then the object itself.
/// Tried until it is done.
pub async fn finish(
    node: Arc<PodServices>,
    pod: Arc<Pod>,
    sandboxes: Vec<String>,
    last: Option<(PodStatus, serde_json::Value)>,
) {
    let uid = uid(&pod);
    let clean = async {
        for id in sandboxes {
            while !runtime::remove_sandbox(&node.cri, id.clone()).await {}
        }
        while let Err(error) = node.volumes.tear_down(&uid).await {
            tracing::warn!(pod = uid, %error, "a pod's volumes could not be removed");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        let began = Instant::now();
        node.cgroups.remove(&uid).await;
        cgroups_changed(&node.telemetry.measures, "destroy", began.elapsed());
        let _ = tokio::fs::remove_dir_all(node.settings.pod_log_dir(&pod)).await;
    };
    let api_has_it = last.is_some();
    let tell = async {
        if let Some((status, before)) = last {
            let patch = status_writer::patch(&uid, &before, &status_writer::to_value(&status));
            loop {
                match status_writer::write(&node.client, &pod, patch.clone()).await {
                    Ok(_) | Err(status_writer::Error::Gone) => break,
                    Err(error) => {
                        tracing::warn!(pod = uid, error = %source(&error), "the last status was not written");
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                }
            }
        }
    };
    tokio::join!(clean, tell);
    if !api_has_it {
        return;
    }
    let began = node.telemetry.spans.now();
    let api: Api<Pod> = Api::namespaced(
        node.client.clone(),
        pod.metadata.namespace.as_deref().unwrap_or_default(),
    );
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    loop {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match api.delete(name, &parameters).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => break,
            Err(error) => {
                tracing::warn!(pod = uid, %error, "a pod could not be deleted");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
    node.telemetry
        .spans
        .record(&uid, Hop::After, "delete", began, began);
}

pub fn pod_ips(node: &PodServices, pod: &Pod, sandbox: &Sandbox) -> Vec<String> {
    let host_network = pod
        .spec
        .as_ref()
        .is_some_and(|s| s.host_network == Some(true));
    if host_network {
        vec![node.settings.host_ip.clone()]
    } else {
        sandbox.ips.clone()
    }
}

/// What `/metrics` calls a container of this role.
pub fn kind(pod: &Pod, container: &str) -> &'static str {
    match pod_spec::role(pod, container) {
        pod_spec::Role::Init => "init_container",
        pod_spec::Role::App => "container",
        pod_spec::Role::Ephemeral => "ephemeral_container",
    }
}

async fn complete_message(node: &PodServices, pod: &Pod, record: &mut ContainerRecord) {
    if record.state != ContainerState::Exited {
        return;
    }
    let Some(container) = pod_spec::find(pod, &record.name) else {
        return;
    };
    let container = &container;
    let file =
        mounts::termination_message_file(&node.volumes, pod, container, record.restart_count);
    let log = std::path::Path::new(&record.log_path);
    let text = termination_message::read(container, &file, log, record.exit_code).await;
    if !text.is_empty() {
        record.message = if record.message.is_empty() {
            text
        } else {
            format!("{}: {text}", record.message)
        };
    }
}

fn source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
