//! The sandboxes that exist: each with its record in memory and on disk, the connection to its shim,
//! a lock for calls that change it, and a signal for those who wait for its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cri::v1::PodSandboxFilter;
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, watch};

use super::{
    Error,
    table::{ObjectLock, full_id, is_full, selects},
    views::sandbox_state,
};
use crate::{
    records::{Directory, SandboxPhase, SandboxRecord},
    shim::client::Shim,
};

pub struct SandboxTable {
    files: Directory,
    /// Never held across an await. An object's lock is taken before it, never inside.
    sandboxes: Mutex<BTreeMap<String, Sandbox>>,
}

struct Sandbox {
    record: SandboxRecord,
    /// `None` before the shim is started and after it is gone.
    shim: Option<Shim>,
    lock: ObjectLock,
    /// True when the pause process has ended.
    ended: watch::Sender<bool>,
}

impl Sandbox {
    fn new(record: SandboxRecord) -> Sandbox {
        let ended = record.phase == SandboxPhase::Stopped;
        Sandbox {
            record,
            shim: None,
            lock: Arc::default(),
            ended: watch::Sender::new(ended),
        }
    }
}

impl SandboxTable {
    /// An empty table; records are kept below `root`.
    pub fn new(root: &Path) -> SandboxTable {
        SandboxTable {
            files: Directory::of_sandboxes(root),
            sandboxes: Mutex::default(),
        }
    }

    /// The records on disk, and the files that hold none.
    pub fn read_records(&self) -> io::Result<(Vec<SandboxRecord>, Vec<PathBuf>)> {
        self.files.load()
    }

    /// Adds sandboxes that an earlier server recorded.
    pub fn adopt(&self, records: Vec<SandboxRecord>) {
        let records = records.into_iter();
        self.sandboxes
            .lock()
            .extend(records.map(|record| (record.id.clone(), Sandbox::new(record))));
    }

    /// Adds a new sandbox, in memory and on disk, unless there is one of the same pod and attempt.
    pub fn reserve(&self, record: SandboxRecord) -> Result<(), Error> {
        let mut sandboxes = self.sandboxes.lock();
        let metadata = &record.config.metadata;
        let same = |other: &&Sandbox| other.record.config.metadata == *metadata;
        if let Some(other) = sandboxes.values().find(same) {
            let metadata = metadata.clone().unwrap_or_default();
            return Err(Error::Exists(format!(
                "sandbox {}_{}_{} is reserved for {:?}",
                metadata.name, metadata.namespace, metadata.attempt, other.record.id
            )));
        }
        self.files
            .write(&record.id, &record)
            .map_err(Error::file(self.path(&record.id)))?;
        sandboxes.insert(record.id.clone(), Sandbox::new(record));
        Ok(())
    }

    /// The full id of a sandbox given by id or a unique beginning of it.
    pub fn id(&self, id: &str) -> Result<String, Error> {
        full_id(&self.sandboxes.lock(), id).ok_or_else(|| Error::no_sandbox(id))
    }

    pub fn record(&self, id: &str) -> Result<SandboxRecord, Error> {
        self.read(id, |sandbox| sandbox.record.clone())
    }

    pub fn matching(&self, filter: &PodSandboxFilter) -> Vec<SandboxRecord> {
        let sandboxes = self.sandboxes.lock();
        let records = sandboxes.values().map(|sandbox| &sandbox.record);
        records
            .filter(|record| record.id.starts_with(&filter.id))
            .filter(|record| {
                let state = filter.state.as_ref();
                state.is_none_or(|state| state.state() == sandbox_state(record))
            })
            .filter(|record| selects(&filter.label_selector, &record.config.labels))
            .cloned()
            .collect()
    }

    pub fn ready(&self) -> Vec<SandboxRecord> {
        let sandboxes = self.sandboxes.lock();
        let records = sandboxes.values().map(|sandbox| &sandbox.record);
        records
            .filter(|record| record.phase == SandboxPhase::Ready)
            .cloned()
            .collect()
    }

    pub fn ids(&self) -> BTreeSet<String> {
        self.sandboxes.lock().keys().cloned().collect()
    }

    /// Changes a record in memory and on disk. An unknown id is fine.
    pub fn update(&self, id: &str, change: impl FnOnce(&mut SandboxRecord)) -> Result<(), Error> {
        let mut sandboxes = self.sandboxes.lock();
        let Some(sandbox) = sandboxes.get_mut(id) else {
            return Ok(());
        };
        let existed = sandbox.record.phase != SandboxPhase::Creating;
        change(&mut sandbox.record);
        match self.files.write(id, &sandbox.record) {
            Err(error) if existed && is_full(&error) => Ok(()),
            other => other.map_err(Error::file(self.path(id))),
        }
    }

    /// Records that the pause process does not run any more.
    pub fn record_stopped(&self, id: &str) -> Result<(), Error> {
        self.update(id, |record| {
            record.phase = SandboxPhase::Stopped;
            record.pid = 0;
        })
    }

    /// Wakes those who wait for the end of the pause process.
    pub fn signal_end(&self, id: &str) {
        if let Some(sandbox) = self.sandboxes.lock().get(id) {
            sandbox.ended.send_replace(true);
        }
    }

    /// Becomes true when the pause process has ended.
    pub fn end(&self, id: &str) -> Result<watch::Receiver<bool>, Error> {
        self.read(id, |sandbox| sandbox.ended.subscribe())
    }

    pub async fn lock(&self, id: &str) -> Result<OwnedMutexGuard<()>, Error> {
        let lock = self.read(id, |sandbox| sandbox.lock.clone())?;
        Ok(lock.lock_owned().await)
    }

    pub fn shim(&self, id: &str) -> Option<Shim> {
        self.sandboxes.lock().get(id)?.shim.clone()
    }

    pub fn running_shim(&self, id: &str) -> Result<Shim, Error> {
        self.shim(id).ok_or_else(|| Error::sandbox_not_running(id))
    }

    pub fn set_shim(&self, id: &str, shim: Shim) {
        if let Some(sandbox) = self.sandboxes.lock().get_mut(id) {
            sandbox.shim = Some(shim);
        }
    }

    /// Returns the shim that the sandbox had until now.
    pub fn remove_shim(&self, id: &str) -> Option<Shim> {
        self.sandboxes.lock().get_mut(id)?.shim.take()
    }

    /// Removes the record's file; the sandbox stays in the table.
    pub fn remove_record(&self, id: &str) -> Result<(), Error> {
        self.files.remove(id).map_err(Error::file(self.path(id)))
    }

    /// Takes the sandbox out of the table.
    pub fn forget(&self, id: &str) {
        self.sandboxes.lock().remove(id);
    }

    /// The record's file.
    pub fn path(&self, id: &str) -> PathBuf {
        self.files.of(id)
    }

    fn read<T>(&self, id: &str, look: impl FnOnce(&Sandbox) -> T) -> Result<T, Error> {
        let sandboxes = self.sandboxes.lock();
        sandboxes
            .get(id)
            .map(look)
            .ok_or_else(|| Error::no_sandbox(id))
    }
}
