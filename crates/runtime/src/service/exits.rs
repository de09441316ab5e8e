//! The ends of things: what a shim reports, and what its own end means.

use cri::v1::ContainerEventType;
use tokio::sync::mpsc;

use super::{Error, state::Runtime};
use crate::{
    records::{ExitRecord, SandboxPhase},
    shim::{Layout, client::News, protocol::Exit},
};

impl Runtime {
    /// Listens to one shim until it is gone or the server stops.
    pub fn follow(&self, sandbox: String, mut news: mpsc::UnboundedReceiver<News>) {
        let runtime = self.clone();
        tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    biased;
                    () = runtime.0.shutdown.cancelled() => return,
                    next = news.recv() => next,
                };
                let result = match next {
                    Some(News::Exited(exit)) => runtime.ended(&sandbox, &exit),
                    Some(News::Gone) | None => {
                        if let Err(error) = runtime.shim_gone(&sandbox) {
                            tracing::warn!(%error, sandbox, "cleaning up after a lost shim");
                        }
                        return;
                    }
                };
                if let Err(error) = result {
                    tracing::warn!(%error, sandbox, "recording an exit");
                }
            }
        });
    }

    /// A pause process or a container has ended.
    pub fn ended(&self, sandbox: &str, exit: &Exit) -> Result<(), Error> {
        if exit.container == sandbox {
            self.update_sandbox(sandbox, |record| {
                record.phase = SandboxPhase::Stopped;
                record.pid = 0;
            })?;
            if let Some(entry) = self.0.state.lock().sandboxes.get(sandbox) {
                entry.ended.send_replace(true);
            }
        } else {
            self.container_ended(
                &exit.container,
                ExitRecord {
                    code: exit.code,
                    finished_at: exit.finished_at,
                    reason: reason(exit.code, exit.out_of_memory).into(),
                    message: String::new(),
                },
            )?;
        }
        self.announce(
            &exit.container,
            sandbox,
            ContainerEventType::ContainerStoppedEvent,
        );
        Ok(())
    }

    /// Records how a container ended, unless that is already known.
    pub fn container_ended(&self, id: &str, exit: ExitRecord) -> Result<(), Error> {
        self.update_container(id, |record| {
            record.exit.get_or_insert(exit);
            record.pid = 0;
        })?;
        if let Some(entry) = self.0.state.lock().containers.get(id) {
            entry.ended.send_replace(true);
        }
        Ok(())
    }

    /// Without its shim nobody would learn how a process ends: what is left is ended now.
    fn shim_gone(&self, sandbox: &str) -> Result<(), Error> {
        {
            let mut state = self.0.state.lock();
            let lost = state
                .sandboxes
                .get_mut(sandbox)
                .and_then(|entry| entry.shim.take());
            if lost.is_none() {
                // It was asked to go.
                return Ok(());
            }
        }
        tracing::warn!(sandbox, "the shim is gone; its pod is ended");
        self.end_without_shim(sandbox)
    }

    /// Kills whatever still runs of a pod that has no shim and records the ends.
    pub fn end_without_shim(&self, sandbox: &str) -> Result<(), Error> {
        let record = self.sandbox_record(sandbox)?;
        self.0.hierarchies.kill(&record.cgroup);
        for container in self.containers_of(sandbox) {
            self.0.hierarchies.kill(&container.cgroup);
            if container.started_at == 0 || container.exit.is_some() {
                continue;
            }
            let exit = self
                .recorded_exit(sandbox, &container.id)
                .unwrap_or_else(|| ExitRecord {
                    code: 255,
                    finished_at: self.now_nanos(),
                    reason: "Unknown".into(),
                    message: "the container's shim was lost".into(),
                });
            self.container_ended(&container.id, exit)?;
            self.announce(
                &container.id,
                sandbox,
                ContainerEventType::ContainerStoppedEvent,
            );
        }
        self.update_sandbox(sandbox, |record| {
            record.phase = SandboxPhase::Stopped;
            record.pid = 0;
        })?;
        if let Some(entry) = self.0.state.lock().sandboxes.get(sandbox) {
            entry.ended.send_replace(true);
        }
        self.announce(sandbox, sandbox, ContainerEventType::ContainerStoppedEvent);
        Ok(())
    }

    /// What the shim wrote down before it was lost.
    pub fn recorded_exit(&self, sandbox: &str, container: &str) -> Option<ExitRecord> {
        let path = Layout(&self.shim_directory(sandbox)).exit(container);
        let exit: Exit = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        Some(ExitRecord {
            code: exit.code,
            finished_at: exit.finished_at,
            reason: reason(exit.code, exit.out_of_memory).into(),
            message: String::new(),
        })
    }
}

pub fn reason(code: i32, out_of_memory: bool) -> &'static str {
    match (code, out_of_memory) {
        (_, true) => "OOMKilled",
        (0, _) => "Completed",
        _ => "Error",
    }
}
