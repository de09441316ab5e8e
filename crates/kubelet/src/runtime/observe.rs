//! Reads the state of pods over CRI. Everything the kubelet must know after a restart is found
//! here again: sandboxes and containers by label, restart counts by annotation.

use std::collections::{BTreeMap, HashMap};

use cri::v1;

use super::{
    ContainerRecord, ContainerState, Observed, ReportedContainer, ReportedSandbox, Sandbox, User,
    label,
};

/// The pod of a sandbox: enough to end a pod that the API no longer has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

/// Everything that the runtime has of the pod with this UID.
pub async fn pod(cri: &cri::Client, uid: &str) -> Result<Observed, tonic::Status> {
    let selector = HashMap::from([(label::POD_UID.to_owned(), uid.to_owned())]);
    let sandboxes = v1::ListPodSandboxRequest {
        filter: Some(v1::PodSandboxFilter {
            label_selector: selector.clone(),
            ..Default::default()
        }),
    };
    let containers = v1::ListContainersRequest {
        filter: Some(v1::ContainerFilter {
            label_selector: selector,
            ..Default::default()
        }),
    };
    let (mut runtime, mut other) = (cri.runtime.clone(), cri.runtime.clone());
    let (sandboxes, containers) = tokio::try_join!(
        runtime.list_pod_sandbox(sandboxes),
        other.list_containers(containers)
    )?;
    let sandboxes = futures::future::try_join_all(
        sandboxes
            .into_inner()
            .items
            .into_iter()
            .map(|item| sandbox(cri, item.id)),
    );
    let containers = futures::future::try_join_all(
        containers
            .into_inner()
            .containers
            .into_iter()
            .map(|item| container(cri, item.id, item.pod_sandbox_id)),
    );
    let (sandboxes, containers) = tokio::try_join!(sandboxes, containers)?;
    let mut observed = Observed {
        sandboxes: sandboxes.into_iter().flatten().collect(),
        containers: containers.into_iter().flatten().collect(),
    };
    observed.sort();
    Ok(observed)
}

/// One sandbox, `None` when it is gone.
pub async fn sandbox(cri: &cri::Client, id: String) -> Result<Option<Sandbox>, tonic::Status> {
    let request = v1::PodSandboxStatusRequest {
        pod_sandbox_id: id,
        verbose: false,
    };
    let response = cri.runtime.clone().pod_sandbox_status(request).await;
    Ok(present(response)?.and_then(|response| response.status.map(sandbox_from)))
}

/// One container, `None` when it is gone.
pub async fn container(
    cri: &cri::Client,
    id: String,
    sandbox_id: String,
) -> Result<Option<ContainerRecord>, tonic::Status> {
    let request = v1::ContainerStatusRequest {
        container_id: id,
        verbose: false,
    };
    let response = cri.runtime.clone().container_status(request).await;
    Ok(present(response)?.and_then(|response| {
        response
            .status
            .map(|status| container_from(status, sandbox_id))
    }))
}

/// The owners of all sandboxes, to find pods that the API no longer knows.
pub async fn owners(cri: &cri::Client) -> Result<Vec<Owner>, tonic::Status> {
    let response = cri
        .runtime
        .clone()
        .list_pod_sandbox(v1::ListPodSandboxRequest { filter: None })
        .await?;
    let owners: BTreeMap<String, Owner> = response
        .into_inner()
        .items
        .into_iter()
        .filter(|item| item.labels.contains_key(label::POD_UID))
        .filter_map(|item| item.metadata)
        .map(|metadata| {
            let owner = Owner {
                uid: metadata.uid.clone(),
                namespace: metadata.namespace,
                name: metadata.name,
            };
            (metadata.uid, owner)
        })
        .collect();
    Ok(owners.into_values().collect())
}

/// The state that an event describes; `None` if it only says that something happened.
pub fn reported(
    sandbox: &v1::PodSandboxStatus,
    containers: &[v1::ContainerStatus],
) -> Option<ReportedSandbox> {
    (!sandbox.id.is_empty()).then(|| ReportedSandbox {
        sandbox: sandbox.id.clone(),
        ready: sandbox.state == v1::PodSandboxState::SandboxReady as i32,
        containers: containers
            .iter()
            .map(|status| ReportedContainer {
                id: status.id.clone(),
                name: name_of(status),
                state: state_of(status),
            })
            .collect(),
    })
}

fn name_of(status: &v1::ContainerStatus) -> String {
    let named = status.labels.get(label::CONTAINER_NAME).cloned();
    named
        .or_else(|| Some(status.metadata.as_ref()?.name.clone()))
        .unwrap_or_default()
}

fn state_of(status: &v1::ContainerStatus) -> ContainerState {
    match v1::ContainerState::try_from(status.state) {
        Ok(v1::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(v1::ContainerState::ContainerRunning) => ContainerState::Running,
        Ok(v1::ContainerState::ContainerExited) => ContainerState::Exited,
        _ => ContainerState::Unknown,
    }
}

fn present<T>(
    response: Result<tonic::Response<T>, tonic::Status>,
) -> Result<Option<T>, tonic::Status> {
    match response {
        Ok(response) => Ok(Some(response.into_inner())),
        Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

fn sandbox_from(status: v1::PodSandboxStatus) -> Sandbox {
    let ips = status.network.map(|network| {
        std::iter::once(network.ip)
            .chain(network.additional_ips.into_iter().map(|ip| ip.ip))
            .filter(|ip| !ip.is_empty())
            .collect()
    });
    Sandbox {
        id: status.id,
        ready: status.state == v1::PodSandboxState::SandboxReady as i32,
        attempt: status.metadata.map_or(0, |metadata| metadata.attempt),
        created_at: status.created_at,
        ips: ips.unwrap_or_default(),
    }
}

fn container_from(status: v1::ContainerStatus, sandbox_id: String) -> ContainerRecord {
    let (name, state) = (name_of(&status), state_of(&status));
    let metadata = status.metadata.unwrap_or_default();
    let restart_count = status
        .annotations
        .get(label::RESTART_COUNT)
        .and_then(|count| count.parse().ok())
        .unwrap_or(metadata.attempt as i32);
    ContainerRecord {
        id: status.id,
        name,
        sandbox_id,
        restart_count,
        state,
        created_at: status.created_at,
        started_at: status.started_at,
        finished_at: status.finished_at,
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        image: status.image.map_or_else(String::new, |image| {
            if image.user_specified_image.is_empty() {
                image.image
            } else {
                image.user_specified_image
            }
        }),
        image_ref: status.image_ref,
        hash: status
            .annotations
            .get(label::HASH)
            .cloned()
            .unwrap_or_default(),
        log_path: status.log_path,
        user: status.user.and_then(|user| user.linux).map(|user| User {
            uid: user.uid,
            gid: user.gid,
            groups: user.supplemental_groups,
        }),
        recursively_read_only: status
            .mounts
            .into_iter()
            .filter(|mount| mount.recursive_read_only)
            .map(|mount| mount.container_path)
            .collect(),
    }
}
