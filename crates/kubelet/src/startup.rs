//! The kubelet waits before it takes pods: for a runtime that answers, a machine that can be read, and
//! an API server that accepts the node.

use std::{path::Path, time::Duration};

use client::retry;
use cri::v1;
use k8s_openapi::api::core::v1::Node;
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    capacity::Capacity,
    configuration::{CgroupDriver, Configuration},
    node::registration::{self, Registration},
};

const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_millis(500);
/// As upstream.
const LAST_REGISTRATION_RETRY: Duration = Duration::from_secs(7);

/// Waits until the runtime answers; `None` if the kubelet is stopped before.
pub async fn wait_for_runtime(
    cri: &cri::Client,
    shutdown: &CancellationToken,
) -> Option<v1::VersionResponse> {
    let mut pause = FIRST_RETRY;
    loop {
        let request = v1::VersionRequest {
            version: "v1".to_owned(),
        };
        match cri.runtime.clone().version(request).await {
            Ok(response) => return Some(response.into_inner()),
            Err(status) => tracing::debug!(%status, "the runtime does not answer yet"),
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_RETRY),
        }
    }
}

/// Waits until the machine can be read; `None` if the kubelet is stopped before.
pub async fn read_capacity(
    root: &Path,
    configuration: &Configuration,
    shutdown: &CancellationToken,
) -> Option<Capacity> {
    let mut pause = FIRST_RETRY;
    let mut is_reported = false;
    loop {
        match Capacity::read(root, configuration) {
            Ok(capacity) => return Some(capacity),
            Err(error) if !is_reported => {
                is_reported = true;
                tracing::warn!(%error, "the node is not registered before its memory, CPUs and disk can be read");
            }
            Err(_) => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_RETRY),
        }
    }
}

/// The cgroup driver that the runtime reports; the configured one if the runtime reports none.
pub async fn cgroup_driver(cri: &cri::Client, configuration: &Configuration) -> CgroupDriver {
    let answer = cri
        .runtime
        .clone()
        .runtime_config(v1::RuntimeConfigRequest {})
        .await;
    match answer.map(|answer| answer.into_inner().linux) {
        Ok(Some(linux)) => match linux.cgroup_driver() {
            v1::CgroupDriver::Systemd => CgroupDriver::Systemd,
            v1::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        },
        _ => CgroupDriver::named(&configuration.cgroup_driver).unwrap_or_default(),
    }
}

/// Registers the node, however long it takes; `None` if the kubelet is stopped before. A problem is
/// logged once for as long as it stays the same. `gives_up`: a refusal for good is an error.
pub async fn wait_for_registration(
    registration: &Registration,
    gives_up: bool,
    shutdown: &CancellationToken,
) -> Result<Option<Node>, Error> {
    let (mut pause, mut logged) = (FIRST_RETRY, String::new());
    loop {
        match registration::register(registration).await {
            Ok(node) => return Ok(Some(node)),
            Err(error) if gives_up && retry::is_refused_for_good(&error) => {
                return Err(Error::Refused {
                    node: registration.settings.node_name.clone(),
                    why: retry::sentence(&error),
                });
            }
            Err(error) if !registration.settings.configuration.register_node => {
                tracing::debug!(%error, "the node has not been registered by anybody yet");
            }
            Err(error) => {
                let problem = retry::sentence(&error);
                if problem != logged {
                    tracing::warn!("the node could not be registered yet: {problem}");
                    logged = problem;
                }
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(None),
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_REGISTRATION_RETRY),
        }
    }
}
