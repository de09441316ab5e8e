//! Sandboxes: made, stopped and removed, each step repeatable.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cri::v1::{ContainerEventType, NamespaceMode, NamespaceOption, PodSandboxConfig};
use dbus::{
    slice::{self, Scope},
    systemd::Systemd,
};
use tokio::{
    io::unix::AsyncFd,
    sync::{mpsc, watch},
};

use super::{
    Error,
    mapped::Mapped,
    state::{Runtime, SandboxEntry, blocking},
};
use crate::{
    config::CgroupDriver,
    records::{SandboxPhase, SandboxRecord},
    sandbox::{
        cni::{Attachment, Network},
        netns,
        userns::{self, Mapping},
    },
    shim::{
        client,
        protocol::{self, ShimConfig},
    },
    spec::{self, SandboxInput, capabilities},
    sys,
};

/// How long a killed process may take to be gone.
const PATIENCE: Duration = Duration::from_secs(30);

impl Runtime {
    /// 1. The intent is recorded. 2. The namespace is made. 3. Network and pause process are set up
    ///    side by side, since neither needs the other. A failure takes everything back.
    pub async fn run_sandbox(
        &self,
        config: PodSandboxConfig,
        runtime_handler: String,
    ) -> Result<String, Error> {
        if self.0.config.oci_command_of(&runtime_handler).is_none() {
            return Err(Error::Invalid(format!(
                "no runtime for {runtime_handler:?} is configured"
            )));
        }
        self.expect_moves();
        let id = self.new_id();
        self.reserve_sandbox(&id, config, runtime_handler)?;
        match self.make_sandbox(&id).await {
            Ok(()) => {
                self.announce(&id, &id, ContainerEventType::ContainerCreatedEvent);
                self.announce(&id, &id, ContainerEventType::ContainerStartedEvent);
                Ok(id)
            }
            Err(error) => {
                // The first error is the one worth telling.
                if let Err(error) = self.remove_sandbox(&id).await {
                    tracing::warn!(%error, sandbox = id, "undoing a failed sandbox");
                }
                Err(error)
            }
        }
    }

    fn reserve_sandbox(
        &self,
        id: &str,
        config: PodSandboxConfig,
        runtime_handler: String,
    ) -> Result<(), Error> {
        let metadata = config
            .metadata
            .clone()
            .filter(|metadata| !metadata.name.is_empty() && !metadata.uid.is_empty())
            .ok_or_else(|| Error::Invalid("sandbox config must include metadata".into()))?;
        let linux = config.linux.clone().unwrap_or_default();
        let parent = match linux.cgroup_parent.as_str() {
            "" => self.0.config.cgroup_of("pods"),
            parent => self.parent_group(parent)?,
        };
        let options = namespace_options(&config);
        let host_network = options.network() == NamespaceMode::Node;
        let users = Mapping::requested(options.userns_options.as_ref())?;
        if users.is_some() && host_network {
            return Err(Error::Invalid(
                "a pod of the host's network cannot have users of its own".into(),
            ));
        }
        let record = SandboxRecord {
            id: id.to_owned(),
            runtime_handler,
            users,
            created_at: self.now_nanos(),
            phase: SandboxPhase::Creating,
            netns: (!host_network)
                .then(|| netns::path(&self.0.config.state, &self.0.config.cluster_id, id)),
            addresses: Vec::new(),
            network_released: host_network,
            pid: 0,
            cgroup: self.0.config.cgroup_below(&parent, id),
            boot_id: self.0.config.boot_id(),
            config,
        };
        let mut state = self.0.state.lock();
        let same = |entry: &&SandboxEntry| entry.record.config.metadata.as_ref() == Some(&metadata);
        if let Some(entry) = state.sandboxes.values().find(same) {
            return Err(Error::Exists(format!(
                "sandbox {}_{}_{} is reserved for {:?}",
                metadata.name, metadata.namespace, metadata.attempt, entry.record.id
            )));
        }
        self.0
            .sandbox_records
            .write(id, &record)
            .map_err(Error::file(self.0.sandbox_records.of(id)))?;
        state
            .sandboxes
            .insert(id.to_owned(), SandboxEntry::new(record));
        Ok(())
    }

