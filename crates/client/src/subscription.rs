//! Change feeds from an informer's cache to its consumers: coalesced per key, never blocking the
//! reflector, never losing the newest state.
//!
//! A mailbox remembers, per key, the state its reader last saw and the state that is current. A
//! slow reader therefore holds at most one entry per object, and sees `old` as *it* last saw it.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use environment::work;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{Object, ObjectKey, cache::Cache, informer::Running};

/// What happened to one object since the reader last saw it.
#[derive(Clone, Debug)]
pub enum Change<K> {
    Added(Arc<K>),
    Modified {
        old: Arc<K>,
        new: Arc<K>,
    },
    /// Carries the last known state.
    Deleted(Arc<K>),
    /// Every object of a complete list has been delivered before this one. Comes once after the
    /// first list and again after each relist.
    Resynced,
}

/// A change with when its newest state arrived and its size on the wire (0 when it came out of
/// the cache or a list).
#[derive(Clone, Debug)]
pub struct Delivery<K> {
    pub change: Change<K>,
    pub received_micros: i64,
    pub bytes: u64,
}

/// One consumer's feed. A new subscription begins with every cached object as `Added`.
pub struct Subscription<K> {
    pub(crate) mailbox: Arc<Mailbox<K>>,
    pub(crate) _cache: Arc<Cache<K>>,
    pub(crate) _running: Arc<Running>,
}

impl<K: Object> Subscription<K> {
    /// The next change; waits as long as there is none. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Change<K> {
        self.next_delivery().await.change
    }

    pub async fn next_delivery(&mut self) -> Delivery<K> {
        loop {
            if let Some(delivery) = self.mailbox.pop() {
                work::visit(1);
                return delivery;
            }
            self.mailbox.wake.notified().await;
        }
    }

    /// The next change that is already there.
    pub fn try_next(&mut self) -> Option<Change<K>> {
        self.mailbox.pop().map(|delivery| delivery.change)
    }
}

pub(crate) struct Mailbox<K> {
    /// Taken after the cache's lock, never before it.
    pending: Mutex<Pending<K>>,
    wake: Notify,
}

struct Pending<K> {
    order: VecDeque<Entry>,
    /// Looked up, never iterated: its order cannot show. Keys are shared by all mailboxes.
    changes: HashMap<Arc<ObjectKey>, Waiting<K>, BuildHasherDefault<DefaultHasher>>,
    /// The second half of a delivery that became two (deleted, then added under the same name).
    second: Option<Delivery<K>>,
}

#[derive(PartialEq)]
enum Entry {
    Key(Arc<ObjectKey>),
    Resynced(i64),
}

struct Waiting<K> {
    delivered: Option<Arc<K>>,
    current: Option<Arc<K>>,
    /// The last state of `delivered` when it was deleted meanwhile.
    last_of_delivered: Option<Arc<K>>,
    received_micros: i64,
    bytes: u64,
}

impl<K: Object> Mailbox<K> {
    pub(crate) fn new() -> Mailbox<K> {
        Mailbox {
            pending: Mutex::new(Pending {
                order: VecDeque::new(),
                changes: HashMap::default(),
                second: None,
            }),
            wake: Notify::new(),
        }
    }

    pub(crate) fn set(
        &self,
        key: &Arc<ObjectKey>,
        old: Option<Arc<K>>,
        new: Arc<K>,
        received_micros: i64,
        bytes: u64,
    ) {
        let mut pending = self.pending.lock();
        let waiting = pending.waiting(key, old);
        waiting.current = Some(new);
        waiting.received_micros = received_micros;
        waiting.bytes = bytes;
        drop(pending);
        self.wake.notify_one();
    }

    pub(crate) fn remove(
        &self,
        key: &Arc<ObjectKey>,
        old: Arc<K>,
        last: Arc<K>,
        received_micros: i64,
        bytes: u64,
    ) {
        let mut pending = self.pending.lock();
        let waiting = pending.waiting(key, Some(old));
        waiting.current = None;
        if waiting.last_of_delivered.is_none() {
            waiting.last_of_delivered = Some(last);
        }
        waiting.received_micros = received_micros;
        waiting.bytes = bytes;
        drop(pending);
        self.wake.notify_one();
    }

    pub(crate) fn resynced(&self, received_micros: i64) {
        let mut pending = self.pending.lock();
        pending
            .order
            .retain(|entry| !matches!(entry, Entry::Resynced(_)));
        pending.order.push_back(Entry::Resynced(received_micros));
        drop(pending);
        self.wake.notify_one();
    }

    fn pop(&self) -> Option<Delivery<K>> {
        let mut pending = self.pending.lock();
        if let Some(second) = pending.second.take() {
            return Some(second);
        }
        loop {
            let key = match pending.order.pop_front()? {
                Entry::Resynced(received_micros) => {
                    return Some(Delivery {
                        change: Change::Resynced,
                        received_micros,
                        bytes: 0,
                    });
                }
                Entry::Key(key) => key,
            };
            let Some(waiting) = pending.changes.remove(&key) else {
                continue;
            };
            let (received_micros, bytes) = (waiting.received_micros, waiting.bytes);
            let deliver = |change| Delivery {
                change,
                received_micros,
                bytes,
            };
            match (waiting.delivered, waiting.current) {
                // Came and went before the reader looked.
                (None, None) => {}
                (None, Some(new)) => return Some(deliver(Change::Added(new))),
                (Some(old), None) => {
                    let last = waiting.last_of_delivered.unwrap_or(old);
                    return Some(deliver(Change::Deleted(last)));
                }
                (Some(old), Some(new)) if old.meta().uid != new.meta().uid => {
                    let last = waiting.last_of_delivered.unwrap_or(old);
                    pending.second = Some(deliver(Change::Added(new)));
                    return Some(deliver(Change::Deleted(last)));
                }
                (Some(old), Some(new)) => return Some(deliver(Change::Modified { old, new })),
            }
        }
    }
}

impl<K> Pending<K> {
    fn waiting(&mut self, key: &Arc<ObjectKey>, delivered: Option<Arc<K>>) -> &mut Waiting<K> {
        if !self.changes.contains_key(key) {
            self.order.push_back(Entry::Key(key.clone()));
        }
        self.changes.entry(key.clone()).or_insert(Waiting {
            delivered,
            current: None,
            last_of_delivered: None,
            received_micros: 0,
            bytes: 0,
        })
    }
}
