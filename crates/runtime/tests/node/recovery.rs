//! A server that dies and comes back.

use anyhow::{Result, ensure};
use cri::v1::*;

use super::server::{Server, container, with_server};

#[test]
fn pods_outlive_the_server() {
    with_server(&[], async |server| {
        let bridge = server.configure_bridge()?;
        let result = survive(server).await;
        let _ = std::process::Command::new("ip")
            .args(["link", "delete", &bridge])
            .status();
        result
    });
}

async fn survive(server: &mut Server) -> Result<()> {
    let pod = server.sandbox_config("keeps", false);
    let sandbox = server.run_sandbox(&pod).await?;
    let stays = server
        .run(
            &sandbox,
            &pod,
            container(
                "stays",
                &[
                    "sh",
                    "-c",
                    "i=0; while true; do i=$((i+1)); echo $i; sleep 0.05; done",
                ],
            ),
        )
        .await?;
    let ends = server
        .run(
            &sandbox,
            &pod,
            container(
                "ends",
                &[
                    "sh",
                    "-c",
                    "while [ ! -e /dev/shm/end ]; do sleep 0.02; done; exit 5",
                ],
            ),
        )
        .await?;
    let created = server
        .create(&sandbox, &pod, container("created", &["sleep", "100"]))
        .await?;
    let request = PodSandboxStatusRequest {
        pod_sandbox_id: sandbox.clone(),
        verbose: false,
    };
    let before = server
        .runtime
        .pod_sandbox_status(request.clone())
        .await?
        .into_inner()
        .status;
    let pid = server.pid(&stays).await?;
    server.output(&stays, &["touch", "/dev/shm/end"]).await?;
    server.kill()?;
    let lines = server.log("keeps", "stays.log").len();
    // While no server runs, one container ends and the other goes on writing its log.
    let written = async {
        while server.log("keeps", "stays.log").len() < lines + 10 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(120), written).await?;
    server.launch().await?;
    ensure!(server.pid(&stays).await? == pid);
    ensure!(server.status(&stays).await?.state() == ContainerState::ContainerRunning);
    let status = server.wait_exit(&ends).await?;
    ensure!(
        status.state() == ContainerState::ContainerExited && status.exit_code == 5,
        "{status:?}"
    );
    let after = server
        .runtime
        .pod_sandbox_status(request)
        .await?
        .into_inner()
        .status;
    ensure!(before == after, "{before:?} {after:?}");
    server.start_container(&created).await?;
    ensure!(server.output(&stays, &["echo", "alive"]).await? == "alive");
    // Without its shim the pod is ended and can still be removed.
    let text = std::fs::read_to_string(server.state().join("shims").join(&sandbox).join("pid"))?;
    let shim: i32 = text.split(' ').next().unwrap_or_default().parse()?;
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(shim),
        nix::sys::signal::Signal::SIGKILL,
    )?;
    let status = server.wait_exit(&stays).await?;
    ensure!(status.exit_code == 255, "{status:?}");
    server.remove_sandbox(&sandbox).await
}

#[test]
fn after_a_reboot_everything_has_ended() {
    with_server(&[], async |server| {
        let pod = server.sandbox_config("reboot", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let id = server
            .run(&sandbox, &pod, container("main", &["sleep", "100"]))
            .await?;
        server.kill()?;
        // What a reboot does to records: they name another boot.
        let path = server.root().join("sandboxes").join(&sandbox);
        let text = std::fs::read_to_string(&path)?;
        let last = text.trim_end().lines().last().unwrap_or_default();
        let mut record: serde_json::Value = serde_json::from_str(last)?;
        record["boot_id"] = "another".into();
        std::fs::write(&path, record.to_string())?;
        server.launch().await?;
        let status = server.status(&id).await?;
        ensure!(
            status.state() == ContainerState::ContainerExited && status.exit_code == 255,
            "{status:?}"
        );
        server.remove_sandbox(&sandbox).await
    });
}
