//! A sandbox's pause process, and the shim that starts it and all containers of the pod.

use std::{sync::Arc, time::Duration};

use cri::v1::NamespaceMode;
use dbus::{slice::Scope, systemd::Systemd};
use tokio::{io::unix::AsyncFd, sync::mpsc};

use super::{
    Error,
    exits::Exits,
    host::Host,
    mapped::{self, Mapped},
    sandbox_options::{namespace_options, oci_cgroup, sysctls},
    sandbox_table::SandboxTable,
};
use crate::{
    records::SandboxRecord,
    run_files,
    shim::{
        client,
        protocol::{self, ShimConfig},
    },
    spec::{self, SandboxInput, capabilities},
    sys,
};

/// How long a killed process may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

pub struct PauseProcesses {
    host: Arc<Host>,
    sandboxes: Arc<SandboxTable>,
    exits: Arc<Exits>,
}

impl PauseProcesses {
    pub fn new(host: Arc<Host>, sandboxes: Arc<SandboxTable>, exits: Arc<Exits>) -> PauseProcesses {
        PauseProcesses {
            host,
            sandboxes,
            exits,
        }
    }

    /// Starts the shim and, through it, the pause process. Returns the pid of the pause process.
    pub async fn start(&self, record: &SandboxRecord) -> Result<i32, Error> {
        let (host, id) = (&self.host, &record.id);
        let options = namespace_options(&record.config);
        let (mut rootfs, mut netns) = (host.pause_root(), record.netns.clone());
        if let Some(users) = record.users {
            host.open_passage()?;
            let mapped = Mapped::create(host.reachable(id), &host.userns(id), users)?;
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
            users: record.users.map(|users| (users, host.userns(id))),
            oom_score_adj: spec::oom_score_adj(-998, capabilities::held()),
        });
        let bundle = host.bundle(id, id);
        run_files::create_directory(&bundle).map_err(Error::file(&bundle))?;
        let file = bundle.join("config.json");
        run_files::write_private(&file, spec.to_string().as_bytes()).map_err(Error::file(&file))?;
        let shim = self.start_shim(id, &record.runtime_handler).await?;
        let start = client::Start {
            container: id,
            bundle: &bundle,
            log: None,
            streams: client::ContainerStreams::default(),
            cgroup: &record.cgroup,
            // systemd makes a scope for a process, which the OCI runtime starts.
            pause: Scope::at(&record.cgroup).is_none(),
        };
        // Both requests are sent in this order without waiting in between: the first subscribes to
        // exits before anything can exit.
        let (subscribed, started) = tokio::join!(biased; shim.state(), shim.run(start));
        subscribed.map_err(Error::shim("failed to start the shim"))?;
        let started = started.map_err(Error::shim("failed to start sandbox container"))?;
        if record.users.is_some() {
            // The process has its mounts; the network namespace must not outlive its own file.
            mapped::remove(&host.reachable(id))?;
        }
        Ok(started.pid)
    }

    /// The first request to the returned shim must be for its state.
    async fn start_shim(&self, id: &str, handler: &str) -> Result<client::Shim, Error> {
        let config = self.host.config();
        let command = config
            .oci_command_of(handler)
            .unwrap_or(&config.oci_command);
        let group = self.host.shim_cgroup(id);
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
        let (sender, reports) = mpsc::unbounded_channel();
        let directory = self.host.shim_directory(id);
        let shim = client::start(
            &config.shim_command,
            &config.data_dir,
            &directory,
            &shim_config,
            sender,
        )
        .await
        .map_err(Error::shim("failed to start the shim"))?;
        self.sandboxes.set_shim(id, shim.clone());
        self.exits.follow(id.to_owned(), reports);
        if let Some(scope) = scope {
            let state = shim.state().await;
            let pid = state.map_err(Error::shim("failed to start the shim"))?.pid;
            put_into_scope(&scope, pid.cast_unsigned())
                .await
                .map_err(Error::Systemd)?;
        }
        Ok(shim)
    }

    /// Kills the pause process and waits for its end.
    pub async fn stop(&self, id: &str) -> Result<(), Error> {
        let record = self.sandboxes.record(id)?;
        match self.sandboxes.shim(id) {
            Some(shim) if record.pid > 0 => {
                let mut ended = self.sandboxes.end(id)?;
                shim.kill(id, libc::SIGKILL, false)
                    .await
                    .map_err(Error::shim("failed to stop sandbox"))?;
                tokio::time::timeout(KILL_TIMEOUT, ended.wait_for(|ended| *ended))
                    .await
                    .map_err(|_| Error::Deadline(format!("sandbox {id} does not end")))?
                    .map_err(|_| Error::not_found("sandbox", id))?;
            }
            Some(_) => {}
            None => self.exits.end_without_shim(id)?,
        }
        self.sandboxes.record_stopped(id)
    }

    /// Asks the shim to forget the pause process and to end, and waits until it has ended.
    pub async fn end_shim(&self, id: &str) -> Result<(), Error> {
        let Some(shim) = self.sandboxes.shim(id) else {
            return Ok(());
        };
        let pid = match shim.state().await {
            Ok(state) => state.pid,
            Err(client::Error::Gone) => return Ok(()),
            Err(error) => return Err(Error::shim("failed to reach the shim")(error)),
        };
        shim.delete(id)
            .await
            .map_err(Error::shim("failed to delete sandbox container"))?;
        let handle = sys::pidfd_open(pid).ok();
        // From here on the end of the connection is expected.
        self.sandboxes.remove_shim(id);
        match shim.shutdown().await {
            Ok(()) | Err(client::Error::Gone) => {}
            Err(error) => return Err(Error::shim("failed to end the shim")(error)),
        }
        // SAFETY: the descriptor is owned by the registration, which closes it after leaving.
        if let Some(handle) = handle.and_then(|handle| unsafe { AsyncFd::register(handle) }.ok()) {
            let _ = tokio::time::timeout(KILL_TIMEOUT, handle.readable()).await;
        }
        Ok(())
    }
}

async fn put_into_scope(scope: &Scope, pid: u32) -> Result<(), dbus::Error> {
    let mut systemd = Systemd::connect().await?;
    systemd
        .start_scope(&scope.unit(), &scope.slice, pid, Vec::new())
        .await
}