    /// A parent as the kubelet says it: with systemd a slice, alone or with those above it.
    fn parent_group(&self, parent: &str) -> Result<String, Error> {
        let slice = match self.0.config.cgroup_driver {
            CgroupDriver::Cgroupfs => return Ok(parent.to_owned()),
            CgroupDriver::Systemd => slice::path(slice::unit(parent)),
        };
        slice.ok_or_else(|| {
            Error::Invalid(format!(
                "cgroup parent {parent:?} is no slice, which the systemd cgroup driver needs"
            ))
        })
    }

    async fn make_sandbox(&self, id: &str) -> Result<(), Error> {
        let record = self.sandbox_record(id)?;
        let _guard = self.lock_sandbox(id)?.lock_owned().await;
        let options = namespace_options(&record.config);
        let files = self.files(id);
        let (hostname, dns) = (
            record.config.hostname.clone(),
            record.config.dns_config.clone(),
        );
        let hostname = if hostname.is_empty() && record.netns.is_none() {
            host_name()
        } else {
            hostname
        };
        let host_ipc = options.ipc() == NamespaceMode::Node;
        let path = self.0.sandbox_records.of(id);
        let written = blocking(move || {
            files
                .write(&hostname, dns.as_ref(), host_ipc)
                .map_err(Error::file(path))
        });
        let Some(netns) = record.netns.clone() else {
            let (written, pause) = tokio::join!(written, self.start_pause(&record));
            written?;
            return self.sandbox_ready(id, pause?, Vec::new());
        };
        let namespaces = match record.users {
            None => netns::create(netns.clone()).await,
            Some(users) => {
                let idle = self.pause_root().join("pause");
                userns::create(idle, users, self.userns(id), netns.clone()).await
            }
        };
        namespaces.map_err(Error::file(&netns))?;
        let attached = self.attach(&record, &netns);
        // A sysctl of the pod's own interface can only be set once the interface is there.
        let needs_interface = sysctls(&record.config, record.users)
            .keys()
            .any(|name| name.contains("eth0"));
        let (written, addresses, pause) = if needs_interface {
            let (written, addresses) = tokio::join!(written, attached);
            (written, addresses?, self.start_pause(&record).await)
        } else {
            let (written, addresses, pause) =
                tokio::join!(written, attached, self.start_pause(&record));
            (written, addresses?, pause)
        };
        written?;
        self.sandbox_ready(id, pause?, addresses)
    }

    fn sandbox_ready(
        &self,
        id: &str,
        pid: i32,
        addresses: Vec<std::net::IpAddr>,
    ) -> Result<(), Error> {
        self.update_sandbox(id, |record| {
            record.pid = pid;
            record.addresses = addresses;
            record.phase = SandboxPhase::Ready;
        })
    }

    async fn attach(
        &self,
        record: &SandboxRecord,
        netns: &Path,
    ) -> Result<Vec<std::net::IpAddr>, Error> {
        let failed = |source| Error::Network {
            sandbox: record.id.clone(),
            source,
        };
        let result = match self.network() {
            Ok(network) => network.add(&attachment(record, Some(netns))).await,
            Err(error) => Err(error),
        };
        if result.is_err() {
            // `add` has taken back what it did, so there is nothing left to release.
            netns::remove(netns).map_err(Error::file(netns))?;
            self.update_sandbox(&record.id, |record| record.network_released = true)?;
        }
        result.map_err(failed)
    }

    /// The network as configured now: a changed file counts from the next pod on.
    pub fn network(&self) -> Result<Network, crate::sandbox::cni::Error> {
        let config = &self.0.config;
        let cache = config.state.join("cni");
        let network = Network::load(&config.cni_conf_dir, &config.cni_bin_dirs, &cache)?;
        Ok(network.with_own_plugin(config.own_plugin.clone()))
    }

    /// Whether a pod could be attached now, by the network's own word where it can give one.
    pub async fn network_status(&self) -> Result<(), crate::sandbox::cni::Error> {
        self.network()?.status().await
    }

    /// Asks the network whether the pods that outlived the last server still have what it gave
    /// them. A pod that lost its network is told of, not ended: that is the kubelet's to decide.
    pub async fn check_networks(&self) {
        let Ok(network) = self.network() else {
            return;
        };
        let records: Vec<SandboxRecord> = {
            let state = self.0.state.lock();
            let entries = state.sandboxes.values().map(|entry| &entry.record);
            entries
                .filter(|record| record.phase == SandboxPhase::Ready)
                .cloned()
                .collect()
        };
        for record in &records {
            let Some(netns) = record.netns.as_deref() else {
                continue;
            };
            if let Err(error) = network.check(&attachment(record, Some(netns))).await {
                tracing::warn!(%error, sandbox = record.id, "a pod's network is not as it was made");
            }
        }
    }

