//! `scripts/bench runtime`: sandbox, create, start, exec and stop through CRI, of the embedded runtime
//! and of containerd with runc in turns, with the same machine, image and CNI plugins; and as the lower
//! bound a bare OCI create and start.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use cri::v1::*;
use environment::Environment;

const ROUNDS: usize = 30;
const STEPS: [&str; 6] = ["sandbox", "create", "start", "exec", "stop", "remove"];
const IMAGE: &str = "docker.io/library/coracle-bench:1";

/// Needs the test image, and a pause image for containerd's sandboxes.
pub async fn bench(binary: &Path, image: &Path, pause: &Path) -> Result<()> {
    let directory = tempfile::Builder::new()
        .prefix("coracle-bench-runtime-")
        .tempdir()?;
    let environment = Environment::system();
    floor(binary, image, directory.path(), &environment)?;
    let (mut ours, mut theirs) = (
        Contestant::ours(binary, image, &directory.path().join("ours")).await?,
        Contestant::containerd(image, pause, &directory.path().join("containerd")).await?,
    );
    let mut times = [vec![Vec::new(); 7], vec![Vec::new(); 7]];
    // The first round of each fills caches and is not counted.
    for round in 0..=ROUNDS {
        for (number, contestant) in [&mut ours, &mut theirs].into_iter().enumerate() {
            let taken = contestant.round(round, &environment).await?;
            if round > 0 {
                for (step, milliseconds) in taken.iter().enumerate() {
                    times[number][step].push(*milliseconds);
                }
                times[number][6].push(taken[0] + taken[1] + taken[2]);
            }
        }
    }
    for contestant in [&mut ours, &mut theirs] {
        contestant.end().await?;
    }
    println!(
        "through CRI, {ROUNDS} rounds     coracle p50    p99   containerd+runc p50    p99   ratio"
    );
    for (step, name) in STEPS.into_iter().chain(["sandbox to running"]).enumerate() {
        let (our_p50, our_p99) = spread(&mut times[0][step]);
        let (their_p50, their_p99) = spread(&mut times[1][step]);
        println!(
            "{name:<24} {our_p50:>10.1} ms {our_p99:>6.1} {their_p50:>17.1} ms {their_p99:>6.1} {:>6.1}x",
            their_p50 / our_p50
        );
    }
    Ok(())
}

fn spread(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |fraction: f64| values[((values.len() - 1) as f64 * fraction).round() as usize];
    (at(0.5), at(0.99))
}

/// A runtime's process and its CRI clients. Ended and cleaned up on drop.
struct Contestant {
    name: &'static str,
    process: Child,
    directory: PathBuf,
    runtime: runtime_service_client::RuntimeServiceClient<cri::Calling>,
}

impl Contestant {
    async fn ours(binary: &Path, image: &Path, directory: &Path) -> Result<Contestant> {
        std::fs::create_dir_all(directory)?;
        run(Command::new(binary)
            .args(["image", "import"])
            .arg(image)
            .arg("--data-dir")
            .arg(directory))?;
        write_network(directory, "crbo", 41)?;
        let mut command = Command::new(binary);
        command.arg("runtime").arg("--data-dir").arg(directory);
        command.args([
            "--log",
            "warn",
            "--cni-bin-dir",
            "/usr/lib/cni",
            "--cni-conf-dir",
        ]);
        command.arg(directory.join("cni"));
        Contestant::start("ours", command, directory, "cri.sock").await
    }

    async fn containerd(image: &Path, pause: &Path, directory: &Path) -> Result<Contestant> {
        std::fs::create_dir_all(directory)?;
        write_network(directory, "crbt", 42)?;
        let place = |name: &str| directory.join(name).display().to_string();
        let config = format!(
            "version = 2\nroot = \"{}\"\nstate = \"{}\"\n[grpc]\n  address = \"{}\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"docker.io/library/coracle-pause:1\"\n  restrict_oom_score_adj = true\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/usr/lib/cni\"\n  conf_dir = \"{}\"\n",
            place("root"),
            place("state"),
            place("cri.sock"),
            place("cni")
        );
        std::fs::write(directory.join("config.toml"), config)?;
        let mut command = Command::new("containerd");
        command.arg("--config").arg(directory.join("config.toml"));
        let contestant = Contestant::start("containerd", command, directory, "cri.sock").await?;
        for archive in [image, pause] {
            run(Command::new("ctr")
                .arg("--address")
                .arg(directory.join("cri.sock"))
                .args(["--namespace", "k8s.io", "images", "import"])
                .arg(archive))?;
        }
        Ok(contestant)
    }

