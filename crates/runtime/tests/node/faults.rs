//! What can go wrong around containers: each time the runtime recovers by itself, loses nothing and
//! leaves nothing behind.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use cri::v1::*;

use super::{
    leaks,
    server::{Server, container, with_prepared_server, with_server},
};

/// Mounts something at the directory's `root`; the clean-up unmounts it.
fn mount_root(directory: &Path, arguments: &[String]) -> Result<()> {
    let root = directory.join("root");
    std::fs::create_dir_all(&root)?;
    let mounted = Command::new("mount").args(arguments).arg(&root).output()?;
    ensure!(mounted.status.success(), "{mounted:?}");
    Ok(())
}

#[test]
fn a_full_disk_refuses_new_pods_and_old_pods_can_be_removed() {
    let prepare = |directory: &Path| {
        let options = ["-t", "tmpfs", "-o", "size=48m", "small"];
        mount_root(directory, &options.map(str::to_owned))
    };
    with_prepared_server(&[], prepare, async |server| {
        let pod = server.sandbox_config("old", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let stays = server
            .run(&sandbox, &pod, container("stays", &["sleep", "1000"]))
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
                        "while [ ! -e /dev/shm/end ]; do sleep 0.05; done; exit 6",
                    ],
                ),
            )
            .await?;
        fill(&server.root())?;
        let refused = server
            .run_sandbox(&server.sandbox_config("new", true))
            .await;
        let refused = refused.err().context("a pod was made without space")?;
        ensure!(
            format!("{refused:?}").contains("No space left"),
            "{refused:?}"
        );
        let refused = server
            .create(&sandbox, &pod, container("more", &["sleep", "1"]))
            .await;
        ensure!(refused.is_err(), "a container was made without space");
        // A running container goes on, and its exit is reported.
        ensure!(
            server
                .output(&stays, &["touch", "/dev/shm/end"])
                .await
                .is_ok()
        );
        let status = server.wait_exit(&ends).await?;
        ensure!(status.exit_code == 6, "{status:?}");
        // A restart on a full disk finds all of it again.
        server.kill()?;
        server.launch().await?;
        ensure!(server.status(&stays).await?.state() == ContainerState::ContainerRunning);
        ensure!(server.status(&ends).await?.exit_code == 6);
        // Going does not need space; it gives some.
        server.remove_sandbox(&sandbox).await?;
        std::fs::remove_file(server.root().join("ballast"))?;
        let pod = server.sandbox_config("new", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let id = server
            .run(&sandbox, &pod, container("main", &["sleep", "1000"]))
            .await?;
        ensure!(server.output(&id, &["echo", "space"]).await? == "space");
        server.remove_sandbox(&sandbox).await
    });
}

/// Takes every byte that is left.
fn fill(directory: &Path) -> Result<()> {
    use std::io::Write;
    let mut ballast = std::fs::File::create(directory.join("ballast"))?;
    for size in [1 << 20, 4096, 1] {
        while ballast.write(&vec![0; size]).is_ok_and(|count| count > 0) {}
    }
    Ok(())
}

