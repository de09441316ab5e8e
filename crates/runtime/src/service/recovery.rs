//! Finding again what an earlier server left: shims by their sockets, everything else by its
//! record. After a reboot nothing runs, and everything is marked so.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    time::Duration,
};

use tokio::sync::mpsc;

use super::{
    Error,
    state::{ContainerEntry, REACHABLE, Runtime, SandboxEntry, blocking},
};
use crate::{
    records::{ContainerRecord, ExitRecord, SandboxPhase, SandboxRecord},
    remove_tree,
    shim::{client, protocol::ContainerState},
    sys,
};

/// How long the server's start waits for CNI plugins.
const NETWORK_PATIENCE: Duration = Duration::from_secs(10);

impl Runtime {
    pub async fn recover(&self) -> Result<(), Error> {
        let runtime = self.clone();
        let (sandboxes, containers) = blocking(move || runtime.load()).await?;
        let boot_id = self.0.config.boot_id();
        let mut unfinished = Vec::new();
        {
            let mut state = self.0.state.lock();
            for record in sandboxes {
                if record.phase == SandboxPhase::Creating {
                    unfinished.push(record.id.clone());
                }
                state
                    .sandboxes
                    .insert(record.id.clone(), SandboxEntry::new(record));
            }
            for record in containers {
                state
                    .containers
                    .insert(record.id.clone(), ContainerEntry::new(record));
            }
        }
        let ids: Vec<(String, bool)> = {
            let state = self.0.state.lock();
            state
                .sandboxes
                .values()
                .map(|entry| (entry.record.id.clone(), entry.record.boot_id == boot_id))
                .collect()
        };
        let found = ids
            .iter()
            .map(|(id, same_boot)| self.recover_sandbox(id, *same_boot));
        for result in futures::future::join_all(found).await {
            result?;
        }
        for id in unfinished {
            if let Err(error) = self.remove_sandbox(&id).await {
                tracing::warn!(%error, sandbox = id, "removing an unfinished sandbox");
            }
        }
        self.collect_images().await;
        // Before the first pod, which the network would not know yet; but not for long.
        if tokio::time::timeout(NETWORK_PATIENCE, self.collect_networks())
            .await
            .is_err()
        {
            tracing::warn!("the network takes too long to collect what is forgotten");
        }
        let runtime = self.clone();
        tokio::spawn(async move { runtime.check_networks().await });
        Ok(())
    }

    /// Reads the records and removes what no record explains.
    fn load(&self) -> Result<(Vec<SandboxRecord>, Vec<ContainerRecord>), Error> {
        let root = &self.0.config.root;
        let (sandboxes, torn_sandboxes) = self
            .0
            .sandbox_records
            .load::<SandboxRecord>()
            .map_err(Error::file(root))?;
        let (containers, torn_containers) = self
            .0
            .container_records
            .load::<ContainerRecord>()
            .map_err(Error::file(root))?;
        for path in torn_sandboxes.into_iter().chain(torn_containers) {
            match path.is_dir() {
                true => remove_with_mounts(path)?,
                false => fs::remove_file(&path).map_err(Error::file(path))?,
            }
        }
        let known: BTreeSet<&str> = sandboxes.iter().map(|record| record.id.as_str()).collect();
        let (mut kept, mut orphans) = (Vec::new(), Vec::new());
        for container in containers {
            if known.contains(container.sandbox.as_str()) {
                kept.push(container);
            } else {
                orphans.push(container);
            }
        }
        for container in orphans {
            self.0.hierarchies.kill(&container.cgroup);
            self.remove_mapped(&container.id)?;
            self.snapshot(&container.id).remove()?;
            self.0
                .container_records
                .remove(&container.id)
                .map_err(Error::file(root))?;
        }
        let shims = self.0.config.state.join("shims");
        for entry in fs::read_dir(&shims).into_iter().flatten().flatten() {
            let id = entry.file_name().to_string_lossy().into_owned();
            if !known.contains(id.as_str()) {
                self.0.hierarchies.kill(&self.shim_cgroup(&id));
                remove_with_mounts(entry.path())?;
            }
        }
        let reachable = self.0.config.state.join(REACHABLE);
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
        let record = self.sandbox_record(id)?;
        let (sender, news) = mpsc::unbounded_channel();
        let shim = match same_boot {
            true => client::reconnect(&self.shim_directory(id), sender)
                .await
                .ok(),
            false => None,
        };
        let state = match &shim {
            Some(shim) => shim.state().await.ok(),
            None => None,
        };
        let (Some(shim), Some(state)) = (shim, state) else {
            return self.end_without_shim(id);
        };
        if let Some(entry) = self.0.state.lock().sandboxes.get_mut(id) {
            entry.shim = Some(shim);
        }
        let mut there: BTreeMap<String, ContainerState> = state
            .containers
            .into_iter()
            .map(|container| (container.id.clone(), container))
            .collect();
        match there.remove(id) {
            Some(pause) if pause.exit.is_none() => {
                self.update_sandbox(id, |record| record.pid = pause.pid)?;
            }
            _ if record.phase != SandboxPhase::Creating => {
                self.update_sandbox(id, |record| {
                    record.phase = SandboxPhase::Stopped;
                    record.pid = 0;
                })?;
                if let Some(entry) = self.0.state.lock().sandboxes.get(id) {
                    entry.ended.send_replace(true);
                }
            }
            _ => {}
        }
        for container in self.containers_of(id) {
            self.recover_container(id, &container, there.remove(&container.id))?;
        }
        self.follow(id.to_owned(), news);
        Ok(())
    }

    /// The shim's word counts; what it does not know either never started or is lost.
    fn recover_container(
        &self,
        sandbox: &str,
        record: &ContainerRecord,
        found: Option<ContainerState>,
    ) -> Result<(), Error> {
        match found {
            Some(found) => {
                self.update_container(&record.id, |record| {
                    record.started_at = found.started_at;
                    record.pid = found.pid;
                })?;
                if let Some(exit) = found.exit {
                    self.ended(sandbox, &exit)?;
                }
                Ok(())
            }
            None if record.started_at != 0 && record.exit.is_none() => {
                let exit = self
                    .recorded_exit(sandbox, &record.id)
                    .unwrap_or_else(|| ExitRecord {
                        code: 255,
                        finished_at: self.now_nanos(),
                        reason: "Unknown".into(),
                        message: String::new(),
                    });
                self.container_ended(&record.id, exit)
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