    /// Releases what the network keeps for sandboxes that are no more.
    pub async fn collect_networks(&self) {
        let Ok(network) = self.network() else {
            return;
        };
        let living = self.0.state.lock().sandboxes.keys().cloned().collect();
        if let Err(error) = network.collect(&living).await {
            tracing::warn!(%error, "collecting forgotten network attachments");
        }
    }

    /// Starts the shim and, through it, the pause process.
    async fn start_pause(&self, record: &SandboxRecord) -> Result<i32, Error> {
        let id = &record.id;
        let options = namespace_options(&record.config);
        let (mut rootfs, mut netns) = (self.pause_root(), record.netns.clone());
        if let Some(users) = record.users {
            self.open_passage()?;
            let mapped = Mapped::create(self.reachable(id), &self.userns(id), users)?;
            rootfs = mapped.pause(&rootfs)?;
            netns = netns
                .map(|netns| mapped.namespace_file("netns", &netns))
                .transpose()?;
        }
        let spec = spec::sandbox(&SandboxInput {
            sandbox: id,
            rootfs: &rootfs,
            hostname: &record.config.hostname,
            netns: netns.as_deref(),
            host_ipc: options.ipc() == NamespaceMode::Node,
            host_pid: options.pid() == NamespaceMode::Node,
            cgroup: &oci_cgroup(&record.cgroup),
            sysctls: &sysctls(&record.config, record.users),
            users: record.users.map(|users| (users, self.userns(id))),
            oom_score_adj: spec::oom_score_adj(-998, capabilities::held()),
        });
        let bundle = self.bundle(id, id);
        fs::create_dir_all(&bundle).map_err(Error::file(&bundle))?;
        let file = bundle.join("config.json");
        sys::write_private(&file, spec.to_string().as_bytes()).map_err(Error::file(&file))?;
        let shim = self.start_shim(id, &record.runtime_handler).await?;
        let start = client::Start {
            container: id,
            bundle: &bundle,
            log: None,
            streams: client::ContainerStreams::default(),
            cgroup: &record.cgroup,
            // A scope comes with its first process, which is the OCI command's to make.
            pause: Scope::at(&record.cgroup).is_none(),
        };
        // Asked in this order without waiting in between: the first subscribes to ends before
        // anything can end.
        let (subscribed, started) = tokio::join!(biased; shim.state(), shim.run(start));
        subscribed.map_err(Error::shim("failed to start the shim"))?;
        let started = started.map_err(Error::shim("failed to start sandbox container"))?;
        if record.users.is_some() {
            // The process has what it needs; the network namespace must not outlive its own file.
            self.remove_mapped(id)?;
        }
        Ok(started.pid)
    }

    /// Its first request must be for its state.
    async fn start_shim(&self, id: &str, handler: &str) -> Result<client::Shim, Error> {
        let config = &self.0.config;
        let command = config
            .oci_command_of(handler)
            .unwrap_or(&config.oci_command);
        let group = self.shim_cgroup(id);
        let scope = Scope::at(&group);
        let mut oci_command: Vec<String> = command
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        oci_command.extend(scope.is_some().then(|| "--systemd-cgroup".to_owned()));
        let shim_config = ShimConfig {
            version: protocol::VERSION,
            sandbox: id.to_owned(),
            oci_command,
            cgroup: match scope {
                Some(_) => String::new(),
                None => group,
            },
        };
        let (sender, news) = mpsc::unbounded_channel();
        let directory = self.shim_directory(id);
        let shim = client::start(
            &config.shim_command,
            &config.data_dir,
            &directory,
            &shim_config,
            sender,
        )
        .await
        .map_err(Error::shim("failed to start the shim"))?;
        if let Some(entry) = self.0.state.lock().sandboxes.get_mut(id) {
            entry.shim = Some(shim.clone());
        }
        self.follow(id.to_owned(), news);
        if let Some(scope) = scope {
            let state = shim.state().await;
            let pid = state.map_err(Error::shim("failed to start the shim"))?.pid;
            put_into_scope(&scope, pid.cast_unsigned())
                .await
                .map_err(Error::Systemd)?;
        }
        Ok(shim)
    }

