//! Birth, life and end of containers, with our OCI command and with runc.

use anyhow::{Result, ensure};
use cri::v1::*;

use super::server::{Server, container, with_server};

#[test]
fn a_container_lives_and_ends_with_our_oci_command() {
    with_server(&[], lifecycle);
}

#[test]
fn a_container_lives_and_ends_with_runc() {
    with_server(&["/usr/sbin/runc"], lifecycle);
}

/// Debian's crun rejects machines with both cgroup v1 and v2. `make test-vm` runs this test with
/// cgroup v2 alone.
#[test]
fn a_container_lives_and_ends_with_crun() {
    let unified = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let crun = "/usr/bin/crun";
    if !unified || !std::path::Path::new(crun).exists() {
        environment::skip_test("it needs /usr/bin/crun and cgroup v2");
        return;
    }
    with_server(&[crun], lifecycle);
}

async fn lifecycle(server: &mut Server) -> Result<()> {
    let pod = server.sandbox_config("life", true);
    let begun = tokio::time::Instant::now();
    let sandbox = server.run_sandbox(&pod).await?;
    let made = begun.elapsed();
    let script = "echo out; echo err >&2; echo -n part; env; trap 'exit 7' TERM; while true; do sleep 0.1; done";
    let mut spent = Vec::new();
    for number in 0..5 {
        let begun = tokio::time::Instant::now();
        let id = server
            .create(
                &sandbox,
                &pod,
                container(&format!("quick{number}"), &["sleep", "100"]),
            )
            .await?;
        let created = begun.elapsed();
        server.start_container(&id).await?;
        spent.push((created, begun.elapsed() - created));
    }
    println!("sandbox {made:?}, containers created and started in {spent:?}");
    let id = server
        .run(&sandbox, &pod, container("main", &["sh", "-c", script]))
        .await?;
    let status = server.status(&id).await?;
    ensure!(
        status.state() == ContainerState::ContainerRunning,
        "{status:?}"
    );
    // Exec: output, code, environment, user, and the command that does not exist.
    let echoed = server
        .exec(&id, &["sh", "-c", "echo hello; echo oops >&2; exit 3"], 120)
        .await?;
    ensure!(
        echoed.exit_code == 3 && echoed.stdout == b"hello\n" && echoed.stderr == b"oops\n",
        "{echoed:?}"
    );
    ensure!(
        server
            .output(&id, &["sh", "-c", "echo $FROM_IMAGE"])
            .await?
            == "yes"
    );
    ensure!(server.exec(&id, &["no-such-command"], 120).await.is_err());
    let late = server.exec(&id, &["sleep", "60"], 1).await;
    ensure!(late.is_err_and(|status| status.code() == tonic::Code::DeadlineExceeded));
    let big = server
        .exec(&id, &["sh", "-c", "yes | head -c 3000000"], 120)
        .await?;
    ensure!(big.stdout.len() == 3_000_000, "{}", big.stdout.len());
    // Its first process is number 1, and the SIGPIPE disposition is the usual one.
    ensure!(server.output(&id, &["cat", "/proc/1/comm"]).await? == "sh");
    let ignored = server
        .output(&id, &["grep", "SigIgn", "/proc/self/status"])
        .await?;
    // Numbers 32 and 33 belong to the C library, which ignores them in what it spawns.
    let mask = u64::from_str_radix(ignored.trim_start_matches("SigIgn:").trim(), 16)?;
    ensure!(mask & 0x7fff_ffff == 0, "{ignored}");
    // Stop with grace: the trap's exit code, then idempotence. Until the shell has caught the
    // signal, as the first process it would not be told of it at all.
    let caught = "while ! grep -q '^SigCgt:.*[4567cdef]...$' /proc/1/status; do sleep 0.05; done";
    server.output(&id, &["sh", "-c", caught]).await?;
    let stop = StopContainerRequest {
        container_id: id.clone(),
        timeout: 120,
    };
    server.runtime.stop_container(stop.clone()).await?;
    server.runtime.stop_container(stop).await?;
    let status = server.status(&id).await?;
    ensure!(
        status.exit_code == 7 && status.reason == "Error",
        "{status:?}"
    );
    ensure!(
        status.finished_at >= status.started_at && status.started_at >= status.created_at,
        "{status:?}"
    );
    let log = server.log("life", "main.log");
    for line in ["stdout F out", "stderr F err"] {
        ensure!(log.iter().any(|known| known == line), "{log:?}");
    }
    ensure!(
        log.iter().any(|line| line.starts_with("stdout F part")),
        "{log:?}"
    );
    let gone = server.exec(&id, &["true"], 120).await;
    ensure!(gone.is_err_and(|status| status.code() == tonic::Code::FailedPrecondition));
    exits(server, &sandbox, &pod).await?;
    // A second start, and removal of everything, twice.
    ensure!(server.start_container(&id).await.is_err());
    for _ in 0..2 {
        server
            .runtime
            .remove_container(RemoveContainerRequest {
                container_id: id.clone(),
            })
            .await?;
    }
    let missing = server
        .runtime
        .container_status(ContainerStatusRequest {
            container_id: id,
            verbose: false,
        })
        .await;
    ensure!(missing.is_err_and(|status| status.code() == tonic::Code::NotFound));
    server.remove_sandbox(&sandbox).await?;
    server.remove_sandbox(&sandbox).await?;
    let left = server
        .runtime
        .list_pod_sandbox(ListPodSandboxRequest::default())
        .await?
        .into_inner()
        .items;
    ensure!(left.is_empty(), "{left:?}");
    ensure!(
        std::fs::read_dir(server.state().join("shims"))?
            .next()
            .is_none()
    );
    Ok(())
}

