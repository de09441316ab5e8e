//! Lifecycle hooks: postStart and preStop by exec, HTTP GET or sleep.

use std::time::Duration;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use crate::http_get;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Runs a hook to its end. The caller bounds the time.
pub async fn run(
    cri: &cri::Client,
    handler: &LifecycleHandler,
    container: &Container,
    container_id: &str,
    pod_ip: &str,
) -> Result<(), Error> {
    if let Some(action) = &handler.exec {
        let request = v1::ExecSyncRequest {
            container_id: container_id.to_owned(),
            cmd: action.command.clone().unwrap_or_default(),
            timeout: 0,
        };
        let response = cri.runtime.clone().exec_sync(request).await;
        let response = response
            .map_err(|status| Error(crate::images::rpc_error(&status)))?
            .into_inner();
        if response.exit_code != 0 {
            return Err(Error(format!(
                "command '{}' exited with {}",
                action.command.clone().unwrap_or_default().join(" "),
                response.exit_code
            )));
        }
        return Ok(());
    }
    if let Some(action) = &handler.http_get {
        let unbounded = Duration::from_secs(24 * 3600);
        http_get::get(action, container, pod_ip, "lifecycle", unbounded)
            .await
            .map_err(|error| Error(error.to_string()))?;
        return Ok(());
    }
    if let Some(action) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(action.seconds.max(0) as u64)).await;
        return Ok(());
    }
    Ok(())
}
