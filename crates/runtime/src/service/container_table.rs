//! The table of containers.

use std::collections::BTreeSet;

use cri::v1::ContainerFilter;

use super::{
    Error,
    table::{Table, TableRecord, selects},
    views::container_state,
};
use crate::records::{ContainerRecord, ExitRecord};

pub type ContainerTable = Table<ContainerRecord>;

#[derive(Default)]
pub struct ContainerState {
    /// The stop signal is sent once: many programs take a second one for "at once".
    stop_signal_sent: bool,
}

impl TableRecord for ContainerRecord {
    const KIND: &'static str = "container";
    const IS_WRITTEN_AFTERWARDS: bool = true;
    type Transient = ContainerState;

    fn id(&self) -> &str {
        &self.id
    }

    fn name(&self) -> Vec<String> {
        vec![self.sandbox.clone(), self.shown_name()]
    }

    fn shown_name(&self) -> String {
        let metadata = self.config.metadata.clone().unwrap_or_default();
        format!("{}_{}", metadata.name, metadata.attempt)
    }

    fn exists(&self) -> bool {
        self.started_at != 0 || self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.exit.is_some()
    }
}

impl ContainerTable {
    /// The record of a container that runs.
    pub fn running(&self, id: &str) -> Result<ContainerRecord, Error> {
        let record = self.record(id)?;
        match record.is_running() {
            true => Ok(record),
            false => Err(Error::Precondition(format!(
                "container is in {} state",
                container_state(&record).as_str_name()
            ))),
        }
    }

    pub fn of_sandbox(&self, sandbox: &str) -> Vec<ContainerRecord> {
        self.named(sandbox)
    }

    pub fn matching(&self, filter: &ContainerFilter) -> Vec<ContainerRecord> {
        let state = filter.state.as_ref();
        self.select(|record| {
            record.id.starts_with(&filter.id)
                && record.sandbox.starts_with(&filter.pod_sandbox_id)
                && state.is_none_or(|state| state.state() == container_state(record))
                && selects(&filter.label_selector, &record.config.labels)
        })
    }

    /// The layers that existing containers are mounted on.
    pub fn layers_in_use(&self) -> BTreeSet<String> {
        let layers: Vec<_> = self.collect(|record| Some(record.layers.clone()));
        layers.into_iter().flatten().collect()
    }

    /// Records how a container ended, unless that is already known, and wakes those who wait for it.
    pub fn record_exit(&self, id: &str, exit: ExitRecord) -> Result<(), Error> {
        self.update(id, |record| {
            record.exit.get_or_insert(exit);
            record.pid = 0;
        })?;
        self.signal_end(id);
        Ok(())
    }

    pub fn stop_signal_was_sent(&self, id: &str) -> bool {
        let container = self.get(id);
        container.is_some_and(|container| container.transient.stop_signal_sent)
    }

    pub fn note_stop_signal(&self, id: &str) {
        if let Some(mut container) = self.get(id) {
            container.transient.stop_signal_sent = true;
        }
    }
}
