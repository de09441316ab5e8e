//! The objects of an informer, and the fan-out of their changes to subscribers.
//!
//! One reflector writes, everybody reads. A read holds the lock for a lookup or for cloning
//! references, never for decoding.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use environment::work;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    Object, ObjectKey,
    decode::decode,
    index::{TermIndex, Terms},
    mailbox::Mailbox,
    reflector::Reflected,
};

pub(crate) struct Cache<K> {
    /// Taken before a mailbox's lock.
    state: Mutex<State<K>>,
    /// The objects of a list that is not complete yet.
    staged: Mutex<Vec<K>>,
    synced: AtomicBool,
    /// This is not a `watch` channel, which wakes its waiters in a random order: a simulation must be
    /// repeatable.
    became_synced: Notify,
}

struct State<K> {
    /// Namespace, then name.
    objects: BTreeMap<String, BTreeMap<String, Arc<K>>>,
    /// The indexes by name; each is updated with every change of `objects`.
    indexes: BTreeMap<&'static str, TermIndex<K>>,
    subscribers: Vec<Weak<Mailbox<K>>>,
}

impl<K: Object> Cache<K> {
    pub(crate) fn new() -> Cache<K> {
        Cache {
            state: Mutex::new(State {
                objects: BTreeMap::new(),
                indexes: BTreeMap::new(),
                subscribers: Vec::new(),
            }),
            staged: Mutex::default(),
            synced: AtomicBool::new(false),
            became_synced: Notify::new(),
        }
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        work::visit(1);
        self.state.lock().get(namespace, name)
    }

    pub(crate) fn list(&self) -> Vec<Arc<K>> {
        let state = self.state.lock();
        let all = state.objects.values();
        counted(all.flat_map(|objects| objects.values().cloned()).collect())
    }

    pub(crate) fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        let state = self.state.lock();
        let objects = state.objects.get(namespace).into_iter();
        counted(
            objects
                .flat_map(|objects| objects.values().cloned())
                .collect(),
        )
    }

    pub(crate) fn count_in(&self, namespace: &str) -> usize {
        let state = self.state.lock();
        state.objects.get(namespace).map_or(0, BTreeMap::len)
    }

    /// Adds an index of that name, unless there is one.
    pub(crate) fn add_index(&self, name: &'static str, terms: Terms<K>) {
        let mut state = self.state.lock();
        if state.indexes.contains_key(name) {
            return;
        }
        let mut index = TermIndex::new(terms);
        for (namespace, objects) in &state.objects {
            for (name, object) in objects {
                index.set(&Arc::new(ObjectKey::new(namespace, name)), None, object);
            }
        }
        state.indexes.insert(name, index);
    }

    /// The objects that an index has under any of `terms`, each once, ordered by their keys.
    pub(crate) fn indexed(&self, name: &str, terms: &[String]) -> Vec<Arc<K>> {
        let state = self.state.lock();
        let Some(index) = state.indexes.get(name) else {
            return Vec::new();
        };
        let keys = index.under(terms);
        counted(
            keys.iter()
                .filter_map(|key| state.get(&key.namespace, &key.name))
                .collect(),
        )
    }

    /// The number of objects that an index has under `term`.
    pub(crate) fn indexed_count(&self, name: &str, term: &str) -> usize {
        let state = self.state.lock();
        let index = state.indexes.get(name);
        index.map_or(0, |index| index.count(term))
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    pub(crate) async fn synced(&self) {
        let mut became_synced = pin!(self.became_synced.notified());
        // Enabled before the check, so that a change in between wakes this task.
        became_synced.as_mut().enable();
        if !self.is_synced() {
            became_synced.await;
        }
    }

    pub(crate) fn subscribe(&self, now_micros: i64) -> Arc<Mailbox<K>> {
        let mailbox = Arc::new(Mailbox::new());
        let mut state = self.state.lock();
        for (namespace, objects) in &state.objects {
            for (name, object) in objects {
                let key = Arc::new(ObjectKey::new(namespace, name));
                mailbox.set(&key, None, object.clone(), now_micros, 0);
            }
        }
        if self.is_synced() {
            mailbox.resynced(now_micros);
        }
        state
            .subscribers
            .retain(|subscriber| subscriber.strong_count() > 0);
        state.subscribers.push(Arc::downgrade(&mailbox));
        mailbox
    }

    pub(crate) fn set(&self, object: K, received_micros: i64, bytes: u64) {
        self.state.lock().set(object, received_micros, bytes);
    }

    pub(crate) fn remove(&self, last: K, received_micros: i64, bytes: u64) {
        let key = Arc::new(ObjectKey::of(&last));
        let last = Arc::new(last);
        self.state
            .lock()
            .remove(&key, Some(last), received_micros, bytes);
    }

    /// Replaces all objects: those that are not in `objects` are deleted.
    pub(crate) fn replace(&self, objects: Vec<K>, received_micros: i64) {
        let mut state = self.state.lock();
        let listed: BTreeSet<ObjectKey> = objects.iter().map(ObjectKey::of).collect();
        let gone: Vec<ObjectKey> = state
            .keys()
            .into_iter()
            .filter(|key| !listed.contains(key))
            .collect();
        for key in gone {
            state.remove(&Arc::new(key), None, received_micros, 0);
        }
        for object in objects {
            state.set(object, received_micros, 0);
        }
        state.each_subscriber(|mailbox| mailbox.resynced(received_micros));
        // Set under the lock, so that a concurrent subscriber gets exactly one `Resynced`.
        self.synced.store(true, Ordering::Release);
        self.became_synced.notify_waiters();
    }
}