#[test]
fn a_refused_mount_is_an_error_and_leaves_nothing() {
    // An overlay cannot be the upper part of another.
    let prepare = |directory: &Path| {
        let place = |name: &str| directory.join(name);
        for part in ["lower", "upper", "work"] {
            std::fs::create_dir_all(place(part))?;
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            place("lower").display(),
            place("upper").display(),
            place("work").display()
        );
        mount_root(
            directory,
            &[
                "-t".into(),
                "overlay".into(),
                "-o".into(),
                options,
                "overlay".into(),
            ],
        )
    };
    with_prepared_server(&[], prepare, async |server| {
        let pod = server.sandbox_config("refused", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let mut before = leaks::inventory(server);
        for round in 0..4 {
            if round == 1 {
                // The first attempt made the directories that all containers share.
                before = leaks::inventory(server);
            }
            let refused = server
                .create(&sandbox, &pod, container("main", &["sleep", "1000"]))
                .await;
            let refused = refused
                .err()
                .context("an overlay was mounted on an overlay")?;
            ensure!(format!("{refused:?}").contains("mounting"), "{refused:?}");
        }
        let found = server
            .runtime
            .list_containers(ListContainersRequest::default());
        ensure!(found.await?.into_inner().containers.is_empty());
        leaks::expect_none(server, &before).await?;
        server.remove_sandbox(&sandbox).await
    });
}

#[test]
fn a_lost_shim_ends_its_pod_alone() {
    with_server(&[], async |server| {
        let other_pod = server.sandbox_config("other", true);
        let other = server.run_sandbox(&other_pod).await?;
        let untouched = server
            .run(&other, &other_pod, container("main", &["sleep", "1000"]))
            .await?;
        let pod = server.sandbox_config("lost", true);
        server.run_sandbox(&pod).await.map(drop)?;
        let sandbox = only_sandbox(server, "lost").await?;
        // The pod's own cgroup comes with its first container, and is the kubelet's to remove.
        server
            .run(&sandbox, &pod, container("first", &["sleep", "1000"]))
            .await?;
        server.remove_sandbox(&sandbox).await?;
        let before = leaks::inventory(server);
        for round in 0..3 {
            let sandbox = server.run_sandbox(&pod).await?;
            let id = server
                .run(
                    &sandbox,
                    &pod,
                    container("main", &["sh", "-c", "(sleep 900 &); sleep 1000"]),
                )
                .await?;
            if round == 2 {
                // Both at once: nobody is there to notice.
                server.kill()?;
            }
            kill_shim(server, &sandbox)?;
            if round == 2 {
                server.launch().await?;
            }
            let status = server.wait_exit(&id).await?;
            ensure!(status.exit_code == 255, "{status:?}");
            server.remove_sandbox(&sandbox).await?;
            leaks::expect_none(server, &before).await?;
        }
        ensure!(server.status(&untouched).await?.state() == ContainerState::ContainerRunning);
        server.remove_sandbox(&other).await
    });
}

async fn only_sandbox(server: &mut Server, label: &str) -> Result<String> {
    let filter = PodSandboxFilter {
        label_selector: [("app".to_owned(), label.to_owned())].into(),
        ..Default::default()
    };
    let request = ListPodSandboxRequest {
        filter: Some(filter),
    };
    let found = server
        .runtime
        .list_pod_sandbox(request)
        .await?
        .into_inner()
        .items;
    Ok(found.first().context("no such sandbox")?.id.clone())
}

fn kill_shim(server: &Server, sandbox: &str) -> Result<()> {
    let text = std::fs::read_to_string(server.state().join("shims").join(sandbox).join("pid"))?;
    let pid: i32 = text.split(' ').next().unwrap_or_default().parse()?;
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGKILL,
    )?;
    Ok(())
}

