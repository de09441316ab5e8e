//! The table of sandboxes, with the connection to the shim of each.

use cri::v1::PodSandboxFilter;

use super::{
    Error,
    table::{Table, TableRecord, selects},
    views::sandbox_state,
};
use crate::{
    records::{SandboxPhase, SandboxRecord},
    shim::client::Shim,
};

pub type SandboxTable = Table<SandboxRecord>;

#[derive(Default)]
pub struct SandboxState {
    /// `None` before the shim is started and after it is gone.
    shim: Option<Shim>,
}

impl TableRecord for SandboxRecord {
    const KIND: &'static str = "sandbox";
    const IS_WRITTEN_AFTERWARDS: bool = false;
    type Transient = SandboxState;

    fn id(&self) -> &str {
        &self.id
    }

    fn name(&self) -> Vec<String> {
        let metadata = self.config.metadata.clone().unwrap_or_default();
        let attempt = metadata.attempt.to_string();
        vec![metadata.namespace, metadata.name, metadata.uid, attempt]
    }

    fn shown_name(&self) -> String {
        let metadata = self.config.metadata.clone().unwrap_or_default();
        let (name, namespace) = (metadata.name, metadata.namespace);
        format!("{name}_{namespace}_{}", metadata.attempt)
    }

    fn exists(&self) -> bool {
        self.phase != SandboxPhase::Creating
    }

    fn has_ended(&self) -> bool {
        self.phase == SandboxPhase::Stopped
    }
}

impl SandboxTable {
    pub fn matching(&self, filter: &PodSandboxFilter) -> Vec<SandboxRecord> {
        let state = filter.state.as_ref();
        self.select(|record| {
            record.id.starts_with(&filter.id)
                && state.is_none_or(|state| state.state() == sandbox_state(record))
                && selects(&filter.label_selector, &record.config.labels)
        })
    }

    pub fn ready(&self) -> Vec<SandboxRecord> {
        self.select(|record| record.phase == SandboxPhase::Ready)
    }

    /// Records that the pause process does not run any more.
    pub fn record_stopped(&self, id: &str) -> Result<(), Error> {
        self.update(id, |record| {
            record.phase = SandboxPhase::Stopped;
            record.pid = 0;
        })
    }

    pub fn shim(&self, id: &str) -> Option<Shim> {
        self.get(id)?.transient.shim.clone()
    }

    pub fn running_shim(&self, id: &str) -> Result<Shim, Error> {
        self.shim(id).ok_or_else(|| Error::sandbox_not_running(id))
    }

    pub fn set_shim(&self, id: &str, shim: Shim) {
        if let Some(mut sandbox) = self.get(id) {
            sandbox.transient.shim = Some(shim);
        }
    }

    /// Returns the shim that the sandbox had until now.
    pub fn remove_shim(&self, id: &str) -> Option<Shim> {
        self.get(id)?.transient.shim.take()
    }
}
