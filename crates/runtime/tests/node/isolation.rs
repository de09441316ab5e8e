//! Users of a pod's own, mounts that are read-only all the way down or shared with the host, other
//! OCI runtimes by handler, and the metrics that a kubelet reads.

use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, ensure};
use cri::v1::*;

use super::server::{Server, container, with_server};

const FIRST: u32 = 200_000;

pub fn mapping() -> Vec<IdMapping> {
    vec![IdMapping {
        host_id: FIRST,
        container_id: 0,
        length: 65536,
    }]
}

pub fn with_users(pod: &mut PodSandboxConfig, mode: NamespaceMode, mappings: &[IdMapping]) {
    let options = pod
        .linux
        .get_or_insert_default()
        .security_context
        .get_or_insert_default()
        .namespace_options
        .get_or_insert_default();
    options.userns_options = Some(UserNamespace {
        mode: mode.into(),
        uids: mappings.to_vec(),
        gids: mappings.to_vec(),
    });
}

/// Whether this machine can run pods with user namespaces: Kubernetes requires Linux 6.3, whose tmpfs
/// supports ID-mapped mounts. Records the test as skipped where it cannot.
pub fn maps_users() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let can = version >= (6, 3);
    if !can {
        environment::skip_test("pods with user namespaces need Linux 6.3");
    }
    can
}

#[test]
fn a_pod_has_users_of_its_own() {
    with_server(&[], async |server| {
        if !maps_users() {
            return Ok(());
        }
        let bridge = server.configure_bridge()?;
        let result = users(server).await;
        delete_link(&bridge);
        result
    });
}

#[test]
fn a_pod_has_users_of_its_own_with_runc() {
    with_server(&["/usr/sbin/runc"], async |server| {
        if !maps_users() {
            return Ok(());
        }
        let bridge = server.configure_bridge()?;
        let result = users(server).await;
        delete_link(&bridge);
        result
    });
}

fn delete_link(name: &str) {
    let _ = std::process::Command::new("ip")
        .args(["link", "delete", name])
        .status();
}

async fn users(server: &mut Server) -> Result<()> {
    let volume = server.directory.join("volume");
    std::fs::create_dir_all(&volume)?;
    std::fs::write(volume.join("of-root"), "content")?;
    let mut pod = server.sandbox_config("users", false);
    with_users(&mut pod, NamespaceMode::Pod, &mapping());
    let sandbox = server.run_sandbox(&pod).await?;
    let mut config = container("users", &["sleep", "1000"]);
    config.mounts = vec![Mount {
        container_path: "/volume".into(),
        host_path: volume.to_string_lossy().into_owned(),
        uid_mappings: mapping(),
        gid_mappings: mapping(),
        ..Default::default()
    }];
    config.working_dir = "/made/here".into();
    let id = server.run(&sandbox, &pod, config).await?;
    // Inside it is root and owns what root owns in the image and the volume.
    let line = server.output(&id, &["cat", "/proc/self/uid_map"]).await?;
    let numbers: Vec<&str> = line.split_whitespace().collect();
    ensure!(numbers == ["0", "200000", "65536"], "{line}");
    for path in [
        "/bin",
        "/volume/of-root",
        "/etc/hosts",
        "/dev/shm",
        "/made/here",
    ] {
        let owner = server
            .output(&id, &["stat", "-L", "-c", "%u:%g", path])
            .await?;
        ensure!(owner == "0:0", "{path}: {owner}");
    }
    server
        .output(
            &id,
            &["sh", "-c", "echo new > /volume/made; echo x > /bin/made"],
        )
        .await?;
    let made = std::fs::metadata(volume.join("made"))?;
    ensure!(
        made.uid() == 0,
        "on the host the volume's new file is root's"
    );
    // Outside it is nobody in particular.
    let pid = server.pid(&id).await?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    ensure!(
        status.contains(&format!("Uid:\t{FIRST}")),
        "the process runs as the mapped user: {status}"
    );
    let execed = server
        .output(
            &id,
            &[
                "sh",
                "-c",
                "ip link show eth0; grep Seccomp: /proc/self/status",
            ],
        )
        .await?;
    ensure!(execed.contains("eth0") && execed.ends_with('2'), "{execed}");
    server.remove_sandbox(&sandbox).await?;
    for part in ["userns", "netns", "mapped"] {
        let left = std::fs::read_dir(server.state().join(part))?.count();
        ensure!(left == 0, "{part}: {left} left");
    }
    Ok(())
}

