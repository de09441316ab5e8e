//! CRI's views of the records.

use cri::v1::{
    Container, ContainerMetadata, ContainerResources, ContainerState, ContainerStatus,
    ContainerUser, ImageSpec, LinuxContainerUser, LinuxPodSandboxStatus, Namespace, PodIp,
    PodSandbox, PodSandboxNetworkStatus, PodSandboxState, PodSandboxStatus,
};

use crate::records::{ContainerRecord, SandboxPhase, SandboxRecord};

pub fn sandbox_state(record: &SandboxRecord) -> PodSandboxState {
    match record.phase {
        SandboxPhase::Ready => PodSandboxState::SandboxReady,
        SandboxPhase::Creating | SandboxPhase::Stopped => PodSandboxState::SandboxNotready,
    }
}

pub fn sandbox_status(record: &SandboxRecord) -> PodSandboxStatus {
    let mut addresses = record.addresses.iter().map(ToString::to_string);
    let options = record
        .config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref())
        .and_then(|security| security.namespace_options.clone());
    PodSandboxStatus {
        id: record.id.clone(),
        metadata: record.config.metadata.clone(),
        state: sandbox_state(record).into(),
        created_at: record.created_at,
        network: Some(PodSandboxNetworkStatus {
            ip: addresses.next().unwrap_or_default(),
            additional_ips: addresses.map(|ip| PodIp { ip }).collect(),
        }),
        linux: Some(LinuxPodSandboxStatus {
            namespaces: Some(Namespace { options }),
        }),
        labels: record.config.labels.clone(),
        annotations: record.config.annotations.clone(),
        runtime_handler: record.runtime_handler.clone(),
    }
}

pub fn sandbox_item(record: &SandboxRecord) -> PodSandbox {
    PodSandbox {
        id: record.id.clone(),
        metadata: record.config.metadata.clone(),
        state: sandbox_state(record).into(),
        created_at: record.created_at,
        labels: record.config.labels.clone(),
        annotations: record.config.annotations.clone(),
        runtime_handler: record.runtime_handler.clone(),
    }
}

pub fn container_state(record: &ContainerRecord) -> ContainerState {
    match (&record.exit, record.started_at) {
        (Some(_), _) => ContainerState::ContainerExited,
        (None, 0) => ContainerState::ContainerCreated,
        (None, _) => ContainerState::ContainerRunning,
    }
}

fn metadata(record: &ContainerRecord) -> ContainerMetadata {
    record.config.metadata.clone().unwrap_or_default()
}

fn image_spec(record: &ContainerRecord) -> ImageSpec {
    record.config.image.clone().unwrap_or_default()
}

pub fn container_item(record: &ContainerRecord) -> Container {
    Container {
        id: record.id.clone(),
        pod_sandbox_id: record.sandbox.clone(),
        metadata: Some(metadata(record)),
        image: Some(image_spec(record)),
        image_ref: record.image_ref.clone(),
        image_id: record.image_id.clone(),
        state: container_state(record).into(),
        created_at: record.created_at,
        labels: record.config.labels.clone(),
        annotations: record.config.annotations.clone(),
    }
}

pub fn container_status(record: &ContainerRecord) -> ContainerStatus {
    let exit = record.exit.clone();
    let linux = record.config.linux.as_ref();
    ContainerStatus {
        id: record.id.clone(),
        metadata: Some(metadata(record)),
        state: container_state(record).into(),
        created_at: record.created_at,
        started_at: record.started_at,
        finished_at: exit.as_ref().map_or(0, |exit| exit.finished_at),
        exit_code: exit.as_ref().map_or(0, |exit| exit.code),
        reason: exit
            .as_ref()
            .map_or(String::new(), |exit| exit.reason.clone()),
        message: exit.map_or(String::new(), |exit| exit.message),
        image: Some(image_spec(record)),
        image_ref: record.image_ref.clone(),
        image_id: record.image_id.clone(),
        labels: record.config.labels.clone(),
        annotations: record.config.annotations.clone(),
        mounts: record.config.mounts.clone(),
        log_path: record
            .log
            .as_ref()
            .map_or(String::new(), |path| path.to_string_lossy().into_owned()),
        resources: linux
            .and_then(|linux| linux.resources.clone())
            .map(|resources| ContainerResources {
                linux: Some(resources),
                ..Default::default()
            }),
        user: Some(ContainerUser {
            linux: Some(LinuxContainerUser {
                uid: record.uid.into(),
                gid: record.gid.into(),
                supplemental_groups: record.groups.iter().map(|gid| i64::from(*gid)).collect(),
            }),
        }),
        stop_signal: record.config.stop_signal,
    }
}
