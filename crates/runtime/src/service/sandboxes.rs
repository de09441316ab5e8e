//! Sandboxes: run, stopped and removed. Each step can be repeated.

use std::{fs, net::IpAddr, sync::Arc};

use cri::v1::{ContainerEventType, NamespaceMode, PodSandboxConfig};
use dbus::slice;

use super::{
    Error,
    containers::Containers,
    events::Events,
    host::Host,
    mapped,
    pause_process::PauseProcesses,
    pod_network::PodNetwork,
    sandbox_options::{namespace_options, sysctls},
    sandbox_table::SandboxTable,
    tasks::run_blocking,
};
use crate::{
    config::CgroupDriver,
    records::{SandboxPhase, SandboxRecord},
    sandbox::{
        netns,
        userns::{self, Mapping},
    },
};

pub struct Sandboxes {
    host: Arc<Host>,
    table: Arc<SandboxTable>,
    containers: Arc<Containers>,
    network: Arc<PodNetwork>,
    pause: PauseProcesses,
    events: Arc<Events>,
}

impl Sandboxes {
    pub fn new(
        host: Arc<Host>,
        table: Arc<SandboxTable>,
        containers: Arc<Containers>,
        network: Arc<PodNetwork>,
        pause: PauseProcesses,
        events: Arc<Events>,
    ) -> Sandboxes {
        Sandboxes {
            host,
            table,
            containers,
            network,
            pause,
            events,
        }
    }

    /// 1. The sandbox is recorded. 2. Its network namespace is made. 3. Network and pause process are
    ///    set up side by side, since neither needs the other. A failure removes everything again.
    pub async fn run(
        &self,
        config: PodSandboxConfig,
        runtime_handler: String,
    ) -> Result<String, Error> {
        let known = self.host.config().oci_command_of(&runtime_handler);
        if known.is_none() {
            return Err(Error::Invalid(format!(
                "no runtime for {runtime_handler:?} is configured"
            )));
        }
        self.host.prepare_cgroup_moves();
        let record = self.new_record(config, runtime_handler)?;
        let id = record.id.clone();
        self.table.reserve(record)?;
        match self.make(&id).await {
            Ok(()) => {
                let events = &self.events;
                events.announce(&id, &id, ContainerEventType::ContainerCreatedEvent);
                events.announce(&id, &id, ContainerEventType::ContainerStartedEvent);
                Ok(id)
            }
            Err(error) => {
                // The first error is the one that the caller needs.
                if let Err(error) = self.remove(&id).await {
                    let error = environment::chain(&error);
                    tracing::warn!(%error, sandbox = id, "undoing a failed sandbox");
                }
                Err(error)
            }
        }
    }

    fn new_record(
        &self,
        config: PodSandboxConfig,
        runtime_handler: String,
    ) -> Result<SandboxRecord, Error> {
        let metadata = config.metadata.as_ref();
        if metadata.is_none_or(|metadata| metadata.name.is_empty() || metadata.uid.is_empty()) {
            return Err(Error::Invalid(
                "sandbox config must include metadata".into(),
            ));
        }
        let host_config = self.host.config();
        let linux = config.linux.clone().unwrap_or_default();
        let parent = match linux.cgroup_parent.as_str() {
            "" => host_config.cgroup_of("pods"),
            parent => self.parent_cgroup(parent)?,
        };
        let options = namespace_options(&config);
        let host_network = options.network() == NamespaceMode::Node;
        let users = Mapping::requested(options.userns_options.as_ref())?;
        if users.is_some() && host_network {
            return Err(Error::Invalid(
                "a pod of the host's network cannot have users of its own".into(),
            ));
        }
        let id = self.host.new_id();
        Ok(SandboxRecord {
            runtime_handler,
            users,
            created_at: self.host.now_nanos(),
            phase: SandboxPhase::Creating,
            netns: (!host_network)
                .then(|| netns::path(&host_config.state, &host_config.cluster_id, &id)),
            addresses: Vec::new(),
            network_released: host_network,
            pid: 0,
            cgroup: host_config.cgroup_below(&parent, &id),
            boot_id: host_config.boot_id(),
            id,
            config,
        })
    }