#[test]
fn invalid_user_namespace_options_are_refused() {
    with_server(&[], async |server| {
        for (mode, mappings) in [
            (NamespaceMode::Container, vec![]),
            (NamespaceMode::Target, vec![]),
            (NamespaceMode::Pod, vec![]),
            (NamespaceMode::Pod, [mapping(), mapping()].concat()),
            (NamespaceMode::Node, mapping()),
        ] {
            let mut pod = server.sandbox_config("wrong", false);
            with_users(&mut pod, mode, &mappings);
            let refused = server.run_sandbox(&pod).await;
            ensure!(refused.is_err(), "{mode:?} {mappings:?}");
        }
        let mut pod = server.sandbox_config("wrong", true);
        with_users(&mut pod, NamespaceMode::Pod, &mapping());
        ensure!(
            server.run_sandbox(&pod).await.is_err(),
            "the host's network"
        );
        let request = ListPodSandboxRequest::default();
        let left = server.runtime.list_pod_sandbox(request).await?;
        ensure!(left.into_inner().items.is_empty());
        Ok(())
    });
}

/// A directory that is a mount of its own, shared, until it is dropped.
struct Shared(std::path::PathBuf);

impl Shared {
    fn new(path: std::path::PathBuf) -> Result<Shared> {
        use nix::mount::{MsFlags, mount};
        std::fs::create_dir_all(&path)?;
        let none = None::<&str>;
        mount(Some(&path), &path, none, MsFlags::MS_BIND, none)?;
        let shared = Shared(path);
        mount(none, &shared.0, none, MsFlags::MS_SHARED, none)?;
        Ok(shared)
    }

    fn mount_below(&self, name: &str) -> Result<()> {
        use nix::mount::{MsFlags, mount};
        let target = self.0.join(name);
        std::fs::create_dir_all(&target)?;
        let kind = Some("tmpfs");
        mount(kind, &target, kind, MsFlags::empty(), None::<&str>)?;
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        while nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH).is_ok() {}
    }
}

#[test]
fn mounts_are_read_only_below_and_shared_as_asked() {
    with_server(&[], mounts);
}

#[test]
fn mounts_are_read_only_below_and_shared_as_asked_with_runc() {
    with_server(&["/usr/sbin/runc"], mounts);
}

async fn mounts(server: &mut Server) -> Result<()> {
    let shared = Shared::new(server.directory.join("shared"))?;
    shared.mount_below("before")?;
    let pod = server.sandbox_config("mounts", true);
    let sandbox = server.run_sandbox(&pod).await?;
    let mount = |path: &str, readonly, recursive, propagation: MountPropagation| Mount {
        container_path: path.into(),
        host_path: shared.0.to_string_lossy().into_owned(),
        readonly,
        recursive_read_only: recursive,
        propagation: propagation.into(),
        ..Default::default()
    };
    let private = MountPropagation::PropagationPrivate;
    let from_host = MountPropagation::PropagationHostToContainer;
    let both_ways = MountPropagation::PropagationBidirectional;
    let mut config = container("mounts", &["sleep", "1000"]);
    config.mounts = vec![
        mount("/ro", true, false, private),
        mount("/rro", true, true, private),
        mount("/slave", false, false, from_host),
        mount("/shared", false, false, both_ways),
    ];
    let security = config
        .linux
        .get_or_insert_default()
        .security_context
        .get_or_insert_default();
    security.privileged = true;
    let id = server.run(&sandbox, &pod, config.clone()).await?;
    // What shares least decides nothing for the others, whatever these are.
    let mut plain = container("plain", &["sleep", "1000"]);
    plain.mounts = vec![mount("/ro", true, false, private)];
    let plain = server.run(&sandbox, &pod, plain).await?;
    let mut mixed = container("mixed", &["sleep", "1000"]);
    mixed.mounts = vec![
        mount("/ro", true, false, private),
        mount("/slave", false, false, from_host),
    ];
    let mixed = server.run(&sandbox, &pod, mixed).await?;
    server.output(&id, &["touch", "/ro/before/fine"]).await?;
    for refused in ["/ro/x", "/rro/x", "/rro/before/x"] {
        let code = server.exec(&id, &["touch", refused], 120).await?.exit_code;
        ensure!(code != 0, "{refused} was written");
    }
    let reported = server.status(&id).await?.mounts;
    ensure!(
        reported
            .iter()
            .filter(|mount| mount.recursive_read_only)
            .count()
            == 1
    );
    shared.mount_below("after")?;
    std::fs::write(shared.0.join("after/flag"), "")?;
    for (container, path, expected) in [
        (&id, "/slave", true),
        (&id, "/shared", true),
        (&id, "/ro", false),
        (&plain, "/ro", false),
        (&mixed, "/ro", false),
        (&mixed, "/slave", true),
    ] {
        let flag = format!("{path}/after/flag");
        let seen = server
            .exec(container, &["stat", &flag], 120)
            .await?
            .exit_code
            == 0;
        ensure!(seen == expected, "{flag}");
    }
    let script =
        "mkdir -p /shared/inside && mount -t tmpfs x /shared/inside && touch /shared/inside/flag";
    server.output(&id, &["sh", "-c", script]).await?;
    ensure!(
        shared.0.join("inside/flag").exists(),
        "not told to the host"
    );
    for (number, wrong) in [
        mount("/x", false, true, private),
        mount("/x", true, true, from_host),
        mount("/x", true, true, both_ways),
    ]
    .into_iter()
    .enumerate()
    {
        let mut config = container(&format!("wrong-{number}"), &["sleep", "1"]);
        config.mounts = vec![wrong];
        ensure!(server.create(&sandbox, &pod, config).await.is_err());
    }
    server.remove_sandbox(&sandbox).await?;
    drop(shared);
    Ok(())
}

