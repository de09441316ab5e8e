//! What the tables of sandboxes and containers share: the records in memory and on disk by id and by
//! name, a lock per object for calls that change it, and a signal for those who wait for its end.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::PathBuf,
    sync::Arc,
};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{OwnedMutexGuard, watch};

use super::Error;
use crate::records::Directory;

/// A kind of record that a table keeps.
pub trait TableRecord: Clone + Serialize + DeserializeOwned {
    /// `sandbox` or `container`, for errors.
    const KIND: &'static str;
    /// Whether a change is recorded after it took effect. A container runs when its start is
    /// recorded; a sandbox becomes ready by its record.
    const IS_WRITTEN_AFTERWARDS: bool;
    /// State that does not survive a restart of the server.
    type Transient: Default;

    fn id(&self) -> &str;

    /// What must be unique among all objects of the kind.
    fn name(&self) -> Vec<String>;

    /// The name as errors show it.
    fn shown_name(&self) -> String;

    /// Whether the object exists even if a change of it cannot be written.
    fn exists(&self) -> bool;

    fn has_ended(&self) -> bool;
}

pub struct Table<R: TableRecord> {
    files: Directory,
    /// Never held across an await. An object's lock is taken before it, never inside.
    objects: Mutex<Objects<R>>,
}

struct Objects<R: TableRecord> {
    by_id: BTreeMap<String, Object<R>>,
    ids_by_name: BTreeMap<Vec<String>, String>,
}

pub(super) struct Object<R: TableRecord> {
    pub record: R,
    pub transient: R::Transient,
    /// Serialises the calls that change the object.
    lock: Arc<tokio::sync::Mutex<()>>,
    /// True when the object's process has ended.
    ended: watch::Sender<bool>,
}

impl<R: TableRecord> Objects<R> {
    fn insert(&mut self, record: R) {
        let id = record.id().to_owned();
        self.ids_by_name.insert(record.name(), id.clone());
        let object = Object {
            transient: R::Transient::default(),
            lock: Arc::default(),
            ended: watch::Sender::new(record.has_ended()),
            record,
        };
        self.by_id.insert(id, object);
    }
}

impl<R: TableRecord> Table<R> {
    /// An empty table; records are kept in `files`.
    pub fn new(files: Directory) -> Table<R> {
        Table {
            files,
            objects: Mutex::new(Objects {
                by_id: BTreeMap::new(),
                ids_by_name: BTreeMap::new(),
            }),
        }
    }

    /// The records on disk, and the paths without a readable one.
    pub fn read_records(&self) -> io::Result<(Vec<R>, Vec<PathBuf>)> {
        self.files.load()
    }

    /// Adds objects that an earlier server recorded.
    pub fn adopt(&self, records: Vec<R>) {
        let mut objects = self.objects.lock();
        for record in records {
            objects.insert(record);
        }
    }

    /// Adds a new object, in memory and on disk, unless there is one of the same name.
    pub fn reserve(&self, record: R) -> Result<(), Error> {
        let mut objects = self.objects.lock();
        if let Some(other) = objects.ids_by_name.get(&record.name()) {
            let (kind, name) = (R::KIND, record.shown_name());
            let message = format!("{kind} {name} is reserved for {other:?}");
            return Err(Error::Exists(message));
        }
        let written = self.files.write(record.id(), &record);
        written.map_err(Error::file(self.path(record.id())))?;
        objects.insert(record);
        Ok(())
    }

    /// The full id of an object given by id or a unique beginning of it.
    pub fn id(&self, id: &str) -> Result<String, Error> {
        full_id(&self.objects.lock().by_id, id).ok_or_else(|| Self::not_found(id))
    }

    pub fn record(&self, id: &str) -> Result<R, Error> {
        self.read(id, |object| object.record.clone())
    }

    /// What `look` finds in the records, in the order of their ids.
    pub fn collect<T, C: FromIterator<T>>(&self, look: impl Fn(&R) -> Option<T>) -> C {
        let objects = self.objects.lock();
        let records = objects.by_id.values().map(|object| &object.record);
        records.filter_map(look).collect()
    }

    /// The records that match, in the order of their ids.
    pub fn select(&self, matches: impl Fn(&R) -> bool) -> Vec<R> {
        self.collect(|record| matches(record).then(|| record.clone()))
    }

    /// The records whose name begins with `first`, found without looking at others.
    pub fn named(&self, first: &str) -> Vec<R> {
        let objects = self.objects.lock();
        let ids = objects.ids_by_name.range(vec![first.to_owned()]..);
        ids.take_while(|(name, _)| name.first().is_some_and(|part| part == first))
            .filter_map(|(_, id)| Some(objects.by_id.get(id)?.record.clone()))
            .collect()
    }

    /// Changes a record in memory and on disk. An unknown id is fine. The change of an object that
    /// exists must not fail because the disk is full, since its end is what frees space: memory has
    /// the change, and after a restart the shim (or its absence) shows it again.
    pub fn update(&self, id: &str, change: impl FnOnce(&mut R)) -> Result<(), Error> {
        let Some(mut object) = self.get(id) else {
            return Ok(());
        };
        let existed = object.record.exists();
        change(&mut object.record);
        let exists = existed || R::IS_WRITTEN_AFTERWARDS && object.record.exists();
        match self.files.write(id, &object.record) {
            Err(error) if exists && is_full(&error) => Ok(()),
            other => other.map_err(Error::file(self.path(id))),
        }
    }

