//! Finding again what an earlier server left: shims by their sockets, everything else by its
//! record. After a reboot nothing runs, and everything is recorded as ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tokio::sync::mpsc;

use super::{
    Error, container_table::ContainerTable, exits::Exits, host::Host, images::Images, mapped,
    pod_network::PodNetwork, sandbox_table::SandboxTable, sandboxes::Sandboxes,
    tasks::run_blocking,
};
use crate::{
    records::{ContainerRecord, SandboxPhase, SandboxRecord},
    remove_tree,
    shim::{client, protocol::ContainerState},
    sys,
};

/// How long the server's start waits for CNI plugins.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(10);

/// The parts of the server that take over what an earlier one left.
pub struct Recovery {
    pub host: Arc<Host>,
    pub sandbox_table: Arc<SandboxTable>,
    pub container_table: Arc<ContainerTable>,
    pub sandboxes: Arc<Sandboxes>,
    pub exits: Arc<Exits>,
    pub images: Arc<Images>,
    pub network: Arc<PodNetwork>,
}

impl Recovery {
    pub async fn run(self: Arc<Self>) -> Result<(), Error> {
        let recovery = self.clone();
        let (sandboxes, containers) = run_blocking(move || recovery.load()).await?;
        let boot_id = self.host.config().boot_id();
        let unfinished: Vec<String> = sandboxes
            .iter()
            .filter(|record| record.phase == SandboxPhase::Creating)
            .map(|record| record.id.clone())
            .collect();
        let found: BTreeMap<String, bool> = sandboxes
            .iter()
            .map(|record| (record.id.clone(), record.boot_id == boot_id))
            .collect();
        self.sandbox_table.adopt(sandboxes);
        self.container_table.adopt(containers);
        let recovered = found
            .iter()
            .map(|(id, same_boot)| self.recover_sandbox(id, *same_boot));
        for result in futures::future::join_all(recovered).await {
            result?;
        }
        for id in unfinished {
            if let Err(error) = self.sandboxes.remove(&id).await {
                let error = environment::chain(&error);
                tracing::warn!(%error, sandbox = id, "removing an unfinished sandbox");
            }
        }
        self.images.collect().await;
        // This comes before the first pod, whose attachment would otherwise look forgotten; but plugins
        // must not hold up the start for long.
        if tokio::time::timeout(NETWORK_TIMEOUT, self.network.collect())
            .await
            .is_err()
        {
            tracing::warn!("the CNI plugins take too long to collect forgotten attachments");
        }
        let network = self.network.clone();
        tokio::spawn(async move { network.check_all().await });
        Ok(())
    }

    /// Reads the records and removes what belongs to no record.
    fn load(&self) -> Result<(Vec<SandboxRecord>, Vec<ContainerRecord>), Error> {
        let root = &self.host.config().root;
        let read = self.sandbox_table.read_records();
        let (sandboxes, torn_sandboxes) = read.map_err(Error::file(root))?;
        let read = self.container_table.read_records();
        let (containers, torn_containers) = read.map_err(Error::file(root))?;
        for path in torn_sandboxes.into_iter().chain(torn_containers) {
            match path.is_dir() {
                true => remove_with_mounts(path)?,
                false => fs::remove_file(&path).map_err(Error::file(path))?,
            }
        }
        let known: BTreeSet<&str> = sandboxes.iter().map(|record| record.id.as_str()).collect();
        let (kept, orphans): (Vec<_>, Vec<_>) = containers
            .into_iter()
            .partition(|container| known.contains(container.sandbox.as_str()));
        for container in orphans {
            self.host.hierarchies().kill(&container.cgroup);
            mapped::remove(&self.host.reachable(&container.id))?;
            self.host.snapshot(&container.id).remove()?;
            self.container_table.remove_record(&container.id)?;
        }
        let shims = self.host.config().state.join("shims");
        for entry in fs::read_dir(&shims).into_iter().flatten().flatten() {
            let id = entry.file_name().to_string_lossy().into_owned();
            if !known.contains(id.as_str()) {
                let group = self.host.shim_cgroup(&id);
                self.host.hierarchies().kill(&group);
                remove_with_mounts(entry.path())?;
            }
        }
        let reachable = self.host.reachable_directories();
        for entry in fs::read_dir(&reachable).into_iter().flatten().flatten() {
            let id = entry.file_name();
            let is_known = |sandbox: &str| known.contains(sandbox);
            if !kept.iter().any(|record| id == record.id.as_str())
                && !id.to_str().is_some_and(is_known)
            {
                remove_with_mounts(entry.path())?;
            }
        }
        Ok((sandboxes, kept))
    }

    async fn recover_sandbox(&self, id: &str, same_boot: bool) -> Result<(), Error> {
        let record = self.sandbox_table.record(id)?;
        let (sender, reports) = mpsc::unbounded_channel();
        let shim = match same_boot {
            true => client::reconnect(&self.host.shim_directory(id), sender)
                .await
                .ok(),
            false => None,
        };
        let state = match &shim {
            Some(shim) => shim.state().await.ok(),
            None => None,
        };
        let (Some(shim), Some(state)) = (shim, state) else {
            return self.exits.end_without_shim(id);
        };
        self.sandbox_table.set_shim(id, shim);
        let mut there: BTreeMap<String, ContainerState> = state
            .containers
            .into_iter()
            .map(|container| (container.id.clone(), container))
            .collect();
        match there.remove(id) {
            Some(pause) if pause.exit.is_none() => {
                self.sandbox_table
                    .update(id, |record| record.pid = pause.pid)?;
            }
            _ if record.phase != SandboxPhase::Creating => {
                self.sandbox_table.record_stopped(id)?;
                self.sandbox_table.signal_end(id);
            }
            _ => {}
        }
        for container in self.container_table.of_sandbox(id) {
            self.recover_container(id, &container, there.remove(&container.id))?;
        }
        self.exits.follow(id.to_owned(), reports);
        Ok(())
    }

    /// The shim's state of a container counts. A container that the shim does not know either was
    /// never started or is lost.
    fn recover_container(
        &self,
        sandbox: &str,
        record: &ContainerRecord,
        found: Option<ContainerState>,
    ) -> Result<(), Error> {
        match found {
            Some(found) => {
                self.container_table.update(&record.id, |record| {
                    record.started_at = found.started_at;
                    record.pid = found.pid;
                })?;
                if let Some(exit) = found.exit {
                    self.exits.record(sandbox, &exit)?;
                }
                Ok(())
            }
            None if record.is_running() => {
                let exit = self.exits.recorded_or_unknown(sandbox, &record.id, "");
                self.container_table.record_exit(&record.id, exit)
            }
            None => Ok(()),
        }
    }
}

fn remove_with_mounts(directory: PathBuf) -> Result<(), Error> {
    let mounts = sys::mounts_under(&directory).map_err(Error::file(&directory))?;
    for mount in mounts.iter().rev() {
        sys::unmount(mount).map_err(|errno| Error::file(mount)(errno.into()))?;
    }
    remove_tree::remove(&directory).map_err(Error::file(directory))
}
