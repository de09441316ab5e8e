//! The containers that exist: each with its record in memory and on disk, a lock for calls that
//! change it, and a signal for those who wait for its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cri::v1::ContainerFilter;
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, watch};

use super::{
    Error,
    table::{ObjectLock, full_id, is_full, selects},
    views::container_state,
};
use crate::records::{ContainerRecord, Directory, ExitRecord};

pub struct ContainerTable {
    files: Directory,
    /// Never held across an await. An object's lock is taken before it, never inside.
    containers: Mutex<BTreeMap<String, Container>>,
}

struct Container {
    record: ContainerRecord,
    lock: ObjectLock,
    /// The stop signal is sent once: many programs take a second one for "at once".
    stop_signal_sent: bool,
    /// True when the container's process has ended.
    ended: watch::Sender<bool>,
}

impl Container {
    fn new(record: ContainerRecord) -> Container {
        let ended = record.exit.is_some();
        Container {
            record,
            lock: Arc::default(),
            stop_signal_sent: false,
            ended: watch::Sender::new(ended),
        }
    }
}

impl ContainerTable {
    /// An empty table; records are kept below `root`.
    pub fn new(root: &Path) -> ContainerTable {
        ContainerTable {
            files: Directory::of_containers(root),
            containers: Mutex::default(),
        }
    }

    /// The records on disk, and the directories that hold none.
    pub fn read_records(&self) -> io::Result<(Vec<ContainerRecord>, Vec<PathBuf>)> {
        self.files.load()
    }

    /// Adds containers that an earlier server recorded.
    pub fn adopt(&self, records: Vec<ContainerRecord>) {
        let records = records.into_iter();
        self.containers
            .lock()
            .extend(records.map(|record| (record.id.clone(), Container::new(record))));
    }

    /// Adds a new container, in memory and on disk, unless its sandbox has one of the same name and
    /// attempt.
    pub fn reserve(&self, record: ContainerRecord) -> Result<(), Error> {
        let mut containers = self.containers.lock();
        let metadata = &record.config.metadata;
        let same = |other: &&Container| {
            other.record.sandbox == record.sandbox && other.record.config.metadata == *metadata
        };
        if let Some(other) = containers.values().find(same) {
            let metadata = metadata.clone().unwrap_or_default();
            return Err(Error::Exists(format!(
                "container {}_{} is reserved for {:?}",
                metadata.name, metadata.attempt, other.record.id
            )));
        }
        self.files
            .write(&record.id, &record)
            .map_err(Error::file(self.files.of(&record.id)))?;
        containers.insert(record.id.clone(), Container::new(record));
        Ok(())
    }

    /// The full id of a container given by id or a unique beginning of it.
    pub fn id(&self, id: &str) -> Result<String, Error> {
        full_id(&self.containers.lock(), id).ok_or_else(|| Error::no_container(id))
    }

    pub fn record(&self, id: &str) -> Result<ContainerRecord, Error> {
        self.read(id, |container| container.record.clone())
    }

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
        let containers = self.containers.lock();
        let records = containers.values().map(|container| &container.record);
        records
            .filter(|record| record.sandbox == sandbox)
            .cloned()
            .collect()
    }

    pub fn matching(&self, filter: &ContainerFilter) -> Vec<ContainerRecord> {
        let containers = self.containers.lock();
        let records = containers.values().map(|container| &container.record);
        records
            .filter(|record| record.id.starts_with(&filter.id))
            .filter(|record| record.sandbox.starts_with(&filter.pod_sandbox_id))
            .filter(|record| {
                let state = filter.state.as_ref();
                state.is_none_or(|state| state.state() == container_state(record))
            })
            .filter(|record| selects(&filter.label_selector, &record.config.labels))
            .cloned()
            .collect()
    }

    /// The layers that existing containers are mounted on.
    pub fn layers_in_use(&self) -> BTreeSet<String> {
        let containers = self.containers.lock();
        containers
            .values()
            .flat_map(|container| container.record.layers.iter().cloned())
            .collect()
    }

    /// Changes a record in memory and on disk. An unknown id is fine.
    pub fn update(&self, id: &str, change: impl FnOnce(&mut ContainerRecord)) -> Result<(), Error> {
        let mut containers = self.containers.lock();
        let Some(container) = containers.get_mut(id) else {
            return Ok(());
        };
        change(&mut container.record);
        let existed = container.record.started_at != 0 || container.record.exit.is_some();
        match self.files.write(id, &container.record) {
            Err(error) if existed && is_full(&error) => Ok(()),
            other => other.map_err(Error::file(self.files.of(id))),
        }
    }

    /// Records how a container ended, unless that is already known, and wakes those who wait for it.
    pub fn record_exit(&self, id: &str, exit: ExitRecord) -> Result<(), Error> {
        self.update(id, |record| {
            record.exit.get_or_insert(exit);
            record.pid = 0;
        })?;
        if let Some(container) = self.containers.lock().get(id) {
            container.ended.send_replace(true);
        }
        Ok(())
    }

    /// Becomes true when the container's process has ended.
    pub fn end(&self, id: &str) -> Result<watch::Receiver<bool>, Error> {
        self.read(id, |container| container.ended.subscribe())
    }

    pub async fn lock(&self, id: &str) -> Result<OwnedMutexGuard<()>, Error> {
        let lock = self.read(id, |container| container.lock.clone())?;
        Ok(lock.lock_owned().await)
    }

    pub fn stop_signal_was_sent(&self, id: &str) -> bool {
        self.read(id, |container| container.stop_signal_sent)
            .unwrap_or(false)
    }

    pub fn note_stop_signal(&self, id: &str) {
        if let Some(container) = self.containers.lock().get_mut(id) {
            container.stop_signal_sent = true;
        }
    }

    /// Removes the container's directory; the container stays in the table.
    pub fn remove_record(&self, id: &str) -> Result<(), Error> {
        self.files
            .remove(id)
            .map_err(Error::file(self.files.of(id)))
    }

    /// Takes the container out of the table.
    pub fn forget(&self, id: &str) {
        self.containers.lock().remove(id);
    }

    fn read<T>(&self, id: &str, look: impl FnOnce(&Container) -> T) -> Result<T, Error> {
        let containers = self.containers.lock();
        containers
            .get(id)
            .map(look)
            .ok_or_else(|| Error::no_container(id))
    }
}
