//! The stream of container events.

use std::sync::Arc;

use cri::v1::{ContainerEventResponse, ContainerEventType};
use tokio::sync::broadcast;

use super::{
    container_table::ContainerTable,
    host::Host,
    sandbox_table::SandboxTable,
    views::{container_status, sandbox_status},
};

/// A subscriber that is this many events behind must list anew.
const EVENTS_KEPT: usize = 1024;

pub struct Events {
    host: Arc<Host>,
    sandboxes: Arc<SandboxTable>,
    containers: Arc<ContainerTable>,
    sender: broadcast::Sender<ContainerEventResponse>,
}

impl Events {
    pub fn new(
        host: Arc<Host>,
        sandboxes: Arc<SandboxTable>,
        containers: Arc<ContainerTable>,
    ) -> Events {
        Events {
            host,
            sandboxes,
            containers,
            sender: broadcast::channel(EVENTS_KEPT).0,
        }
    }

    pub fn subscribe(&self) -> broadcast::Receiver<ContainerEventResponse> {
        self.sender.subscribe()
    }

    /// Sends an event about a container, or about a sandbox (then both ids are the same), to the
    /// subscribers, who take it as a hint to look at the sandbox again.
    pub fn announce(&self, container: &str, sandbox: &str, kind: ContainerEventType) {
        if self.sender.receiver_count() == 0 {
            return;
        }
        let status = self.sandboxes.record(sandbox).ok();
        let containers = self.containers.of_sandbox(sandbox);
        let event = ContainerEventResponse {
            container_id: container.into(),
            container_event_type: kind.into(),
            created_at: self.host.now_nanos(),
            pod_sandbox_status: status.map(|record| sandbox_status(&record)),
            containers_statuses: containers.iter().map(container_status).collect(),
        };
        let _ = self.sender.send(event);
    }
}
