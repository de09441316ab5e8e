//! A server process in a directory of its own, removed with everything it made when dropped.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use cri::v1::{
    image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient, *,
};
use dbus::slice;
use runtime::images::ImageStore;
use tonic::transport::Channel;

use super::image::{Archive, BUSYBOX};

pub struct Server {
    pub directory: PathBuf,
    pub cluster_id: String,
    /// Which server of this process it is.
    number: u32,
    oci: Vec<String>,
    process: Option<Child>,
    /// For the next launch.
    pub environment: Vec<(&'static str, String)>,
    pub runtime: RuntimeServiceClient<Channel>,
    pub images: ImageServiceClient<Channel>,
}

/// The example binary. `cargo test -p runtime` builds it beside the tests; a narrower command does
/// not, and then it is built here.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let mut path = std::env::current_exe().expect("our own path");
        path.pop();
        path.pop();
        let path = path.join("examples/node");
        let changed = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        if changed(&path).is_none_or(|built| newest(&sources).is_some_and(|source| source > built))
        {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let status = Command::new(cargo)
                .args(["build", "-q", "-p", "runtime", "--example", "node"])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .expect("cargo runs");
            assert!(status.success(), "the example builds");
        }
        path
    })
}

fn newest(directory: &Path) -> Option<std::time::SystemTime> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    entries
        .filter_map(|entry| match entry.file_type().ok()?.is_dir() {
            true => newest(&entry.path()),
            false => entry.metadata().ok()?.modified().ok(),
        })
        .max()
}

/// Whether servers are told that systemd makes cgroups (`make test-vm` does so).
pub fn with_systemd() -> bool {
    std::env::var("CGROUP_DRIVER").is_ok_and(|name| name == "systemd")
}

/// Runs a test against a server, then checks that nothing is left of it.
pub fn with_server<F: AsyncFnOnce(&mut Server) -> Result<()>>(oci: &[&str], test: F) {
    with_prepared_server(oci, |_| Ok(()), test);
}

/// The same, with something done to the new directory before anything is put into it.
pub fn with_prepared_server<F: AsyncFnOnce(&mut Server) -> Result<()>>(
    oci: &[&str],
    prepare: impl FnOnce(&Path) -> Result<()>,
    test: F,
) {
    assert!(nix::unistd::geteuid().is_root(), "these tests need root");
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("tokio");
    tokio.block_on(async {
        let mut server = Server::new(oci).expect("a directory");
        let result = match server.begin(prepare).await {
            Ok(()) => test(&mut server).await,
            Err(error) => Err(error.context("the server does not start")),
        };
        let log = std::fs::read_to_string(server.directory.join("server.log")).unwrap_or_default();
        let cleaned = server.clean_up().await;
        if let Err(error) = result {
            panic!("{error:?}\nserver log:\n{log}");
        }
        cleaned.expect("everything is removed");
    });
}