async fn exits(server: &mut Server, sandbox: &str, pod: &PodSandboxConfig) -> Result<()> {
    for (name, script, code, reason) in [
        ("zero", "exit 0", 0, "Completed"),
        ("nine", "exit 9", 9, "Error"),
        ("killed", "kill -9 $$; sleep 9", 137, "Error"),
    ] {
        // A shell that is process 1 cannot kill itself; one more shell can.
        let id = server
            .run(
                sandbox,
                pod,
                container(name, &["sh", "-c", &format!("sh -c '{script}'; exit $?")]),
            )
            .await?;
        let status = server.wait_exit(&id).await?;
        ensure!(
            status.exit_code == code && status.reason == reason,
            "{name}: {status:?}"
        );
        let request = RemoveContainerRequest { container_id: id };
        server.runtime.remove_container(request).await?;
    }
    let id = server
        .create(sandbox, pod, container("absent", &["/no/such/program"]))
        .await?;
    let failed = server.start_container(&id).await;
    ensure!(failed.is_err_and(|error| error.to_string().contains("no/such/program")));
    let status = server.status(&id).await?;
    ensure!(
        status.exit_code == 128 && status.reason == "StartError",
        "{status:?}"
    );
    // SIGKILL without grace.
    let id = server
        .run(
            sandbox,
            pod,
            container("stubborn", &["sh", "-c", "trap '' TERM; sleep 100"]),
        )
        .await?;
    let stop = StopContainerRequest {
        container_id: id.clone(),
        timeout: 0,
    };
    server.runtime.stop_container(stop).await?;
    ensure!(server.status(&id).await?.exit_code == 137);
    Ok(())
}