#[test]
fn a_handler_chooses_the_oci_runtime() {
    with_server(&[], async |server| {
        let pod = server.sandbox_config("handled", true);
        let request = |handler: &str| RunPodSandboxRequest {
            config: Some(pod.clone()),
            runtime_handler: handler.into(),
        };
        let refused = server.runtime.run_pod_sandbox(request("nothing")).await;
        let refused = refused.err().context("an unknown handler")?;
        ensure!(
            refused.message() == "no runtime for \"nothing\" is configured",
            "{refused}"
        );
        let status = server
            .runtime
            .status(StatusRequest { verbose: true })
            .await?;
        let status = status.into_inner();
        let features = |name: &str| {
            let mut handlers = status.runtime_handlers.iter();
            handlers.find(|handler| handler.name == name)?.features
        };
        let ours = features("").context("the default handler")?;
        ensure!(ours.recursive_read_only_mounts && ours.user_namespaces);
        ensure!(features("runc").context("runc")?.recursive_read_only_mounts);
        ensure!(status.info["config"].contains("stateDir"));
        let sandbox = server.runtime.run_pod_sandbox(request("runc")).await?;
        let sandbox = sandbox.into_inner().pod_sandbox_id;
        let id = server
            .run(&sandbox, &pod, container("c", &["sleep", "1000"]))
            .await?;
        ensure!(server.output(&id, &["echo", "by runc"]).await? == "by runc");
        // runc keeps its state where the shim told it to; ours would have another form.
        let state = server.state().join("shims").join(&sandbox);
        ensure!(
            contains_file(&state, "state.json", "\"init_process_pid\""),
            "no state of runc's below {}",
            state.display()
        );
        metrics(server, &sandbox, &id).await?;
        server.remove_sandbox(&sandbox).await
    });
}

fn contains_file(directory: &std::path::Path, name: &str, text: &str) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => contains_file(&path, name, text),
            false => {
                path.ends_with(name)
                    && std::fs::read_to_string(&path).is_ok_and(|found| found.contains(text))
            }
        }
    })
}

async fn metrics(server: &mut Server, sandbox: &str, container: &str) -> Result<()> {
    let request = ListMetricDescriptorsRequest::default();
    let described = server.runtime.list_metric_descriptors(request).await?;
    let described = described.into_inner().descriptors;
    let request = ListPodSandboxMetricsRequest::default();
    let found = server.runtime.list_pod_sandbox_metrics(request).await?;
    let found = found.into_inner().pod_metrics;
    let pod = found.first().context("no metrics")?;
    ensure!(pod.pod_sandbox_id == sandbox);
    let one = pod.container_metrics.first().context("no container")?;
    ensure!(one.container_id == container);
    for wanted in ["container_memory_usage_bytes", "container_processes"] {
        let metric = one.metrics.iter().find(|metric| metric.name == wanted);
        let value = metric.and_then(|metric| metric.value).context(wanted)?;
        ensure!(value.value > 0, "{wanted}");
    }
    for metric in one.metrics.iter().chain(&pod.metrics) {
        let descriptor = described.iter().find(|known| known.name == metric.name);
        let labels = &descriptor.context(metric.name.clone())?.label_keys;
        ensure!(labels.len() == metric.label_values.len(), "{}", metric.name);
    }
    Ok(())
}
