//! Registers the Node object and keeps its status current: written when it changes, and every
//! five minutes in any case.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use client::retry;
use cri::v1;
use environment::Environment;
use k8s_openapi::{
    api::core::v1::{
        ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints,
        NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus,
        NodeSwapStatus, NodeSystemInfo,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use tokio_util::sync::CancellationToken;

use super::transitions::{self, NodeEvent};
use crate::{
    node_object::NodeObject, node_pressure::NodePressure, node_settings::NodeSettings,
    shutdown_state::ShutdownState, telemetry::Telemetry,
};

/// While the node is not ready it is looked at often: pods wait for it.
const CHECK_UNREADY: Duration = Duration::from_millis(50);
/// How long the runtime may take to report its status. Upstream calls it down after the same time.
const RUNTIME_ANSWERS: Duration = Duration::from_secs(30);
/// The features that the node declares to schedulers and API servers: upstream's features that are on
/// by default and that this kubelet has.
const DECLARED_FEATURES: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];
const KUBELET_VERSION: &str = "v1.36.4";

/// The part of the Node object that does not change while the kubelet runs.
pub struct Identity {
    pub pod_cidr: String,
    pub labels: BTreeMap<String, String>,
    pub kubelet_port: u16,
    pub runtime_version: String,
}

/// The sources of the Node object and its status.
pub struct Registration {
    pub identity: Identity,
    pub settings: Arc<NodeSettings>,
    pub telemetry: Telemetry,
    pub environment: Environment,
    pub client: kube::Client,
    pub cri: cri::Client,
    pub node_object: NodeObject,
    pub pressure: Arc<NodePressure>,
    pub shutdown: Arc<ShutdownState>,
}

/// Creates or adopts the Node object. Returns it as the server has it.
pub async fn register(registration: &Registration) -> kube::Result<Node> {
    let api: Api<Node> = Api::all(registration.client.clone());
    if !registration.settings.configuration.register_node {
        // Another program creates it, and we keep it current.
        return api.get(&registration.settings.node_name).await;
    }
    let mut status = self::status(registration, None).await;
    let node = Node {
        status: Some(status.clone()),
        ..initial(registration)
    };
    let present = match api.create(&PostParams::default(), &node).await {
        Ok(created) => {
            report_changes(registration, None, &status);
            created
        }
        Err(kube::Error::Api(refused)) if refused.code == 409 => {
            let patch = serde_json::json!({"metadata": {"labels": node.metadata.labels}});
            let parameters = PatchParams::default();
            let present = api
                .patch(
                    &registration.settings.node_name,
                    &parameters,
                    &Patch::Merge(patch),
                )
                .await?;
            // What has not changed keeps its times.
            status = self::status(registration, present.status.as_ref()).await;
            report_changes(registration, present.status.as_ref(), &status);
            present
        }
        Err(error) => return Err(error),
    };
    let has_status = present.status.as_ref().is_some_and(|present| {
        ready_of(present) == ready_of(&status) && present.capacity == status.capacity
    });
    if has_status {
        return Ok(present);
    }
    write(&api, registration, &status).await
}

/// The Node object as it registers, but for its status.
pub fn initial(registration: &Registration) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(registration.settings.node_name.clone()),
            labels: Some(labels(registration)),
            annotations: Some(BTreeMap::from([(
                "volumes.kubernetes.io/controller-managed-attach-detach".to_owned(),
                "true".to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(registration.settings.configuration.provider_id.clone())
                .filter(|provider_id| !provider_id.is_empty()),
            pod_cidr: Some(registration.identity.pod_cidr.clone()).filter(|cidr| !cidr.is_empty()),
            pod_cidrs: Some(vec![registration.identity.pod_cidr.clone()])
                .filter(|_| !registration.identity.pod_cidr.is_empty()),
            taints: Some(
                registration
                    .settings
                    .configuration
                    .register_with_taints
                    .clone(),
            )
            .filter(|taints| !taints.is_empty()),
            ..NodeSpec::default()
        }),
        status: None,
    }
}

/// Keeps the status current until `shutdown`.
pub async fn run(registration: Arc<Registration>, registered: Node, shutdown: CancellationToken) {
    let api: Api<Node> = Api::all(registration.client.clone());
    let mut written = registered.status;
    let mut reported = registration.environment.now_micros();
    let check = registration
        .settings
        .configuration
        .status_update_frequency();
    let report = registration
        .settings
        .configuration
        .status_report_frequency()
        .as_micros() as i64;
    let mut was_cordoned = registration.node_object.is_cordoned();
    loop {
        let pause = match &written {
            // A node that shuts down is not waited for.
            _ if registration.shutdown.now() => check,
            Some(status) if ready_of(status) => check,
            _ => CHECK_UNREADY,
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = registration.shutdown.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
        let cordoned = registration.node_object.is_cordoned();
        if cordoned != was_cordoned {
            was_cordoned = cordoned;
            record(
                &registration,
                transitions::cordon(&registration.settings.node_name, cordoned),
            );
        }
        let new = status(&registration, written.as_ref()).await;
        let now = registration.environment.now_micros();
        let changed = written
            .as_ref()
            .is_none_or(|old| without_times(old) != without_times(&new));
        if !changed && (0..report).contains(&(now - reported)) {
            continue;
        }
        match write(&api, &registration, &new).await {
            Ok(_) => {
                report_changes(&registration, written.as_ref(), &new);
                written = Some(new);
                reported = now;
            }
            Err(kube::Error::Api(refused)) if refused.code == 404 => {
                // The Node object was deleted, but the node still runs: it registers again.
                match register(&registration).await {
                    Ok(node) => written = node.status,
                    Err(error) => tracing::warn!(
                        "the node was not registered again: {}",
                        retry::sentence(&error)
                    ),
                }
            }
            Err(error) => tracing::warn!(
                "the node's status was not written: {}",
                retry::sentence(&error)
            ),
        }
    }
}

/// Events about what has changed.
fn report_changes(registration: &Registration, before: Option<&NodeStatus>, now: &NodeStatus) {
    for event in transitions::between(&registration.settings.node_name, before, now) {
        record(registration, event);
    }
}

fn record(registration: &Registration, event: NodeEvent) {
    registration.telemetry.events.node(
        &registration.settings.node_name,
        event.severity,
        event.reason,
        event.message,
    );
}

async fn write(
    api: &Api<Node>,
    registration: &Registration,
    status: &NodeStatus,
) -> kube::Result<Node> {
    let patch = serde_json::json!({"status": status});
    let parameters = PatchParams::default();
    api.patch_status(
        &registration.settings.node_name,
        &parameters,
        &Patch::Strategic(patch),
    )
    .await
}

async fn status(registration: &Registration, before: Option<&NodeStatus>) -> NodeStatus {
    let (mut runtime, mut images) = (
        registration.cri.runtime.clone(),
        registration.cri.images.clone(),
    );
    let (health, images) = tokio::join!(
        answer(runtime.status(v1::StatusRequest { verbose: false })),
        answer(images.list_images(v1::ListImagesRequest { filter: None }))
    );
    let (mut features, mut handlers) = (None, None);
    let mut problems = match health {
        Ok(response) => {
            let response = response.into_inner();
            features = response.features.map(|features| NodeFeatures {
                supplemental_groups_policy: Some(features.supplemental_groups_policy),
            });
            handlers = Some(runtime_handlers(response.runtime_handlers));
            problems(&response.status.unwrap_or_default())
        }
        Err(problem) => vec![problem],
    };
    if registration.shutdown.now() {
        problems.push("node is shutting down".to_owned());
    }
    let now = registration.environment.now();
    let images = images.map(|response| response.into_inner().images);
    NodeStatus {
        capacity: Some(registration.settings.capacity.quantities()),
        allocatable: Some(registration.settings.capacity.allocatable_quantities()),
        conditions: Some(conditions(
            &problems,
            &registration.pressure.now(),
            before,
            now,
        )),
        addresses: Some(vec![
            address("InternalIP", &registration.settings.host_ip),
            address("Hostname", &registration.settings.node_name),
        ]),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: registration.identity.kubelet_port.into(),
            }),
        }),
        images: Some(image_list(
            images.unwrap_or_default(),
            registration.settings.configuration.node_status_max_images,
        )),
        declared_features: Some(DECLARED_FEATURES.map(str::to_owned).to_vec()),
        node_info: Some(system_info(registration)),
        features,
        runtime_handlers: handlers.filter(|handlers| !handlers.is_empty()),
        ..NodeStatus::default()
    }
}