impl<K: Object> Reflected for Cache<K> {
    fn stage(&self, object: &str) -> Result<(), serde_json::Error> {
        let object = decode(object)?;
        self.staged.lock().push(object);
        Ok(())
    }

    fn unstage(&self) {
        self.staged.lock().clear();
    }

    fn replace(&self, received_micros: i64) {
        let objects = std::mem::take(&mut *self.staged.lock());
        Cache::replace(self, objects, received_micros);
    }

    fn apply(
        &self,
        object: &str,
        is_deleted: bool,
        received_micros: i64,
        bytes: u64,
    ) -> Result<Option<String>, serde_json::Error> {
        let object: K = decode(object)?;
        let reached = object.meta().resource_version.clone();
        match is_deleted {
            true => self.remove(object, received_micros, bytes),
            false => self.set(object, received_micros, bytes),
        }
        Ok(reached)
    }
}

fn counted<K>(objects: Vec<Arc<K>>) -> Vec<Arc<K>> {
    work::visit(objects.len());
    objects
}

impl<K: Object> State<K> {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.objects.get(namespace)?.get(name).cloned()
    }

    fn keys(&self) -> Vec<ObjectKey> {
        self.objects
            .iter()
            .flat_map(|(namespace, objects)| {
                objects
                    .keys()
                    .map(move |name| ObjectKey::new(namespace, name))
            })
            .collect()
    }

    fn set(&mut self, object: K, received_micros: i64, bytes: u64) {
        let key = Arc::new(ObjectKey::of(&object));
        let new = Arc::new(object);
        let objects = match self.objects.get_mut(&key.namespace) {
            Some(objects) => objects,
            None => self.objects.entry(key.namespace.clone()).or_default(),
        };
        if let Some(old) = objects.get(&key.name)
            && old.meta().resource_version.is_some()
            && old.meta().resource_version == new.meta().resource_version
        {
            return;
        }
        let old = objects.insert(key.name.clone(), new.clone());
        for index in self.indexes.values_mut() {
            index.set(&key, old.as_deref(), &new);
        }
        self.each_subscriber(|mailbox| {
            mailbox.set(&key, old.clone(), new.clone(), received_micros, bytes);
        });
    }

    fn remove(
        &mut self,
        key: &Arc<ObjectKey>,
        last: Option<Arc<K>>,
        received_micros: i64,
        bytes: u64,
    ) {
        let Some(objects) = self.objects.get_mut(&key.namespace) else {
            return;
        };
        let Some(old) = objects.remove(&key.name) else {
            return;
        };
        if objects.is_empty() {
            self.objects.remove(&key.namespace);
        }
        for index in self.indexes.values_mut() {
            index.remove(key);
        }
        let last = last.unwrap_or_else(|| old.clone());
        self.each_subscriber(|mailbox| {
            mailbox.remove(key, old.clone(), last.clone(), received_micros, bytes);
        });
    }

    fn each_subscriber(&mut self, deliver: impl Fn(&Mailbox<K>)) {
        self.subscribers
            .retain(|subscriber| match subscriber.upgrade() {
                Some(mailbox) => {
                    deliver(&mailbox);
                    true
                }
                None => false,
            });
    }
}
