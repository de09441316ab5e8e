//! The ends of processes: what a shim reports, and what the loss of a shim means.

use std::sync::Arc;

use cri::v1::ContainerEventType;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Error, container_table::ContainerTable, events::Events, host::Host, sandbox_table::SandboxTable,
};
use crate::{
    records::ExitRecord,
    run_files,
    shim::{Layout, client::ShimReport, protocol::Exit},
};

pub struct Exits {
    host: Arc<Host>,
    sandboxes: Arc<SandboxTable>,
    containers: Arc<ContainerTable>,
    events: Arc<Events>,
    shutdown: CancellationToken,
}

impl Exits {
    pub fn new(
        host: Arc<Host>,
        sandboxes: Arc<SandboxTable>,
        containers: Arc<ContainerTable>,
        events: Arc<Events>,
        shutdown: CancellationToken,
    ) -> Exits {
        Exits {
            host,
            sandboxes,
            containers,
            events,
            shutdown,
        }
    }

    /// Listens to one shim until it is gone or the server stops.
    pub fn follow(
        self: &Arc<Self>,
        sandbox: String,
        mut reports: mpsc::UnboundedReceiver<ShimReport>,
    ) {
        let exits = self.clone();
        tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    biased;
                    () = exits.shutdown.cancelled() => return,
                    next = reports.recv() => next,
                };
                let result = match next {
                    Some(ShimReport::Exited(exit)) => exits.record(&sandbox, &exit),
                    Some(ShimReport::Gone) | None => {
                        if let Err(error) = exits.shim_gone(&sandbox) {
                            let error = environment::chain(&error);
                            tracing::warn!(%error, sandbox, "cleaning up after a lost shim");
                        }
                        return;
                    }
                };
                if let Err(error) = result {
                    let error = environment::chain(&error);
                    tracing::warn!(%error, sandbox, "recording an exit");
                }
            }
        });
    }

    /// Records that a pause process or a container has ended.
    pub fn record(&self, sandbox: &str, exit: &Exit) -> Result<(), Error> {
        if exit.container == sandbox {
            self.sandboxes.record_stopped(sandbox)?;
            self.sandboxes.signal_end(sandbox);
        } else {
            self.containers
                .record_exit(&exit.container, exit_record(exit))?;
        }
        self.events.announce(
            &exit.container,
            sandbox,
            ContainerEventType::ContainerStoppedEvent,
        );
        Ok(())
    }

    /// Without its shim no process could report how the pod ends, so the pod is ended.
    fn shim_gone(&self, sandbox: &str) -> Result<(), Error> {
        if self.sandboxes.remove_shim(sandbox).is_none() {
            // The shim was asked to end.
            return Ok(());
        }
        tracing::warn!(sandbox, "the shim is gone; its pod is ended");
        self.end_without_shim(sandbox)
    }

    /// Kills the remaining processes of a pod that has no shim and records their ends.
    pub fn end_without_shim(&self, sandbox: &str) -> Result<(), Error> {
        let record = self.sandboxes.record(sandbox)?;
        self.host.hierarchies().kill(&record.cgroup);
        for container in self.containers.of_sandbox(sandbox) {
            self.host.hierarchies().kill(&container.cgroup);
            if !container.is_running() {
                continue;
            }
            let lost = "the container's shim was lost";
            let exit = self.recorded_or_unknown(sandbox, &container.id, lost);
            self.containers.record_exit(&container.id, exit)?;
            self.events.announce(
                &container.id,
                sandbox,
                ContainerEventType::ContainerStoppedEvent,
            );
        }
        self.sandboxes.record_stopped(sandbox)?;
        self.sandboxes.signal_end(sandbox);
        self.events
            .announce(sandbox, sandbox, ContainerEventType::ContainerStoppedEvent);
        Ok(())
    }

    /// The exit that the shim wrote down before it was lost; without one, an unknown exit with this
    /// message.
    pub fn recorded_or_unknown(&self, sandbox: &str, container: &str, message: &str) -> ExitRecord {
        let path = Layout(&self.host.shim_directory(sandbox)).exit(container);
        let bytes = run_files::read(&path).ok();
        let exit = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        match exit {
            Some(exit) => exit_record(&exit),
            None => ExitRecord {
                code: 255,
                finished_at: self.host.now_nanos(),
                reason: "Unknown".into(),
                message: message.into(),
            },
        }
    }
}

fn exit_record(exit: &Exit) -> ExitRecord {
    let reason = match (exit.code, exit.out_of_memory) {
        (_, true) => "OOMKilled",
        (0, _) => "Completed",
        _ => "Error",
    };
    ExitRecord {
        code: exit.code,
        finished_at: exit.finished_at,
        reason: reason.into(),
        message: String::new(),
    }
}