    async fn start(
        name: &'static str,
        mut command: Command,
        directory: &Path,
        socket: &str,
    ) -> Result<Contestant> {
        let log = std::fs::File::create(directory.join("log"))?;
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let socket = directory.join(socket);
        for _ in 0..3000 {
            if let Ok(client) = cri::Client::connect(&socket) {
                let mut runtime = client.runtime.clone();
                if runtime.version(VersionRequest::default()).await.is_ok() {
                    return Ok(Contestant {
                        name,
                        process,
                        directory: directory.to_owned(),
                        runtime,
                    });
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!(
            "{name} does not answer: {}",
            std::fs::read_to_string(directory.join("log"))?
        )
    }

    /// Keeps the client connections running meanwhile: a server waits until its clients disconnect.
    async fn end(&mut self) -> Result<()> {
        let pid = self.process.id().to_string();
        run(Command::new("kill").arg(pid))?;
        for _ in 0..1500 {
            if self.process.try_wait()?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("{} does not end", self.name)
    }

    /// One pod with one container, and how many milliseconds each step took.
    async fn round(&mut self, number: usize, environment: &Environment) -> Result<[f64; 6]> {
        let pod = self.pod(number);
        let clock = || environment.now_micros();
        let mut marks = vec![clock()];
        let runtime = &mut self.runtime;
        let request = RunPodSandboxRequest {
            config: Some(pod.clone()),
            ..Default::default()
        };
        let sandbox = runtime
            .run_pod_sandbox(request)
            .await?
            .into_inner()
            .pod_sandbox_id;
        marks.push(clock());
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(container()),
            sandbox_config: Some(pod),
        };
        let container_id = runtime
            .create_container(request)
            .await?
            .into_inner()
            .container_id;
        marks.push(clock());
        let request = StartContainerRequest {
            container_id: container_id.clone(),
        };
        runtime.start_container(request).await?;
        marks.push(clock());
        let request = ExecSyncRequest {
            container_id: container_id.clone(),
            cmd: vec!["/bin/true".into()],
            timeout: 60,
        };
        let output = runtime.exec_sync(request).await?.into_inner();
        ensure!(output.exit_code == 0, "{output:?}");
        marks.push(clock());
        let request = StopContainerRequest {
            container_id,
            timeout: 0,
        };
        runtime.stop_container(request).await?;
        marks.push(clock());
        let request = StopPodSandboxRequest {
            pod_sandbox_id: sandbox.clone(),
        };
        runtime.stop_pod_sandbox(request).await?;
        let request = RemovePodSandboxRequest {
            pod_sandbox_id: sandbox,
        };
        runtime.remove_pod_sandbox(request).await?;
        marks.push(clock());
        Ok(std::array::from_fn(|step| {
            (marks[step + 1] - marks[step]) as f64 / 1000.0
        }))
    }

    fn pod(&self, number: usize) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: format!("bench{number}"),
                uid: format!("bench{number}"),
                namespace: "default".into(),
                attempt: 0,
            }),
            hostname: "bench".into(),
            log_directory: self.directory.join("logs").display().to_string(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: cgroup_parent(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}

fn cgroup_parent() -> String {
    format!("/coracle-bench-{}", std::process::id())
}

fn container() -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: "main".into(),
            attempt: 0,
        }),
        image: Some(ImageSpec {
            image: IMAGE.into(),
            ..Default::default()
        }),
        command: vec!["/bin/sleep".into(), "1000".into()],
        log_path: "main.log".into(),
        linux: Some(LinuxContainerConfig {
            resources: Some(LinuxContainerResources {
                memory_limit_in_bytes: 256 << 20,
                cpu_shares: 512,
                oom_score_adj: 500,
                ..Default::default()
            }),
            security_context: Some(LinuxContainerSecurityContext {
                namespace_options: Some(NamespaceOption {
                    pid: NamespaceMode::Container.into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        if !matches!(self.process.try_wait(), Ok(Some(_))) {
            let pid = self.process.id().to_string();
            let _ = Command::new("kill").arg(pid).status();
            let _ = self.process.wait();
        }
        let link = if self.name == "ours" { "crbo" } else { "crbt" };
        let bridge = format!("{link}{}", std::process::id());
        let _ = Command::new("ip")
            .args(["link", "delete", &bridge])
            .stderr(Stdio::null())
            .status();
        // Mounts below the directory would prevent its removal.
        let below = self.directory.display().to_string();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut points: Vec<&str> = table
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .collect();
        points.reverse();
        for point in points.into_iter().filter(|point| point.starts_with(&below)) {
            let _ = Command::new("umount").args(["-l", point]).status();
        }
        for hierarchy in std::fs::read_dir("/sys/fs/cgroup")
            .into_iter()
            .flatten()
            .flatten()
        {
            let _ = std::fs::remove_dir(hierarchy.path().join(&cgroup_parent()[1..]));
        }
    }
}

/// The same chain for both: Debian's bridge with host-local addresses.
fn write_network(directory: &Path, link: &str, subnet: u8) -> Result<()> {
    let configuration = serde_json::json!({
        "cniVersion": "0.4.0", "name": format!("{link}{}", std::process::id()),
        "plugins": [{
            "type": "bridge", "bridge": format!("{link}{}", std::process::id()), "isGateway": true,
            "ipam": {
                "type": "host-local", "dataDir": directory.join("ipam"),
                "ranges": [[{"subnet": format!("10.232.{subnet}.0/24")}]],
            },
        }],
    });
    let conf = directory.join("cni");
    std::fs::create_dir_all(&conf)?;
    Ok(std::fs::write(
        conf.join("10-bench.conflist"),
        configuration.to_string(),
    )?)
}

/// Create and start of one bundle by each OCI runtime, without CRI.
fn floor(binary: &Path, image: &Path, directory: &Path, environment: &Environment) -> Result<()> {
    let bundle = directory.join("bundle");
    let rootfs = bundle.join("rootfs");
    std::fs::create_dir_all(&rootfs)?;
    unpack(image, &rootfs, directory)?;
    run(Command::new("runc").arg("spec").current_dir(&bundle))?;
    let file = bundle.join("config.json");
    let mut spec: serde_json::Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    spec["process"]["args"] = serde_json::json!(["/bin/sleep", "1000"]);
    spec["process"]["terminal"] = false.into();
    spec["process"]["rlimits"] = serde_json::json!([]);
    spec["root"]["readonly"] = false.into();
    spec["linux"]["cgroupsPath"] = cgroup_parent().into();
    std::fs::write(&file, spec.to_string())?;
    let ours: Vec<&std::ffi::OsStr> = vec![binary.as_os_str(), "oci".as_ref()];
    let runc: Vec<&std::ffi::OsStr> = vec!["runc".as_ref()];
    println!("bare create and start, {ROUNDS} rounds");
    for (name, command) in [("coracle oci", ours), ("runc", runc)] {
        let state = directory.join(name.replace(' ', "-"));
        let call = |arguments: &[&str]| {
            let mut call = Command::new(command[0]);
            call.args(&command[1..])
                .arg("--root")
                .arg(&state)
                .args(arguments);
            call.stdin(Stdio::null()).stdout(Stdio::null());
            call
        };
        let mut times = Vec::new();
        for round in 0..=ROUNDS {
            let id = format!("floor{round}");
            let began = environment.now_micros();
            let place = bundle.display().to_string();
            // Its output must not be a pipe of this process, because the container keeps it open.
            let created = call(&["create", "--bundle", &place, &id]).status()?;
            ensure!(created.success(), "{name} create");
            let started = call(&["start", &id]).status()?;
            ensure!(started.success(), "{name} start");
            if round > 0 {
                times.push((environment.now_micros() - began) as f64 / 1000.0);
            }
            call(&["delete", "--force", &id]).status()?;
        }
        let (p50, p99) = spread(&mut times);
        println!("{name:<24} {p50:>10.1} ms {p99:>6.1}");
    }
    Ok(())
}

/// The image's only layer.
fn unpack(image: &Path, rootfs: &Path, directory: &Path) -> Result<()> {
    let layout = directory.join("layout");
    std::fs::create_dir_all(&layout)?;
    run(Command::new("tar")
        .arg("-C")
        .arg(&layout)
        .arg("-xf")
        .arg(image))?;
    let read = |digest: &str| -> Result<serde_json::Value> {
        let hex = digest.trim_start_matches("sha256:");
        Ok(serde_json::from_slice(&std::fs::read(
            layout.join("blobs/sha256").join(hex),
        )?)?)
    };
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(layout.join("index.json"))?)?;
    let digest = index["manifests"][0]["digest"]
        .as_str()
        .context("manifest")?;
    let layer = read(digest)?["layers"][0]["digest"]
        .as_str()
        .context("layer")?
        .to_owned();
    let blob = layout
        .join("blobs/sha256")
        .join(layer.trim_start_matches("sha256:"));
    run(Command::new("tar")
        .arg("-C")
        .arg(rootfs)
        .arg("-xzf")
        .arg(blob))?;
    std::fs::set_permissions(rootfs, std::fs::Permissions::from_mode(0o755))?;
    for part in ["proc", "dev", "sys"] {
        std::fs::create_dir_all(rootfs.join(part))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