/// The answer of the runtime, or what is wrong with it. The node becomes unready long before a
/// runtime that hangs has used up the time of an ordinary call.
async fn answer<T>(
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<tonic::Response<T>, String> {
    match tokio::time::timeout(RUNTIME_ANSWERS, call).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(status)) => Err(format!(
            "container runtime status check failed: {}",
            status.message()
        )),
        Err(_) => Err("container runtime is down".to_owned()),
    }
}

fn runtime_handlers(handlers: Vec<v1::RuntimeHandler>) -> Vec<NodeRuntimeHandler> {
    handlers
        .into_iter()
        .map(|handler| NodeRuntimeHandler {
            name: Some(handler.name),
            features: handler.features.map(|features| NodeRuntimeHandlerFeatures {
                recursive_read_only_mounts: Some(features.recursive_read_only_mounts),
                user_namespaces: Some(features.user_namespaces),
            }),
        })
        .collect()
}

fn problems(status: &v1::RuntimeStatus) -> Vec<String> {
    ["RuntimeReady", "NetworkReady"]
        .into_iter()
        .filter_map(|type_| {
            let part = if type_ == "RuntimeReady" {
                "container runtime not ready"
            } else {
                "container runtime network not ready"
            };
            let found = status
                .conditions
                .iter()
                .find(|condition| condition.r#type == type_);
            match found {
                Some(condition) if condition.status => None,
                Some(condition) => Some(format!(
                    "{part}: {type_}=false reason:{} message:{}",
                    condition.reason, condition.message
                )),
                None => Some(format!("{part}: {type_}=false reason:Unknown message:")),
            }
        })
        .collect()
}

fn conditions(
    problems: &[String],
    pressures: &[&str],
    before: Option<&NodeStatus>,
    now: Timestamp,
) -> Vec<NodeCondition> {
    let not_ready = |message| ("Ready", "False", "KubeletNotReady", message);
    let ready = match problems {
        [] => (
            "Ready",
            "True",
            "KubeletReady",
            "kubelet is posting ready status".to_owned(),
        ),
        [problem] => not_ready(problem.clone()),
        several => not_ready(format!("[{}]", several.join(", "))),
    };
    let pressure = |type_, no: (&'static str, &str), yes: (&'static str, &str)| {
        let (status, (reason, message)) = if pressures.contains(&type_) {
            ("True", yes)
        } else {
            ("False", no)
        };
        (type_, status, reason, message.to_owned())
    };
    let all = [
        pressure(
            "MemoryPressure",
            (
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
            (
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
            ),
        ),
        pressure(
            "DiskPressure",
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ),
        pressure(
            "PIDPressure",
            (
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
            ),
            (
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
            ),
        ),
        ready,
    ];
    let old = before.and_then(|status| status.conditions.as_deref());
    all.into_iter()
        .map(|(type_, status, reason, message)| {
            let last_transition_time = old
                .unwrap_or_default()
                .iter()
                .find(|condition| condition.type_ == type_ && condition.status == status)
                .and_then(|condition| condition.last_transition_time.clone())
                .unwrap_or(Time(now));
            NodeCondition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message),
                last_heartbeat_time: Some(Time(now)),
                last_transition_time: Some(last_transition_time),
            }
        })
        .collect()
}