    /// The cgroup parent that the kubelet asks for: with systemd a slice, with or without the slices
    /// above it.
    fn parent_cgroup(&self, parent: &str) -> Result<String, Error> {
        let slice = match self.host.config().cgroup_driver {
            CgroupDriver::Cgroupfs => return Ok(parent.to_owned()),
            CgroupDriver::Systemd => slice::path(slice::unit(parent)),
        };
        slice.ok_or_else(|| {
            Error::Invalid(format!(
                "cgroup parent {parent:?} is no slice, which the systemd cgroup driver needs"
            ))
        })
    }

    async fn make(&self, id: &str) -> Result<(), Error> {
        let record = self.table.record(id)?;
        let _guard = self.table.lock(id).await?;
        let options = namespace_options(&record.config);
        let files = self.host.files(id);
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
        let path = self.table.path(id);
        let written = run_blocking(move || {
            files
                .write(&hostname, dns.as_ref(), host_ipc)
                .map_err(Error::file(path))
        });
        let Some(netns) = record.netns.clone() else {
            let (written, pause) = tokio::join!(written, self.pause.start(&record));
            written?;
            return self.record_ready(id, pause?, Vec::new());
        };
        let namespaces = match record.users {
            None => netns::create(netns.clone()).await,
            Some(users) => {
                let idle = self.host.pause_root().join("pause");
                userns::create(idle, users, self.host.userns(id), netns.clone()).await
            }
        };
        namespaces.map_err(Error::file(&netns))?;
        let attached = self.network.attach(&record, &netns);
        // A sysctl of the pod's own interface can only be set once the interface is there.
        let needs_interface = sysctls(&record.config, record.users)
            .keys()
            .any(|name| name.contains("eth0"));
        let (written, addresses, pause) = if needs_interface {
            let (written, addresses) = tokio::join!(written, attached);
            (written, addresses?, self.pause.start(&record).await)
        } else {
            let (written, addresses, pause) =
                tokio::join!(written, attached, self.pause.start(&record));
            (written, addresses?, pause)
        };
        written?;
        self.record_ready(id, pause?, addresses)
    }

    fn record_ready(&self, id: &str, pid: i32, addresses: Vec<IpAddr>) -> Result<(), Error> {
        self.table.update(id, |record| {
            record.pid = pid;
            record.addresses = addresses;
            record.phase = SandboxPhase::Ready;
        })
    }

    /// Kills every process of the sandbox and releases its network. It can be repeated.
    pub async fn stop(&self, id: &str) -> Result<(), Error> {
        let _guard = self.table.lock(id).await?;
        self.containers.kill_all(id).await?;
        let (released, stopped) = tokio::join!(self.network.release(id), self.pause.stop(id));
        stopped?;
        released
    }

    /// Stops the sandbox, removes its containers, ends its shim, and forgets it. An unknown sandbox is
    /// fine.
    pub async fn remove(&self, id: &str) -> Result<(), Error> {
        match self.stop(id).await {
            Err(Error::NotFound { .. }) => return Ok(()),
            other => other?,
        }
        self.containers.remove_all(id).await?;
        let Ok(_guard) = self.table.lock(id).await else {
            return Ok(());
        };
        let Ok(record) = self.table.record(id) else {
            return Ok(());
        };
        self.pause.end_shim(id).await?;
        let (host, table) = (self.host.clone(), self.table.clone());
        run_blocking(move || {
            remove_files(&host, &record)?;
            table.remove_record(&record.id)
        })
        .await?;
        self.events
            .announce(id, id, ContainerEventType::ContainerDeletedEvent);
        self.table.forget(id);
        Ok(())
    }
}

/// Removes everything of a sandbox but its record.
fn remove_files(host: &Host, record: &SandboxRecord) -> Result<(), Error> {
    let directory = host.shim_directory(&record.id);
    let files = host.files(&record.id);
    files.unmount().map_err(Error::file(&directory))?;
    let users = host.userns(&record.id);
    netns::remove(&users).map_err(Error::file(&users))?;
    mapped::remove(&host.reachable(&record.id))?;
    for group in [&record.cgroup, &host.shim_cgroup(&record.id)] {
        if let Err(error) = host.hierarchies().end_and_remove(group) {
            tracing::debug!(%error, group, "a cgroup could not be removed");
        }
    }
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file(directory)(error))
        }
        _ => Ok(()),
    }
}

fn host_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_default()
}