#[test]
fn limits_are_enforced_and_out_of_memory_kills_are_reported() {
    with_server(&[], async |server| {
        let pod = server.sandbox_config("limits", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let mut config = container(
            "hungry",
            &["sh", "-c", "dd if=/dev/zero of=/dev/null bs=100M"],
        );
        let limits = LinuxContainerResources {
            memory_limit_in_bytes: 20 << 20,
            cpu_shares: 512,
            cpu_quota: 50_000,
            cpu_period: 100_000,
            oom_score_adj: 900,
            ..Default::default()
        };
        config.linux.get_or_insert_default().resources = Some(limits.clone());
        let id = server.run(&sandbox, &pod, config).await?;
        let status = server.wait_exit(&id).await?;
        ensure!(
            status.reason == "OOMKilled" && status.exit_code == 137,
            "{status:?}"
        );
        let mut config = container("limited", &["sleep", "100"]);
        config.linux.get_or_insert_default().resources = Some(limits);
        let id = server.run(&sandbox, &pod, config).await?;
        let group = format!("/sys/fs/cgroup/%{}", server.group_of("limits", &id));
        let read = |controller: &str, file: &str| {
            std::fs::read_to_string(format!("{}/{file}", group.replace('%', controller)))
                .unwrap_or_default()
        };
        let legacy = std::path::Path::new("/sys/fs/cgroup/memory").exists();
        // What the kernel says of each limit, before and after they are changed.
        let files: &[(&str, &str, &str, &str)] = match legacy {
            true => &[
                ("memory", "memory.limit_in_bytes", "20971520", "31457280"),
                ("cpu", "cpu.shares", "512", "256"),
                ("cpu", "cpu.cfs_quota_us", "50000", "20000"),
            ],
            false => &[
                ("", "memory.max", "20971520", "31457280"),
                ("", "cpu.weight", "59", "35"),
                ("", "cpu.max", "50000 100000", "20000 100000"),
            ],
        };
        for (controller, file, expected, _) in files {
            let found = read(controller, file);
            ensure!(found.trim() == *expected, "{file}: {found}");
        }
        let request = UpdateContainerResourcesRequest {
            container_id: id.clone(),
            linux: Some(LinuxContainerResources {
                memory_limit_in_bytes: 30 << 20,
                cpu_shares: 256,
                cpu_quota: 20_000,
                cpu_period: 100_000,
                ..Default::default()
            }),
            ..Default::default()
        };
        server.runtime.update_container_resources(request).await?;
        for (controller, file, _, expected) in files {
            let found = read(controller, file);
            ensure!(found.trim() == *expected, "{file}: {found}");
        }
        // Every pod's processes are bounded, and what the kernel counts is what stats tell.
        let mut processes = String::new();
        for _ in 0..1200 {
            processes = read(if legacy { "pids" } else { "" }, "pids.current");
            if processes.trim() == "1" {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        ensure!(processes.trim() == "1", "{processes}");
        ensure!(
            server
                .output(&id, &["cat", "/proc/1/oom_score_adj"])
                .await?
                == "900"
        );
        let request = ContainerStatsRequest {
            container_id: id.clone(),
        };
        let stats = server
            .runtime
            .container_stats(request)
            .await?
            .into_inner()
            .stats
            .unwrap_or_default();
        ensure!(
            stats
                .memory
                .and_then(|memory| memory.usage_bytes)
                .is_some_and(|usage| usage.value > 0)
        );
        ensure!(
            stats
                .cpu
                .and_then(|cpu| cpu.usage_core_nano_seconds)
                .is_some_and(|usage| usage.value > 0)
        );
        let request = PodSandboxStatsRequest {
            pod_sandbox_id: sandbox.clone(),
        };
        let stats = server
            .runtime
            .pod_sandbox_stats(request)
            .await?
            .into_inner()
            .stats
            .unwrap_or_default();
        ensure!(stats.linux.is_some_and(|linux| linux.containers.len() == 1));
        server.remove_sandbox(&sandbox).await
    });
}

#[test]
fn events_are_sent_lists_are_filtered_and_logs_are_reopened() {
    with_server(&[], async |server| {
        let mut events = server
            .runtime
            .get_container_events(GetEventsRequest {})
            .await?
            .into_inner();
        let pod = server.sandbox_config("seen", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let script = "echo one; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo two";
        let id = server
            .run(&sandbox, &pod, container("main", &["sh", "-c", script]))
            .await?;
        let log = server.directory.join("logs/seen/main.log");
        let first_line = async {
            while server.log("seen", "main.log").is_empty() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(120), first_line).await?;
        std::fs::rename(&log, log.with_extension("1"))?;
        server
            .runtime
            .reopen_container_log(ReopenContainerLogRequest {
                container_id: id.clone(),
            })
            .await?;
        server.output(&id, &["touch", "/tmp/go"]).await?;
        ensure!(server.wait_exit(&id).await?.reason == "Completed");
        ensure!(
            server.log("seen", "main.log") == ["stdout F two"],
            "{:?}",
            server.log("seen", "main.log")
        );
        ensure!(server.log("seen", "main.1") == ["stdout F one"]);
        let mut seen = Vec::new();
        while seen.len() < 5 {
            let event = events
                .message()
                .await?
                .ok_or_else(|| anyhow::anyhow!("the stream ended"))?;
            seen.push((event.container_id == sandbox, event.container_event_type()));
        }
        use ContainerEventType::*;
        ensure!(
            seen == [
                (true, ContainerCreatedEvent),
                (true, ContainerStartedEvent),
                (false, ContainerCreatedEvent),
                (false, ContainerStartedEvent),
                (false, ContainerStoppedEvent),
            ],
            "{seen:?}"
        );
        for (label, state, expected) in [
            ("seen", ContainerState::ContainerExited, 1),
            ("seen", ContainerState::ContainerRunning, 0),
            ("other", ContainerState::ContainerExited, 0),
        ] {
            let filter = PodSandboxFilter {
                label_selector: [("app".to_owned(), label.to_owned())].into(),
                ..Default::default()
            };
            let request = ListPodSandboxRequest {
                filter: Some(filter),
            };
            let pods = server
                .runtime
                .list_pod_sandbox(request)
                .await?
                .into_inner()
                .items;
            ensure!(pods.len() == usize::from(label == "seen"));
            let filter = ContainerFilter {
                state: Some(ContainerStateValue {
                    state: state.into(),
                }),
                pod_sandbox_id: if label == "seen" {
                    sandbox.clone()
                } else {
                    "none".into()
                },
                ..Default::default()
            };
            let request = ListContainersRequest {
                filter: Some(filter),
            };
            let found = server
                .runtime
                .list_containers(request)
                .await?
                .into_inner()
                .containers;
            ensure!(found.len() == expected, "{found:?}");
        }
        let version = server
            .runtime
            .version(VersionRequest::default())
            .await?
            .into_inner();
        ensure!(version.runtime_name == "coracle" && version.runtime_api_version == "v1");
        let again = server.run_sandbox(&pod).await;
        ensure!(again.is_err(), "the same pod attempt twice");
        Ok(())
    });
}

/// Whoever asks again, a kubelet that was restarted for one, gives no second signal: many programs
/// take it for "at once".
#[test]
fn the_stop_signal_is_sent_once() {
    with_server(&[], async |server| {
        let pod = server.sandbox_config("asked-twice", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let script = "trap 'echo told' TERM; echo ready; while true; do sleep 0.05; done";
        let main = container("main", &["sh", "-c", script]);
        let id = server.run(&sandbox, &pod, main).await?;
        let told = |server: &Server| {
            let log = server.log("asked-twice", "main.log");
            log.iter().filter(|line| line.ends_with("told")).count()
        };
        let lines = |server: &Server| server.log("asked-twice", "main.log").len();
        eventually(|| lines(server) > 0).await?;
        let stop = |timeout| StopContainerRequest {
            container_id: id.clone(),
            timeout,
        };
        let (mut first, patient) = (server.runtime.clone(), stop(600));
        let waiting = tokio::spawn(async move { first.stop_container(patient).await });
        eventually(|| told(server) > 0).await?;
        server.runtime.stop_container(stop(2)).await?;
        waiting.await??;
        ensure!(
            told(server) == 1,
            "{:?}",
            server.log("asked-twice", "main.log")
        );
        server.remove_sandbox(&sandbox).await
    });
}

#[test]
fn only_processes_of_the_same_pod_can_be_shared() {
    with_server(&[], async |server| {
        let target = |id: &str| {
            let mut config = container("guest", &["sleep", "1000"]);
            let linux = config.linux.get_or_insert_default();
            let security = linux.security_context.get_or_insert_default();
            let options = security.namespace_options.get_or_insert_default();
            options.set_pid(NamespaceMode::Target);
            options.target_id = id.into();
            config
        };
        let pod = server.sandbox_config("host", true);
        let sandbox = server.run_sandbox(&pod).await?;
        let host = container("main", &["sleep", "1000"]);
        let host = server.create(&sandbox, &pod, host).await?;
        let refused = server.create(&sandbox, &pod, target(&host)).await;
        ensure!(refused.is_err_and(|error| error.to_string().contains("not running")));
        server.start_container(&host).await?;
        let guest = server.run(&sandbox, &pod, target(&host)).await?;
        let seen = server.output(&guest, &["cat", "/proc/1/cmdline"]).await?;
        ensure!(seen.starts_with("sleep"), "{seen:?}");
        let other = server.sandbox_config("other", true);
        let elsewhere = server.run_sandbox(&other).await?;
        let refused = server.create(&elsewhere, &other, target(&host)).await;
        ensure!(refused.is_err_and(|error| error.to_string().contains("another sandbox")));
        server.remove_sandbox(&sandbox).await?;
        server.remove_sandbox(&elsewhere).await
    });
}

async fn eventually(condition: impl Fn() -> bool) -> Result<()> {
    for _ in 0..2400 {
        if condition() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    anyhow::bail!("it never came true")
}
