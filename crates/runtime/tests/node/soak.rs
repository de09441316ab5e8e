//! Many pods, and a server that dies at every step of every call. The short form runs with all
//! tests; `make soak` sets SOAK_PODS and KILL_ROUNDS for the long one.

use anyhow::{Context, Result, ensure};
use cri::v1::*;

use super::{
    image::{Archive, Layer, busybox_layer},
    leaks,
    registry::{Demands, Registry},
    server::{Server, container, with_server},
};

const PODS_AT_ONCE: usize = 4;

fn number(name: &str, default: usize) -> usize {
    let value = std::env::var(name).ok().and_then(|text| text.parse().ok());
    value.unwrap_or(default)
}

/// Removes the bridge whatever happens.
async fn on_a_bridge(
    server: &mut Server,
    test: impl AsyncFnOnce(&mut Server) -> Result<()>,
) -> Result<()> {
    let bridge = server.configure_bridge()?;
    let result = test(server).await;
    let _ = std::process::Command::new("ip")
        .args(["link", "delete", &bridge])
        .status();
    result
}

/// All pods share one parent group, which is the kubelet's to remove.
fn pod_config(server: &Server, name: &str) -> PodSandboxConfig {
    let mut pod = server.sandbox_config(name, false);
    let linux = pod.linux.get_or_insert_default();
    linux.cgroup_parent = server.pod_group("shared");
    pod
}

#[test]
fn pods_leave_nothing_behind() {
    with_server(&[], async |server| on_a_bridge(server, many_pods).await);
}

async fn many_pods(server: &mut Server) -> Result<()> {
    // The first one makes what all share: the bridge, parent groups, directories.
    one_pod(&mut Handle::of(server), pod_config(server, "first")).await?;
    let before = leaks::inventory(server);
    let total = number("SOAK_PODS", 12);
    let begun = tokio::time::Instant::now();
    let mut done = 0;
    while done < total {
        let batch = PODS_AT_ONCE.min(total - done);
        let pods = (done..done + batch).map(|number| {
            let (mut handle, pod) = (
                Handle::of(server),
                pod_config(server, &format!("pod{number}")),
            );
            async move { one_pod(&mut handle, pod).await }
        });
        for result in futures::future::join_all(pods).await {
            result?;
        }
        done += batch;
        if done % 100 == 0 {
            println!("{done} pods in {:.0} s", begun.elapsed().as_secs_f64());
        }
        if done % 200 == 0 {
            leaks::expect_none(server, &before).await?;
        }
    }
    println!("{total} pods in {:.1} s", begun.elapsed().as_secs_f64());
    leaks::expect_none(server, &before).await
}

/// What one of several pods at once needs of the server.
struct Handle {
    runtime: runtime_service_client::RuntimeServiceClient<tonic::transport::Channel>,
}

impl Handle {
    fn of(server: &Server) -> Handle {
        Handle {
            runtime: server.runtime.clone(),
        }
    }
}

async fn one_pod(handle: &mut Handle, pod: PodSandboxConfig) -> Result<()> {
    let runtime = &mut handle.runtime;
    let request = RunPodSandboxRequest {
        config: Some(pod.clone()),
        ..Default::default()
    };
    let sandbox = runtime
        .run_pod_sandbox(request)
        .await?
        .into_inner()
        .pod_sandbox_id;
    for (name, command) in [
        ("long", &["sleep", "1000"][..]),
        ("orphans", &["sh", "-c", "(sleep 900 &) ; sleep 1000"]),
    ] {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(container(name, command)),
            sandbox_config: Some(pod.clone()),
        };
        let container_id = runtime
            .create_container(request)
            .await?
            .into_inner()
            .container_id;
        let request = StartContainerRequest {
            container_id: container_id.clone(),
        };
        runtime.start_container(request).await?;
        let request = ExecSyncRequest {
            container_id,
            cmd: vec!["true".into()],
            timeout: 120,
        };
        let output = runtime.exec_sync(request).await?.into_inner();
        ensure!(output.exit_code == 0, "{output:?}");
    }
    let request = StopPodSandboxRequest {
        pod_sandbox_id: sandbox.clone(),
    };
    runtime.stop_pod_sandbox(request).await?;
    let request = RemovePodSandboxRequest {
        pod_sandbox_id: sandbox,
    };
    runtime.remove_pod_sandbox(request).await?;
    Ok(())
}

#[test]
fn a_server_that_dies_anywhere_recovers() {
    with_server(&[], async |server| {
        on_a_bridge(server, die_everywhere).await
    });
}

/// What has been promised by an answer and must still be so after a death.
#[derive(Default)]
struct Promised {
    ready: Option<String>,
    running: Option<String>,
}