#[test]
fn containers_that_ignore_signals_or_keep_forking_are_killed() {
    with_server(&[], async |server| {
        let pod = server.sandbox_config("wild", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let id = server
            .run(
                &sandbox,
                &pod,
                container(
                    "stubborn",
                    &["sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"],
                ),
            )
            .await?;
        // Until the shell has said so it does not ignore anything.
        server.output(&id, &["sh", "-c", "while ! grep -q '^SigIgn:.*[4567cdef]...$' /proc/1/status; do sleep 0.05; done"]).await?;
        let stop = StopContainerRequest {
            container_id: id.clone(),
            timeout: 1,
        };
        server.runtime.stop_container(stop).await?;
        ensure!(server.status(&id).await?.exit_code == 137);
        // The kubelet bounds the pod's group; here the test does.
        let group = server.pod_group("wild");
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let directory = match unified {
            true => PathBuf::from(format!("/sys/fs/cgroup{group}")),
            false => PathBuf::from(format!("/sys/fs/cgroup/pids{group}")),
        };
        std::fs::write(directory.join("pids.max"), "40")?;
        // A shell that cannot fork ends: the first process must not fork any more when the bombs go
        // off, so they wait until all of them are there, and there are several.
        let bomb = "bomb() { bomb | bomb & sleep 0.01; }; \
                    for n in 1 2 3 4; do \
                      (while ! [ -e /go ]; do sleep 0.05; done; while true; do bomb; sleep 0.05; done) & \
                    done; : > /go; exec sleep 1000";
        let id = server
            .run(&sandbox, &pod, container("bomb", &["sh", "-c", bomb]))
            .await?;
        let current = || -> u64 {
            let text = std::fs::read_to_string(directory.join("pids.current")).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        };
        // The kernel counts refusals at the group that refuses or at the one that asked.
        let refused = || {
            let below = std::fs::read_dir(&directory)
                .into_iter()
                .flatten()
                .flatten();
            let groups = below.map(|entry| entry.path()).chain([directory.clone()]);
            groups
                .filter_map(|group| std::fs::read_to_string(group.join("pids.events")).ok())
                .any(|text| {
                    text.lines()
                        .any(|line| line.starts_with("max ") && line != "max 0")
                })
        };
        for _ in 0..1200 {
            // The kernel counts an attempt until it has refused it.
            let processes = current();
            ensure!(processes < 80, "{processes} processes");
            if refused() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ensure!(refused(), "the limit was never reached");
        // The server answers as ever, and the bomb goes with its container.
        let status = server.status(&id).await?;
        ensure!(
            status.state() == ContainerState::ContainerRunning,
            "{status:?}"
        );
        let stop = StopContainerRequest {
            container_id: id.clone(),
            timeout: 0,
        };
        server.runtime.stop_container(stop).await?;
        server.remove_sandbox(&sandbox).await?;
        // The kernel counts the dead until they are taken from their parents.
        for _ in 0..1200 {
            if current() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ensure!(current() == 0, "{} processes are left", current());
        Ok(())
    });
}

#[test]
fn after_a_reboot_nothing_runs_and_nothing_is_forgotten() {
    let prepare = |directory: &Path| Ok(std::fs::write(directory.join("boot_id"), "first\n")?);
    with_prepared_server(&[], prepare, async |server| {
        let file = server
            .directory
            .join("boot_id")
            .to_string_lossy()
            .into_owned();
        server.environment = vec![("TEST_BOOT_ID_FILE", file)];
        server.kill()?;
        server.launch().await?;
        let pod = server.sandbox_config("rebooted", true);
        // The first one makes what all share.
        let sandbox = server.run_sandbox(&pod).await?;
        server
            .run(&sandbox, &pod, container("first", &["sleep", "1000"]))
            .await?;
        server.remove_sandbox(&sandbox).await?;
        let before = leaks::inventory(server);
        let sandbox = server.run_sandbox(&pod).await?;
        let id = server
            .run(&sandbox, &pod, container("main", &["sleep", "1000"]))
            .await?;
        let ended = server
            .run(&sandbox, &pod, container("ended", &["sh", "-c", "exit 3"]))
            .await?;
        server.wait_exit(&ended).await?;
        // What a reboot does: processes, mounts, groups and /run are gone; the disk stays.
        server.kill()?;
        let kept = server.directory.join("kept");
        std::fs::create_dir_all(&kept)?;
        unmount_below(&server.directory)?;
        std::fs::rename(server.root(), kept.join("root"))?;
        tokio::task::block_in_place(|| {
            runtime::remove_all(&server.root(), &server.state(), &server.cluster_id)
        })?;
        std::fs::rename(kept.join("root"), server.root())?;
        std::fs::remove_dir(&kept)?;
        std::fs::write(server.directory.join("boot_id"), "second\n")?;
        server.launch().await?;
        let status = server.status(&id).await?;
        ensure!(
            status.state() == ContainerState::ContainerExited && status.exit_code == 255,
            "{status:?}"
        );
        ensure!(
            server.status(&ended).await?.exit_code == 3,
            "what had ended is remembered"
        );
        let request = PodSandboxStatusRequest {
            pod_sandbox_id: sandbox.clone(),
            verbose: false,
        };
        let status = server
            .runtime
            .pod_sandbox_status(request)
            .await?
            .into_inner()
            .status;
        ensure!(status.is_some_and(|status| status.state() == PodSandboxState::SandboxNotready));
        // The next attempt of the pod runs beside the remains of the first.
        let mut again = pod.clone();
        again.metadata.get_or_insert_default().attempt = 1;
        let second = server.run_sandbox(&again).await?;
        server
            .run(&second, &again, container("main", &["sleep", "1000"]))
            .await?;
        for sandbox in [sandbox, second] {
            server.remove_sandbox(&sandbox).await?;
        }
        let before = before.into_iter().chain(parents(server)).collect();
        leaks::expect_none(server, &before).await
    });
}

/// Groups above the pods, which are the kubelet's.
fn parents(server: &Server) -> Vec<String> {
    let all = leaks::inventory(server);
    let own = |entry: &String| {
        entry.starts_with("cgroup ")
            && ["kubepods", "podrebooted", "shims"].iter().any(|name| {
                entry.ends_with(&format!("/{name}")) || entry.ends_with(&format!("-{name}.slice"))
            })
    };
    all.into_iter().filter(own).collect()
}

fn unmount_below(directory: &Path) -> Result<()> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let mut points: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| Path::new(point).starts_with(directory))
        .collect();
    points.reverse();
    for point in points {
        nix::mount::umount2(point, nix::mount::MntFlags::MNT_DETACH)?;
    }
    Ok(())
}