impl Server {
    fn new(oci: &[&str]) -> Result<Server> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cluster_id = format!("{:06x}", (std::process::id() << 8 | number) & 0xff_ffff);
        let directory = tempfile::Builder::new()
            .prefix("coracle-runtime-")
            .tempdir()?
            .keep();
        for part in ["cni", "logs", "archives"] {
            std::fs::create_dir_all(directory.join(part))?;
        }
        let channel = Channel::from_static("http://unused").connect_lazy();
        Ok(Server {
            directory,
            cluster_id,
            number,
            oci: oci.iter().map(|part| (*part).to_owned()).collect(),
            process: None,
            environment: Vec::new(),
            runtime: RuntimeServiceClient::new(channel.clone()),
            images: ImageServiceClient::new(channel),
        })
    }

    /// The first launch, with busybox imported.
    async fn begin(&mut self, prepare: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        prepare(&self.directory)?;
        let archive = Archive::default().write(&self.directory.join("archives"));
        ImageStore::open(&self.root())?.import(&archive, None)?;
        self.launch().await
    }

    pub fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    pub fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// Starts the process on whatever the directory holds.
    pub async fn launch(&mut self) -> Result<()> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.directory.join("server.log"))?;
        let _ = std::fs::remove_file(self.state().join("cri.sock"));
        let child = Command::new(binary())
            .arg("serve")
            .args([self.root(), self.state(), self.directory.join("cni")])
            .arg(&self.cluster_id)
            .args(&self.oci)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        self.process = Some(child);
        let socket = self.state().join("cri.sock");
        // Before it listens it may wait for its network, and removes what was left unfinished.
        for _ in 0..6000 {
            ensure!(!self.has_died(), "the server has ended");
            if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
                let connector = tower::service_fn(move |_| {
                    let socket = socket.clone();
                    async move {
                        Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(
                            tokio::net::UnixStream::connect(socket).await?,
                        ))
                    }
                });
                let channel = Channel::from_static("http://unused")
                    .connect_with_connector(connector)
                    .await?;
                self.runtime =
                    RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(64 << 20);
                self.images = ImageServiceClient::new(channel);
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::bail!("the server does not listen")
    }

    /// The server's own process, while there is one.
    pub fn server_pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// True once the process has ended by itself.
    pub fn has_died(&mut self) -> bool {
        let process = self.process.as_mut();
        process.is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// `kill -9` of the server.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.process.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// What remains must be nothing.
    async fn clean_up(&mut self) -> Result<()> {
        self.kill()?;
        // It waits for systemd where that makes the cgroups.
        tokio::task::block_in_place(|| {
            runtime::remove_all(&self.root(), &self.state(), &self.cluster_id)
        })?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let directory = self.directory.to_string_lossy().into_owned();
        ensure!(
            !mounts.contains(&directory),
            "mounts are left below {directory}"
        );
        for controller in std::fs::read_dir("/sys/fs/cgroup")?.flatten() {
            let group = controller
                .path()
                .join(format!("coracle-{}", self.cluster_id));
            ensure!(!group.exists(), "{} is left", group.display());
        }
        let slice = format!("/sys/fs/cgroup/coracle_{}.slice", self.cluster_id);
        ensure!(!Path::new(&slice).exists(), "{slice} is left");
        // What was just told to end, or ends because all it speaks to did, takes a moment.
        for _ in 0..600 {
            if processes_of(&directory).is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let left = processes_of(&directory);
        ensure!(left.is_empty(), "processes are left: {left:?}");
        std::fs::remove_dir_all(&self.directory)?;
        Ok(())
    }

    /// The cgroup of a pod, as the kubelet would name it with the driver that these tests run with.
    pub fn pod_group(&self, name: &str) -> String {
        let names = [
            &format!("coracle-{}", self.cluster_id),
            "kubepods",
            &format!("pod{name}"),
        ];
        match with_systemd() {
            true => slice::path(&slice::name(&names)).expect("a slice"),
            false => format!("/{}", names.join("/")),
        }
    }

    /// The cgroup of a container in it.
    pub fn group_of(&self, pod: &str, id: &str) -> String {
        match with_systemd() {
            true => format!(
                "{}/coracle-{}-{id}.scope",
                self.pod_group(pod),
                self.cluster_id
            ),
            false => format!("{}/{id}", self.pod_group(pod)),
        }
    }

    pub fn sandbox_config(&self, name: &str, host_network: bool) -> PodSandboxConfig {
        let mode = if host_network {
            NamespaceMode::Node
        } else {
            NamespaceMode::Pod
        };
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.into(),
                uid: format!("uid-{name}"),
                namespace: "default".into(),
                attempt: 0,
            }),
            hostname: if host_network {
                String::new()
            } else {
                name.into()
            },
            log_directory: self
                .directory
                .join("logs")
                .join(name)
                .to_string_lossy()
                .into_owned(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: self.pod_group(name),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(NamespaceOption {
                        network: mode.into(),
                        pid: NamespaceMode::Container.into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            labels: [("app".to_owned(), name.to_owned())].into(),
            ..Default::default()
        }
    }

    pub async fn run_sandbox(&mut self, config: &PodSandboxConfig) -> Result<String> {
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
            ..Default::default()
        };
        Ok(self
            .runtime
            .run_pod_sandbox(request)
            .await?
            .into_inner()
            .pod_sandbox_id)
    }

    pub async fn create(
        &mut self,
        sandbox: &str,
        pod: &PodSandboxConfig,
        config: ContainerConfig,
    ) -> Result<String> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config),
            sandbox_config: Some(pod.clone()),
        };
        Ok(self
            .runtime
            .create_container(request)
            .await?
            .into_inner()
            .container_id)
    }

    pub async fn start_container(&mut self, id: &str) -> Result<()> {
        self.runtime
            .start_container(StartContainerRequest {
                container_id: id.into(),
            })
            .await?;
        Ok(())
    }

    /// Creates and starts.
    pub async fn run(
        &mut self,
        sandbox: &str,
        pod: &PodSandboxConfig,
        config: ContainerConfig,
    ) -> Result<String> {
        let id = self.create(sandbox, pod, config).await?;
        self.start_container(&id).await?;
        Ok(id)
    }

    pub async fn status(&mut self, id: &str) -> Result<ContainerStatus> {
        let request = ContainerStatusRequest {
            container_id: id.into(),
            ..Default::default()
        };
        self.runtime
            .container_status(request)
            .await?
            .into_inner()
            .status
            .context("no status")
    }

    pub async fn pid(&mut self, id: &str) -> Result<i64> {
        let request = ContainerStatusRequest {
            container_id: id.into(),
            verbose: true,
        };
        let info = self
            .runtime
            .container_status(request)
            .await?
            .into_inner()
            .info;
        let info: serde_json::Value = serde_json::from_str(&info["info"])?;
        info["pid"].as_i64().context("no pid")
    }

    pub async fn wait_exit(&mut self, id: &str) -> Result<ContainerStatus> {
        for _ in 0..12_000 {
            let status = self.status(id).await?;
            if status.state() == ContainerState::ContainerExited {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!("container {id} does not end")
    }

    pub async fn exec(
        &mut self,
        id: &str,
        command: &[&str],
        timeout: i64,
    ) -> Result<ExecSyncResponse, tonic::Status> {
        let request = ExecSyncRequest {
            container_id: id.into(),
            cmd: command.iter().map(|part| (*part).to_owned()).collect(),
            timeout,
        };
        Ok(self.runtime.exec_sync(request).await?.into_inner())
    }

    /// Standard output of a command that must succeed.
    pub async fn output(&mut self, id: &str, command: &[&str]) -> Result<String> {
        let output = self.exec(id, command, 120).await?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(
            output.exit_code == 0,
            "{command:?}: {} {text} {:?}",
            output.exit_code,
            output.stderr
        );
        Ok(text)
    }

    /// The log's lines without their times.
    pub fn log(&self, pod: &str, path: &str) -> Vec<String> {
        let path = self.directory.join("logs").join(pod).join(path);
        std::fs::read_to_string(path)
            .unwrap_or_default()
            .lines()
            .map(|line| {
                line.split_once(' ')
                    .map_or(line, |(_, rest)| rest)
                    .to_owned()
            })
            .collect()
    }

    pub async fn remove_sandbox(&mut self, id: &str) -> Result<()> {
        self.runtime
            .stop_pod_sandbox(StopPodSandboxRequest {
                pod_sandbox_id: id.into(),
            })
            .await?;
        self.runtime
            .remove_pod_sandbox(RemovePodSandboxRequest {
                pod_sandbox_id: id.into(),
            })
            .await?;
        Ok(())
    }

    /// The beginning of the addresses that pods get on this server's bridge, and no others.
    pub fn addresses(&self) -> String {
        // Of the range for tests (RFC 2544), and elsewhere in it than other runs on this machine.
        let first = std::process::id() % 256 * 53;
        format!("198.18.{}.", (first + self.number) % 256)
    }

    /// Debian's bridge plugin on a bridge of this test's own.
    pub fn configure_bridge(&self) -> Result<String> {
        let bridge = format!("crt{}", self.cluster_id);
        let configuration = serde_json::json!({
            "cniVersion": "0.4.0", "name": format!("test-{}", self.cluster_id),
            "plugins": [{
                "type": "bridge", "bridge": bridge, "isGateway": true,
                "ipam": {
                    "type": "host-local", "dataDir": self.directory.join("ipam"),
                    "ranges": [[{"subnet": format!("{}0/24", self.addresses())}]],
                },
            }],
        });
        std::fs::write(
            self.directory.join("cni/10-test.conflist"),
            configuration.to_string(),
        )?;
        Ok(bridge)
    }
}

/// The command lines of living processes that name the directory.
fn processes_of(directory: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let named = processes.filter_map(|process| {
        let arguments = std::fs::read(process.path().join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
        (arguments.contains(directory) && !stat.contains(") Z")).then_some(arguments)
    });
    named.collect()
}

pub fn container(name: &str, command: &[&str]) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: name.into(),
            attempt: 0,
        }),
        image: Some(ImageSpec {
            image: BUSYBOX.into(),
            ..Default::default()
        }),
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        log_path: format!("{name}.log"),
        linux: Some(LinuxContainerConfig {
            resources: Some(LinuxContainerResources {
                oom_score_adj: 500,
                ..Default::default()
            }),
            security_context: Some(LinuxContainerSecurityContext {
                namespace_options: Some(NamespaceOption {
                    pid: NamespaceMode::Container.into(),
                    ..Default::default()
                }),
                seccomp: Some(SecurityProfile::default()),
                masked_paths: vec!["/proc/kcore".into(), "/proc/acpi".into()],
                readonly_paths: vec!["/proc/sys".into()],
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}
