//! Running a command inside a container, and changing its limits.

use std::sync::Arc;

use cri::v1::{ExecSyncResponse, LinuxContainerResources};
use dbus::{slice::Scope, systemd};

use super::{Error, container_table::ContainerTable, host::Host, sandbox_table::SandboxTable};
use crate::{
    records::ContainerRecord,
    spec::{self, resources},
};

pub struct Execution {
    host: Arc<Host>,
    sandboxes: Arc<SandboxTable>,
    containers: Arc<ContainerTable>,
}

impl Execution {
    pub fn new(
        host: Arc<Host>,
        sandboxes: Arc<SandboxTable>,
        containers: Arc<ContainerTable>,
    ) -> Execution {
        Execution {
            host,
            sandboxes,
            containers,
        }
    }

    pub async fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: i64,
    ) -> Result<ExecSyncResponse, Error> {
        let record = self.containers.running(id)?;
        let process = self.process_to_exec(&record, command, false).await?;
        let timeout_ms = u64::try_from(timeout).unwrap_or(0).saturating_mul(1000);
        let captured = self
            .sandboxes
            .running_shim(&record.sandbox)?
            .exec(id, process, timeout_ms)
            .await
            .map_err(Error::shim(format!("failed to exec in container {id:?}")))?;
        Ok(ExecSyncResponse {
            stdout: captured.stdout,
            stderr: captured.stderr,
            exit_code: captured.code,
        })
    }

    /// The OCI `process` that runs `command` as the container's own would.
    pub async fn process_to_exec(
        &self,
        record: &ContainerRecord,
        command: &[String],
        terminal: bool,
    ) -> Result<serde_json::Value, Error> {
        if command.is_empty() {
            return Err(Error::Invalid("no command given".into()));
        }
        let file = self
            .host
            .bundle(&record.sandbox, &record.id)
            .join("config.json");
        let bytes = tokio::fs::read(&file).await.map_err(Error::file(&file))?;
        let document: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|error| Error::file(&file)(error.into()))?;
        Ok(spec::exec_process(&document, command, terminal))
    }

    /// Writes the new limits to the container's cgroup and keeps them in its record. It blocks.
    pub fn update_resources(&self, id: &str, limits: LinuxContainerResources) -> Result<(), Error> {
        let record = self.containers.record(id)?;
        if record.exit.is_some() {
            return Err(Error::Precondition(format!("container {id:?} has exited")));
        }
        if record.started_at != 0 {
            if let Some(scope) = Scope::at(&record.cgroup) {
                let wanted = resources::to_oci(&limits, false, self.host.hierarchies());
                let properties = resources::to_systemd(&wanted).properties();
                systemd::blocking(async |mut systemd| systemd.set(&scope.unit(), properties).await)
                    .map_err(Error::Systemd)?;
            }
            for (path, value) in
                resources::to_files(&limits, &record.cgroup, self.host.hierarchies())
            {
                std::fs::write(&path, value).map_err(Error::file(path))?;
            }
        } else {
            self.rewrite_limits(&record.sandbox, id, &limits)?;
        }
        self.containers.update(id, |record| {
            let kept = record
                .config
                .linux
                .get_or_insert_default()
                .resources
                .get_or_insert_default();
            merge(kept, limits);
        })
    }

    /// For a container that is not started yet, the limits are still in its bundle.
    fn rewrite_limits(
        &self,
        sandbox: &str,
        id: &str,
        limits: &LinuxContainerResources,
    ) -> Result<(), Error> {
        let file = self.host.bundle(sandbox, id).join("config.json");
        let bytes = std::fs::read(&file).map_err(Error::file(&file))?;
        let mut document: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|error| Error::file(&file)(error.into()))?;
        let wanted = resources::to_oci(limits, false, self.host.hierarchies());
        for part in ["cpu", "memory"] {
            for (name, value) in wanted[part].as_object().into_iter().flatten() {
                document["linux"]["resources"][part][name] = value.clone();
            }
        }
        for part in ["hugepageLimits", "unified"] {
            if !wanted[part].is_null() {
                document["linux"]["resources"][part] = wanted[part].clone();
            }
        }
        crate::sys::write_private(&file, document.to_string().as_bytes()).map_err(Error::file(file))
    }
}

/// A value that is not asked for stays as it was.
fn merge(kept: &mut LinuxContainerResources, new: LinuxContainerResources) {
    let number = |kept: &mut i64, new: i64| {
        if new != 0 {
            *kept = new;
        }
    };
    number(&mut kept.cpu_period, new.cpu_period);
    number(&mut kept.cpu_quota, new.cpu_quota);
    number(&mut kept.cpu_shares, new.cpu_shares);
    number(&mut kept.memory_limit_in_bytes, new.memory_limit_in_bytes);
    number(
        &mut kept.memory_swap_limit_in_bytes,
        new.memory_swap_limit_in_bytes,
    );
    number(&mut kept.oom_score_adj, new.oom_score_adj);
    if !new.cpuset_cpus.is_empty() {
        kept.cpuset_cpus = new.cpuset_cpus;
    }
    if !new.cpuset_mems.is_empty() {
        kept.cpuset_mems = new.cpuset_mems;
    }
}
