//! Removes a cluster's pods from a container runtime that is not our own. Whose a sandbox is, the
//! kubelet's directory tells: it has one for every pod that was run.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use cri::v1;

use crate::cli::block_on;

/// Where sandboxes carry the UID of their pod.
const UID_LABEL: &str = "io.kubernetes.pod.uid";

/// Ends and removes the sandboxes, with their containers, of the pods in `pods`.
pub fn remove(socket: &Path, pods: &Path) -> Result<()> {
    if UnixStream::connect(socket).is_err() {
        tell!("No runtime answers at {}.", socket.display());
        return Ok(());
    }
    block_on(async {
        let mut runtime = cri::Client::connect(socket)?.runtime;
        let everything = v1::ListPodSandboxRequest { filter: None };
        let sandboxes = runtime.list_pod_sandbox(everything).await?;
        for sandbox in sandboxes.into_inner().items {
            let uid = sandbox.labels.get(UID_LABEL);
            if !uid.is_some_and(|uid| pods.join(uid).is_dir()) {
                continue;
            }
            let pod_sandbox_id = sandbox.id;
            runtime
                .stop_pod_sandbox(v1::StopPodSandboxRequest {
                    pod_sandbox_id: pod_sandbox_id.clone(),
                })
                .await?;
            runtime
                .remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id })
                .await?;
        }
        Ok(ExitCode::SUCCESS)
    })?;
    Ok(())
}