    /// Ends every process of the sandbox and gives its network back. Doing it twice is fine.
    pub async fn stop_sandbox(&self, id: &str) -> Result<(), Error> {
        let _guard = self.lock_sandbox(id)?.lock_owned().await;
        let containers = self.containers_of(id);
        let stops = containers
            .iter()
            .map(|container| self.stop_container(&container.id, 0));
        for stopped in futures::future::join_all(stops).await {
            match stopped {
                Err(Error::NotFound { .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        let (released, stopped) = tokio::join!(self.release_network(id), self.stop_pause(id));
        stopped?;
        released
    }

    async fn stop_pause(&self, id: &str) -> Result<(), Error> {
        let record = self.sandbox_record(id)?;
        let shim = self.shim_of(id);
        match shim {
            Some(shim) if record.pid > 0 => {
                let mut ended = self.sandbox_ended(id)?;
                shim.kill(id, libc::SIGKILL, false)
                    .await
                    .map_err(Error::shim("failed to stop sandbox"))?;
                tokio::time::timeout(PATIENCE, ended.wait_for(|ended| *ended))
                    .await
                    .map_err(|_| Error::Deadline(format!("sandbox {id} does not end")))?
                    .map_err(|_| Error::NotFound {
                        kind: "sandbox",
                        id: id.into(),
                    })?;
            }
            Some(_) => {}
            None => self.end_without_shim(id)?,
        }
        self.update_sandbox(id, |record| {
            record.phase = SandboxPhase::Stopped;
            record.pid = 0;
        })
    }

    async fn release_network(&self, id: &str) -> Result<(), Error> {
        let record = self.sandbox_record(id)?;
        let (Some(path), false) = (&record.netns, record.network_released) else {
            return Ok(());
        };
        netns::discard_if_empty(path).map_err(Error::file(path))?;
        match self.network() {
            Ok(network) => network
                .del(&attachment(
                    &record,
                    path.exists().then_some(path.as_path()),
                ))
                .await
                .map_err(|source| Error::NetworkRemoval {
                    sandbox: id.into(),
                    source,
                })?,
            // It will be asked for again: somebody else keeps the addresses of this pod.
            Err(source) if !record.addresses.is_empty() => {
                let sandbox = id.into();
                return Err(Error::NetworkRemoval { sandbox, source });
            }
            // Nobody is left to ask; the namespace takes its interfaces with it.
            Err(error) => {
                tracing::warn!(%error, sandbox = id, "releasing a pod's network without CNI")
            }
        }
        netns::remove(path).map_err(Error::file(path))?;
        self.update_sandbox(id, |record| record.network_released = true)
    }

    /// Where the pod's user namespace is pinned, if it has one.
    pub fn userns(&self, id: &str) -> PathBuf {
        userns::path(&self.0.config.state, &self.0.config.cluster_id, id)
    }

    /// Stops it, removes its containers, ends its shim, and forgets it. An unknown one is fine.
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), Error> {
        match self.stop_sandbox(id).await {
            Err(Error::NotFound { .. }) => return Ok(()),
            other => other?,
        }
        for container in self.containers_of(id) {
            self.remove_container(&container.id).await?;
        }
        let _guard = match self.lock_sandbox(id) {
            Ok(lock) => lock.lock_owned().await,
            Err(_) => return Ok(()),
        };
        let record = match self.sandbox_record(id) {
            Ok(record) => record,
            Err(_) => return Ok(()),
        };
        self.end_shim(id).await?;
        let files = self.files(id);
        let (directory, path) = (self.shim_directory(id), self.0.sandbox_records.of(id));
        let runtime = self.clone();
        blocking(move || {
            files.unmount().map_err(Error::file(&path))?;
            let users = runtime.userns(&record.id);
            netns::remove(&users).map_err(Error::file(&users))?;
            runtime.remove_mapped(&record.id)?;
            for group in [&record.cgroup, &runtime.shim_cgroup(&record.id)] {
                if let Err(error) = runtime.0.hierarchies.end_and_remove(group) {
                    tracing::debug!(%error, group, "a cgroup stays");
                }
            }
            match fs::remove_dir_all(&directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::file(directory)(error));
                }
                _ => {}
            }
            runtime
                .0
                .sandbox_records
                .remove(&record.id)
                .map_err(Error::file(path))
        })
        .await?;
        self.announce(id, id, ContainerEventType::ContainerDeletedEvent);
        self.0.state.lock().sandboxes.remove(id);
        Ok(())
    }

    /// Asks the shim to forget the pause process and to go, and waits until it is gone.
    async fn end_shim(&self, id: &str) -> Result<(), Error> {
        let Some(shim) = self.shim_of(id) else {
            return Ok(());
        };
        let pid = match shim.state().await {
            Ok(state) => Some(state.pid),
            Err(client::Error::Gone) => None,
            Err(error) => return Err(Error::shim("failed to reach the shim")(error)),
        };
        if let Some(pid) = pid {
            shim.delete(id)
                .await
                .map_err(Error::shim("failed to delete sandbox container"))?;
            let handle = sys::pidfd_open(pid).ok();
            // From here on its silence is expected.
            if let Some(entry) = self.0.state.lock().sandboxes.get_mut(id) {
                entry.shim = None;
            }
            match shim.shutdown().await {
                Ok(()) | Err(client::Error::Gone) => {}
                Err(error) => return Err(Error::shim("failed to end the shim")(error)),
            }
            // SAFETY: the descriptor is owned by the registration, which closes it after leaving.
            if let Some(handle) =
                handle.and_then(|handle| unsafe { AsyncFd::register(handle) }.ok())
            {
                let _ = tokio::time::timeout(PATIENCE, handle.readable()).await;
            }
        }
        Ok(())
    }

    pub(super) fn lock_sandbox(&self, id: &str) -> Result<super::state::Lock, Error> {
        let state = self.0.state.lock();
        let entry = state.sandboxes.get(id).ok_or_else(|| Error::NotFound {
            kind: "sandbox",
            id: id.into(),
        })?;
        Ok(entry.lock.clone())
    }

    fn sandbox_ended(&self, id: &str) -> Result<watch::Receiver<bool>, Error> {
        let state = self.0.state.lock();
        let entry = state.sandboxes.get(id).ok_or_else(|| Error::NotFound {
            kind: "sandbox",
            id: id.into(),
        })?;
        Ok(entry.ended.subscribe())
    }
}

impl SandboxEntry {
    pub fn new(record: SandboxRecord) -> SandboxEntry {
        let ended = record.phase == SandboxPhase::Stopped;
        SandboxEntry {
            record,
            shim: None,
            lock: Arc::default(),
            ended: watch::Sender::new(ended),
        }
    }
}

pub fn namespace_options(config: &PodSandboxConfig) -> NamespaceOption {
    config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref())
        .and_then(|security| security.namespace_options.clone())
        .unwrap_or_default()
}

