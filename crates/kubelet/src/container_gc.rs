//! Dead containers of pods that have ended are kept for their logs while there is room. This file
//! removes them when there is none.

use std::sync::Arc;

use cri::v1;

use crate::{
    node_context::NodeContext,
    pod::tasks,
    pods::Pods,
    runtime::{label, observe},
};

/// Removes the containers of pods that have ended, and their logs.
pub async fn remove_ended(node: &Arc<NodeContext>, pods: &Pods) {
    let listed = node
        .cri
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
        // Of pods that nobody knows yet, a kubelet that has just started must not judge.
        if container.state != exited || !owner.is_some_and(|uid| pods.has_ended(uid)) {
            continue;
        }
        let (id, sandbox) = (container.id, container.pod_sandbox_id);
        if let Ok(Some(record)) = observe::container(&node.cri, id.clone(), sandbox).await {
            tracing::info!(
                container = id,
                "removing a dead container to free disk space"
            );
            tasks::remove_container(node.clone(), id, record.log_path).await;
        }
    }
}