/// The largest images; `most` is negative for all of them.
fn image_list(mut images: Vec<v1::Image>, most: i64) -> Vec<ContainerImage> {
    images.sort_by(|a, b| (b.size, &a.id).cmp(&(a.size, &b.id)));
    images
        .into_iter()
        .take(usize::try_from(most).unwrap_or(usize::MAX))
        .map(|image| ContainerImage {
            names: Some(
                image
                    .repo_digests
                    .into_iter()
                    .chain(image.repo_tags)
                    .collect(),
            ),
            size_bytes: Some(image.size as i64),
        })
        .collect()
}

fn labels(registration: &Registration) -> BTreeMap<String, String> {
    let architecture = architecture();
    let mut labels = BTreeMap::from(
        [
            (
                "kubernetes.io/hostname",
                registration.settings.node_name.as_str(),
            ),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", architecture),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", architecture),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    labels.extend(registration.identity.labels.clone());
    labels
}

fn system_info(registration: &Registration) -> NodeSystemInfo {
    let read = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().to_owned()
    };
    let os_image = read("/etc/os-release")
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map(|name| name.trim_matches('"').to_owned())
        .unwrap_or_else(|| "Linux".to_owned());
    let machine_id = read("/etc/machine-id");
    let system_uuid = match read("/sys/class/dmi/id/product_uuid") {
        uuid if uuid.is_empty() => machine_id.clone(),
        uuid => uuid.to_lowercase(),
    };
    NodeSystemInfo {
        machine_id,
        system_uuid,
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        kernel_version: read("/proc/sys/kernel/osrelease"),
        os_image,
        container_runtime_version: format!(
            "{}://{}",
            registration.settings.runtime_name, registration.identity.runtime_version
        ),
        kubelet_version: KUBELET_VERSION.to_owned(),
        kube_proxy_version: String::new(),
        operating_system: "linux".to_owned(),
        architecture: architecture().to_owned(),
        swap: swap_capacity(&read("/proc/meminfo")).map(|capacity| NodeSwapStatus {
            capacity: Some(capacity),
        }),
    }
}

