//! Removes dead containers and sandboxes from the runtime. What is not there counts as removed.

use std::time::Duration;

use cri::v1;

/// Pause before something that failed at the runtime is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Removes a sandbox. Returns whether it is gone; if not, it has waited for a moment.
pub async fn remove_sandbox(cri: &cri::Client, id: String) -> bool {
    let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id };
    match cri.runtime.clone().remove_pod_sandbox(request).await {
        Err(status) if status.code() != tonic::Code::NotFound => {
            tracing::warn!(%status, "a sandbox could not be removed");
            tokio::time::sleep(RETRY_PAUSE).await;
            false
        }
        _ => true,
    }
}

/// Removes a dead container and its log, if `log` names one. Returns whether the container is gone;
/// if not, it has waited for a moment.
pub async fn remove_container(cri: &cri::Client, id: String, log: String) -> bool {
    let request = v1::RemoveContainerRequest { container_id: id };
    match cri.runtime.clone().remove_container(request).await {
        Err(status) if status.code() != tonic::Code::NotFound => {
            tracing::warn!(%status, "a container could not be removed");
            tokio::time::sleep(RETRY_PAUSE).await;
            false
        }
        _ => {
            if !log.is_empty() {
                let _ = tokio::fs::remove_file(log).await;
            }
            true
        }
    }
}
