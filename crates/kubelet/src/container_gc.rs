//! Dead containers of pods that have ended are kept for their logs while there is room. This file
//! removes them when there is none.

use cri::v1;

use crate::{
    pods::Pods,
    runtime::{self, label, observe},
};

/// Removes the containers of pods that have ended, and their logs.
pub async fn remove_ended(cri: &cri::Client, pods: &Pods) {
    let listed = cri
        .runtime
        .clone()
        .list_containers(v1::ListContainersRequest { filter: None })
        .await;
    let containers = match listed {
        Ok(response) => response.into_inner().containers,
        Err(status) => {
            tracing::warn!(%status, "containers could not be listed");
            return;
        }
    };
    let exited = v1::ContainerState::ContainerExited as i32;
    for container in containers {
        let owner = container.labels.get(label::POD_UID);
        // A kubelet that has just started does not know all pods yet and must not remove theirs.
        if container.state != exited || !owner.is_some_and(|uid| pods.has_ended(uid)) {
            continue;
        }
        let (id, sandbox) = (container.id, container.pod_sandbox_id);
        if let Ok(Some(record)) = observe::container(cri, id.clone(), sandbox).await {
            tracing::info!(
                container = id,
                "removing a dead container to free disk space"
            );
            runtime::remove_container(cri, id, record.log_path).await;
        }
    }
}
