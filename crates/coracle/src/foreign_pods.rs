//! Removes a cluster's pods from a container runtime other than the embedded one. A sandbox belongs
//! to the cluster when the kubelet has a directory with the UID of its pod.

use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::Result;
use cri::v1;

use crate::process::block_on;

/// The label of a sandbox with the UID of its pod.
const UID_LABEL: &str = "io.kubernetes.pod.uid";

/// Stops and removes the sandboxes, with their containers, of the pods that have a directory in
/// `pods`.
pub fn remove(socket: &Path, pods: &Path) -> Result<()> {
    if UnixStream::connect(socket).is_err() {
        print_line!(
            "No container runtime answers at {}; its pods stay.",
            socket.display()
        );
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
        Ok(())
    })
}