async fn die_everywhere(server: &mut Server) -> Result<()> {
    let registry = Registry::start(&server.directory, Demands::default()).await?;
    let archive = Archive {
        layers: vec![
            busybox_layer(),
            Layer::new().file("pulled", 0o644, b"yes").finish(),
        ],
        ..Archive::default()
    };
    let path = archive.write(&server.directory.join("archives"));
    registry.push(&path, "team/box:v1")?;
    let image = registry.name("team/box:v1");
    story(server, &image, &mut Promised::default()).await?;
    let before = leaks::inventory(server);
    // The short form takes long strides through the points, the long one takes them all, again and
    // again.
    let (rounds, stride) = match number("KILL_ROUNDS", 0) {
        0 => (usize::MAX, 13),
        rounds => (rounds, 1),
    };
    let (mut point, mut deaths, mut last) = (1, 0, 0);
    for round in 0..rounds {
        server.kill()?;
        server.environment = vec![("TEST_DIE_AT", point.to_string())];
        let mut promised = Promised::default();
        let told = match server.launch().await {
            Ok(()) => story(server, &image, &mut promised).await,
            Err(error) => Err(error),
        };
        // The connection breaks a moment before the process is seen to be gone.
        let mut died = server.has_died();
        for _ in 0..600 {
            if died || told.is_ok() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            died = server.has_died();
        }
        ensure!(
            died || told.is_ok(),
            "round {round}, point {point}: {told:?}"
        );
        server.kill()?;
        server.environment.clear();
        server.launch().await?;
        after_death(server, &image, &promised)
            .await
            .with_context(|| format!("round {round}, after a death at point {point}"))?;
        leaks::expect_none(server, &before)
            .await
            .with_context(|| format!("round {round}, after a death at point {point}"))?;
        if died {
            deaths += 1;
            point += stride;
        } else {
            // The story was told to its end: there is no such point.
            ensure!(deaths > 0, "no point was reached");
            last = last.max(point - 1);
            if stride > 1 {
                break;
            }
            point = 1;
        }
    }
    println!("{deaths} deaths, {last} points");
    Ok(())
}

/// Every call that changes something, each once.
async fn story(server: &mut Server, image: &str, promised: &mut Promised) -> Result<()> {
    let spec = Some(ImageSpec {
        image: image.into(),
        ..Default::default()
    });
    let pull = PullImageRequest {
        image: spec.clone(),
        ..Default::default()
    };
    server.images.pull_image(pull).await?;
    let pod = pod_config(server, "story");
    let sandbox = server.run_sandbox(&pod).await?;
    promised.ready = Some(sandbox.clone());
    let mut config = container("main", &["sleep", "1000"]);
    config.image = spec.clone();
    let id = server.create(&sandbox, &pod, config).await?;
    server.start_container(&id).await?;
    promised.running = Some(id.clone());
    ensure!(server.output(&id, &["cat", "/pulled"]).await? == "yes");
    promised.running = None;
    let stop = StopContainerRequest {
        container_id: id.clone(),
        timeout: 1,
    };
    server.runtime.stop_container(stop).await?;
    let remove = RemoveContainerRequest { container_id: id };
    server.runtime.remove_container(remove).await?;
    let second = server
        .run(&sandbox, &pod, container("second", &["sleep", "1000"]))
        .await?;
    promised.running = Some(second);
    promised.running = None;
    promised.ready = None;
    server.remove_sandbox(&sandbox).await?;
    let remove = RemoveImageRequest { image: spec };
    server.images.remove_image(remove).await?;
    Ok(())
}

/// What was promised holds, and everything that is there can be used or removed.
async fn after_death(server: &mut Server, image: &str, promised: &Promised) -> Result<()> {
    let sandboxes = server
        .runtime
        .list_pod_sandbox(ListPodSandboxRequest::default())
        .await?
        .into_inner()
        .items;
    if let Some(id) = &promised.ready {
        let found = sandboxes.iter().find(|sandbox| sandbox.id == *id);
        let found = found.context("a sandbox is lost")?;
        ensure!(found.state() == PodSandboxState::SandboxReady, "{found:?}");
    }
    if let Some(id) = &promised.running {
        let status = server.status(id).await?;
        ensure!(
            status.state() == ContainerState::ContainerRunning,
            "{status:?}"
        );
        ensure!(server.output(id, &["echo", "alive"]).await? == "alive");
    }
    for sandbox in &sandboxes {
        server.remove_sandbox(&sandbox.id).await?;
    }
    let containers = server
        .runtime
        .list_containers(ListContainersRequest::default())
        .await?
        .into_inner()
        .containers;
    ensure!(containers.is_empty(), "{containers:?}");
    // The name is free again, and the image is whole or gone.
    let spec = Some(ImageSpec {
        image: image.into(),
        ..Default::default()
    });
    let pull = PullImageRequest {
        image: spec.clone(),
        ..Default::default()
    };
    server.images.pull_image(pull).await?;
    let sandbox = server.run_sandbox(&pod_config(server, "story")).await?;
    server.remove_sandbox(&sandbox).await?;
    let remove = RemoveImageRequest { image: spec };
    server.images.remove_image(remove).await?;
    Ok(())
}
