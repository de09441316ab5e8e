//! Lifecycle hooks: postStart and preStop by exec, HTTP GET or sleep. Errors carry the words that the
//! container's status shows.

use std::time::Duration;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

use crate::{
    container::{fields::quoted, security::format_pod},
    http_get,
};

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Runs a hook to its end. The caller bounds the time.
pub async fn run(
    cri: &cri::Client,
    handler: &LifecycleHandler,
    pod: &Pod,
    container: &Container,
    container_id: &str,
    pod_ip: &str,
) -> Result<(), Error> {
    let whose = format!(
        "for Container \"{}\" in Pod \"{}\"",
        container.name,
        format_pod(pod)
    );
    if let Some(action) = &handler.exec {
        let command = action.command.clone().unwrap_or_default();
        let shown = command.join(" ");
        let request = v1::ExecSyncRequest {
            container_id: container_id.to_owned(),
            cmd: command,
            timeout: 0,
        };
        let (error, output) = match cri.runtime.clone().exec_sync(request).await {
            Ok(response) => {
                let response = response.into_inner();
                if response.exit_code == 0 {
                    return Ok(());
                }
                failure(&shown, &response)
            }
            Err(status) => (crate::images::rpc_error(&status), String::new()),
        };
        return Err(Error(format!(
            "Exec lifecycle hook ([{shown}]) {whose} failed - error: {error}, message: {}",
            quoted(&output)
        )));
    }
    if let Some(action) = &handler.http_get {
        let unbounded = Duration::from_secs(24 * 3600);
        let answer = http_get::get(action, container, pod_ip, "lifecycle", unbounded).await;
        return answer.map(drop).map_err(|error| {
            let path = action.path.as_deref().unwrap_or_default();
            Error(format!(
                "HTTP lifecycle hook ({path}) {whose} failed - error: {error}"
            ))
        });
    }
    if let Some(action) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(action.seconds.max(0) as u64)).await;
        return Ok(());
    }
    // tcpSocket is there to be read, and cannot be run.
    Err(Error("Cannot run handler: invalid handler".to_owned()))
}

/// The error and the output of a command that failed.
fn failure(command: &str, response: &v1::ExecSyncResponse) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&response.stdout), text(&response.stderr));
    let error = format!(
        "command '{command}' exited with {}: {err}",
        response.exit_code
    );
    (error, format!("{out}{err}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_is_told_with_its_output() {
        let response = v1::ExecSyncResponse {
            stdout: b"out\n".to_vec(),
            stderr: b"err".to_vec(),
            exit_code: 3,
        };
        assert_eq!(
            failure("sh -c x", &response),
            (
                "command 'sh -c x' exited with 3: err".to_owned(),
                "out\nerr".to_owned()
            )
        );
    }
}