    /// Wakes those who wait for the end of the object's process.
    pub fn signal_end(&self, id: &str) {
        if let Some(object) = self.get(id) {
            object.ended.send_replace(true);
        }
    }

    /// Becomes true when the object's process has ended.
    pub fn end(&self, id: &str) -> Result<watch::Receiver<bool>, Error> {
        self.read(id, |object| object.ended.subscribe())
    }

    pub async fn lock(&self, id: &str) -> Result<OwnedMutexGuard<()>, Error> {
        let lock = self.read(id, |object| object.lock.clone())?;
        Ok(lock.lock_owned().await)
    }

    /// Removes what is on disk; the object stays in the table.
    pub fn remove_record(&self, id: &str) -> Result<(), Error> {
        self.files.remove(id).map_err(Error::file(self.path(id)))
    }

    /// Takes the object out of the table.
    pub fn forget(&self, id: &str) {
        let mut objects = self.objects.lock();
        if let Some(object) = objects.by_id.remove(id) {
            objects.ids_by_name.remove(&object.record.name());
        }
    }

    /// The object's directory, or the file of its record.
    pub fn path(&self, id: &str) -> PathBuf {
        self.files.of(id)
    }

    pub(super) fn get(&self, id: &str) -> Option<MappedMutexGuard<'_, Object<R>>> {
        MutexGuard::try_map(self.objects.lock(), |objects| objects.by_id.get_mut(id)).ok()
    }

    fn read<T>(&self, id: &str, look: impl FnOnce(&Object<R>) -> T) -> Result<T, Error> {
        let object = self.get(id).ok_or_else(|| Self::not_found(id))?;
        Ok(look(&object))
    }

    fn not_found(id: &str) -> Error {
        Error::not_found(R::KIND, id)
    }
}

/// The full id for an id or a unique beginning of one.
fn full_id<T>(known: &BTreeMap<String, T>, id: &str) -> Option<String> {
    if known.contains_key(id) {
        return Some(id.to_owned());
    }
    if id.is_empty() {
        return None;
    }
    let mut found = known
        .range(id.to_owned()..)
        .take_while(|(known, _)| known.starts_with(id));
    match (found.next(), found.next()) {
        (Some((known, _)), None) => Some(known.clone()),
        _ => None,
    }
}

/// Whether every label of the selector is on the object.
pub fn selects(selector: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(name, value)| labels.get(name) == Some(value))
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::SandboxPhase;
    use serde::Deserialize;

    #[derive(Clone, Serialize, Deserialize)]
    struct Named {
        id: String,
        name: Vec<String>,
        phase: SandboxPhase,
    }

    impl TableRecord for Named {
        const KIND: &'static str = "thing";
        const IS_WRITTEN_AFTERWARDS: bool = false;
        type Transient = ();

        fn id(&self) -> &str {
            &self.id
        }

        fn name(&self) -> Vec<String> {
            self.name.clone()
        }

        fn shown_name(&self) -> String {
            self.name.join("_")
        }

        fn exists(&self) -> bool {
            true
        }

        fn has_ended(&self) -> bool {
            self.phase == SandboxPhase::Stopped
        }
    }

    fn named(id: &str, name: &[&str]) -> Named {
        Named {
            id: id.to_owned(),
            name: name.iter().map(ToString::to_string).collect(),
            phase: SandboxPhase::Ready,
        }
    }

    #[test]
    fn an_id_may_be_shortened_while_it_is_unique() {
        let known: BTreeMap<String, ()> = ["abc", "abd", "b"].map(|id| (id.to_owned(), ())).into();
        assert_eq!(full_id(&known, "abc").as_deref(), Some("abc"));
        assert_eq!(full_id(&known, "abd").as_deref(), Some("abd"));
        assert_eq!(full_id(&known, "b").as_deref(), Some("b"));
        assert_eq!(full_id(&known, "ab"), None);
        assert_eq!(full_id(&known, ""), None);
        assert_eq!(full_id(&known, "c"), None);
    }

    #[test]
    fn a_name_is_free_again_when_its_object_is_forgotten() {
        let root = tempfile::tempdir().expect("a directory");
        let table = Table::new(Directory::of_sandboxes(root.path()));
        table.reserve(named("a", &["pod", "0"])).expect("reserved");
        table.reserve(named("b", &["pod", "1"])).expect("reserved");
        table.reserve(named("c", &["pods", "0"])).expect("reserved");
        let refused = table.reserve(named("d", &["pod", "0"])).err();
        let message = refused.map(|error| error.to_string());
        assert_eq!(
            message.as_deref(),
            Some("thing pod_0 is reserved for \"a\"")
        );
        let ids = |first: &str| -> Vec<String> {
            let found = table.named(first).into_iter();
            found.map(|record| record.id).collect()
        };
        assert_eq!(ids("pod"), ["a", "b"]);
        table.forget("a");
        assert_eq!(ids("pod"), ["b"]);
        table.reserve(named("d", &["pod", "0"])).expect("reserved");
        assert_eq!(table.read_records().expect("read").0.len(), 4);
    }
}