/// What the pod asks for, and two things every pod of its own network may do: bind low ports and
/// send pings without privileges.
fn sysctls(config: &PodSandboxConfig, users: Option<Mapping>) -> BTreeMap<String, String> {
    let mut sysctls = BTreeMap::new();
    if namespace_options(config).network() != NamespaceMode::Node {
        sysctls.insert(
            "net.ipv4.ip_unprivileged_port_start".to_owned(),
            "0".to_owned(),
        );
        sysctls.insert(
            "net.ipv4.ping_group_range".to_owned(),
            // Only groups that exist inside can be named.
            format!(
                "0 {}",
                users.map_or(i32::MAX as u32, |users| users.gids - 1)
            ),
        );
    }
    sysctls.extend(config.linux.iter().flat_map(|linux| linux.sysctls.clone()));
    sysctls
}

fn attachment<'a>(record: &'a SandboxRecord, netns: Option<&'a Path>) -> Attachment<'a> {
    let metadata = record.config.metadata.as_ref();
    Attachment {
        sandbox: &record.id,
        netns,
        pod_name: metadata.map_or("", |metadata| &metadata.name),
        pod_namespace: metadata.map_or("", |metadata| &metadata.namespace),
        pod_uid: metadata.map_or("", |metadata| &metadata.uid),
        port_mappings: &record.config.port_mappings,
        annotations: &record.config.annotations,
        dns: record.config.dns_config.as_ref(),
        cgroup_parent: record
            .config
            .linux
            .as_ref()
            .map_or("", |linux| &linux.cgroup_parent),
    }
}

fn host_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_default()
}

/// A group as an OCI command is told it.
pub fn oci_cgroup(group: &str) -> String {
    Scope::at(group).map_or_else(|| group.to_owned(), |scope| scope.to_oci())
}

async fn put_into_scope(scope: &Scope, pid: u32) -> Result<(), dbus::Error> {
    let mut systemd = Systemd::connect().await?;
    systemd
        .start_scope(&scope.unit(), &scope.slice, pid, Vec::new())
        .await
}
