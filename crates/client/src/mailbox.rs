//! The changes that a subscriber has not read yet, coalesced per key.
//!
//! A mailbox keeps, per key, the state that its reader last saw and the current state. A slow reader
//! therefore has at most one pending change per object, and gets as `old` the state that it last saw.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{Object, ObjectKey};

/// A change of one object since the reader last saw it.
#[derive(Clone, Debug)]
pub enum Change<K> {
    Added(Arc<K>),
    Modified {
        old: Arc<K>,
        new: Arc<K>,
    },
    /// Carries the last known state.
    Deleted(Arc<K>),
    /// All objects of a complete list have been delivered before this. It comes after the first
    /// list and after each relist.
    Resynced,
}

/// A change, the time at which its newest state arrived, and its size on the wire (0 when it came
/// from the cache or a list).
#[derive(Clone, Debug)]
pub struct Delivery<K> {
    pub change: Change<K>,
    pub received_micros: i64,
    pub bytes: u64,
}

/// The pending changes of one subscription.
pub(crate) struct Mailbox<K> {
    /// Taken after the cache's lock, never before it.
    pending: Mutex<Pending<K>>,
    wake: Notify,
}

struct Pending<K> {
    order: VecDeque<PendingItem>,
    /// Never iterated, so that its order has no effect. Keys are shared by all mailboxes.
    changes: HashMap<Arc<ObjectKey>, PendingChange<K>, BuildHasherDefault<DefaultHasher>>,
    /// The second of two deliveries for one key: an object was deleted and another was created under
    /// the same name.
    second: Option<Delivery<K>>,
}

#[derive(PartialEq)]
enum PendingItem {
    Key(Arc<ObjectKey>),
    Resynced(i64),
}

struct PendingChange<K> {
    delivered: Option<Arc<K>>,
    current: Option<Arc<K>>,
    /// The last state of `delivered` when it was deleted meanwhile.
    last_of_delivered: Option<Arc<K>>,
    received_micros: i64,
    bytes: u64,
}

impl<K: Object> Mailbox<K> {
    /// Waits until there may be something to pop.
    pub(crate) async fn notified(&self) {
        self.wake.notified().await;
    }

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
        let change = pending.change(key, old);
        change.current = Some(new);
        change.received_micros = received_micros;
        change.bytes = bytes;
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
        let change = pending.change(key, Some(old));
        change.current = None;
        if change.last_of_delivered.is_none() {
            change.last_of_delivered = Some(last);
        }
        change.received_micros = received_micros;
        change.bytes = bytes;
        drop(pending);
        self.wake.notify_one();
    }

    pub(crate) fn resynced(&self, received_micros: i64) {
        let mut pending = self.pending.lock();
        pending
            .order
            .retain(|item| !matches!(item, PendingItem::Resynced(_)));
        pending
            .order
            .push_back(PendingItem::Resynced(received_micros));
        drop(pending);
        self.wake.notify_one();
    }

    pub(crate) fn pop(&self) -> Option<Delivery<K>> {
        let mut pending = self.pending.lock();
        if let Some(second) = pending.second.take() {
            return Some(second);
        }
        loop {
            let key = match pending.order.pop_front()? {
                PendingItem::Resynced(received_micros) => {
                    return Some(Delivery {
                        change: Change::Resynced,
                        received_micros,
                        bytes: 0,
                    });
                }
                PendingItem::Key(key) => key,
            };
            let Some(change) = pending.changes.remove(&key) else {
                continue;
            };
            let (received_micros, bytes) = (change.received_micros, change.bytes);
            let deliver = |change: Change<K>| Delivery {
                change,
                received_micros,
                bytes,
            };
            match (change.delivered, change.current) {
                // The object was created and deleted before the reader saw it.
                (None, None) => {}
                (None, Some(new)) => return Some(deliver(Change::Added(new))),
                (Some(old), None) => {
                    let last = change.last_of_delivered.unwrap_or(old);
                    return Some(deliver(Change::Deleted(last)));
                }
                (Some(old), Some(new)) if old.meta().uid != new.meta().uid => {
                    let last = change.last_of_delivered.unwrap_or(old);
                    pending.second = Some(deliver(Change::Added(new)));
                    return Some(deliver(Change::Deleted(last)));
                }
                (Some(old), Some(new)) => return Some(deliver(Change::Modified { old, new })),
            }
        }
    }
}

impl<K> Pending<K> {
    /// The pending change of a key. `delivered` is the state before the change, if it is the first.
    fn change(&mut self, key: &Arc<ObjectKey>, delivered: Option<Arc<K>>) -> &mut PendingChange<K> {
        if !self.changes.contains_key(key) {
            self.order.push_back(PendingItem::Key(key.clone()));
        }
        self.changes.entry(key.clone()).or_insert(PendingChange {
            delivered,
            current: None,
            last_of_delivered: None,
            received_micros: 0,
            bytes: 0,
        })
    }
}