/// `None` on a machine without swap.
fn swap_capacity(meminfo: &str) -> Option<i64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("SwapTotal:"))?;
    let kilobytes: i64 = line.split_whitespace().next()?.parse().ok()?;
    (kilobytes > 0).then_some(kilobytes * 1024)
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress {
        type_: type_.to_owned(),
        address: address.to_owned(),
    }
}

fn ready_of(status: &NodeStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn without_times(status: &NodeStatus) -> NodeStatus {
    let mut status = status.clone();
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_heartbeat_time = None;
        condition.last_transition_time = None;
    }
    NodeStatus {
        volumes_attached: None,
        volumes_in_use: None,
        ..status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_without_network_makes_the_node_unready() {
        let condition = |type_: &str, status, reason: &str| v1::RuntimeCondition {
            r#type: type_.to_owned(),
            status,
            reason: reason.to_owned(),
            message: "m".to_owned(),
        };
        let good = v1::RuntimeStatus {
            conditions: vec![
                condition("RuntimeReady", true, ""),
                condition("NetworkReady", true, ""),
            ],
        };
        assert!(problems(&good).is_empty());
        let bad = v1::RuntimeStatus {
            conditions: vec![
                condition("RuntimeReady", true, ""),
                condition("NetworkReady", false, "NetworkPluginNotReady"),
            ],
        };
        assert_eq!(
            problems(&bad),
            [
                "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:m"
            ]
        );
        let status = conditions(
            &problems(&bad),
            &["DiskPressure"],
            None,
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(status[3].status, "False");
        assert_eq!(status[0].status, "False");
        assert_eq!(status[1].status, "True");
        assert_eq!(status[1].reason.as_deref(), Some("KubeletHasDiskPressure"));
    }
}
