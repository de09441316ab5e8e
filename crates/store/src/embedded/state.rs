//! The engine's state in memory, pure and without I/O: the ordered keys, the leases, and how a
//! transaction changes them. A clone is a snapshot and costs nothing.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::{OrdMap, OrdSet};

use crate::{
    Compare, Error, Event, KeyRange, KeyValue, LeaseId, Operation, Revision, Transaction,
    TransactionResult,
};

/// The revision of a store in which nothing has happened, as in etcd.
pub const FIRST_REVISION: Revision = 1;

pub type Items = OrdMap<Bytes, Arc<KeyValue>>;

#[derive(Clone)]
pub struct State {
    pub revision: Revision,
    pub items: Items,
    /// Granted leases with their seconds.
    pub leases: OrdMap<LeaseId, u64>,
    /// The keys under each lease.
    lease_keys: OrdSet<(LeaseId, Bytes)>,
}

/// The changes of one revision.
#[derive(Debug)]
pub struct Committed {
    pub revision: Revision,
    pub events: Vec<Event>,
}

impl State {
    pub fn new(revision: Revision) -> State {
        State {
            revision,
            items: OrdMap::new(),
            leases: OrdMap::new(),
            lease_keys: OrdSet::new(),
        }
    }

    /// Evaluates a transaction and, if its conditions hold, makes its changes.
    pub fn transact(
        &mut self,
        transaction: Transaction,
    ) -> Result<(TransactionResult, Option<Committed>), Error> {
        let held = transaction.compare.iter().all(|compare| match compare {
            Compare::ModRevision { key, revision } => {
                self.items.get(key).map_or(0, |item| item.mod_revision) == *revision
            }
        });
        if !held {
            let current = transaction
                .compare
                .iter()
                .map(|Compare::ModRevision { key, .. }| self.get(key))
                .collect();
            let revision = self.revision;
            return Ok((TransactionResult::Failed { revision, current }, None));
        }
        self.check(&transaction.then)?;
        let previous = transaction
            .then
            .iter()
            .map(|operation| self.get(operation.key()))
            .collect();
        let committed = self.apply(transaction.then);
        let revision = self.revision;
        let result = TransactionResult::Committed { revision, previous };
        Ok((result, committed))
    }

    /// Makes changes at the next revision, which counts only if one of them has an effect.
    pub fn apply(&mut self, operations: Vec<Operation>) -> Option<Committed> {
        let revision = self.revision + 1;
        let events: Vec<Event> = operations
            .into_iter()
            .filter_map(|operation| self.change(operation, revision))
            .collect();
        if events.is_empty() {
            return None;
        }
        self.revision = revision;
        Some(Committed { revision, events })
    }

    /// Adds a key as a checkpoint's base holds it.
    pub fn restore(&mut self, item: KeyValue) {
        if let Some(lease) = item.lease {
            self.lease_keys.insert((lease, item.key.clone()));
        }
        self.items.insert(item.key.clone(), Arc::new(item));
    }

    /// Ends a lease and deletes its keys.
    pub fn end_lease(&mut self, lease: LeaseId) -> Option<Committed> {
        self.leases.remove(&lease);
        let deletes = self
            .lease_keys
            .range((lease, Bytes::new())..)
            .take_while(|(owner, _)| *owner == lease)
            .map(|(_, key)| Operation::Delete { key: key.clone() })
            .collect();
        self.apply(deletes)
    }

    fn check(&self, operations: &[Operation]) -> Result<(), Error> {
        let mut keys = BTreeSet::new();
        for operation in operations {
            if operations.len() > 1 && !keys.insert(operation.key()) {
                return Err(Error::DuplicateKey);
            }
            if let Operation::Put {
                lease: Some(lease), ..
            } = operation
                && !self.leases.contains_key(lease)
            {
                return Err(Error::LeaseNotFound(*lease));
            }
        }
        Ok(())
    }

    fn get(&self, key: &Bytes) -> Option<KeyValue> {
        self.items.get(key).map(|item| KeyValue::clone(item))
    }

    fn change(&mut self, operation: Operation, revision: Revision) -> Option<Event> {
        let previous = match &operation {
            Operation::Put { key, .. } => self.get(key),
            Operation::Delete { key } => {
                let removed = self.items.remove(key)?;
                Some(KeyValue::clone(&removed))
            }
        };
        if let Some(previous) = &previous
            && let Some(lease) = previous.lease
        {
            self.lease_keys.remove(&(lease, previous.key.clone()));
        }
        Some(match operation {
            Operation::Put { key, value, lease } => {
                let item = KeyValue {
                    create_revision: previous
                        .as_ref()
                        .map_or(revision, |previous| previous.create_revision),
                    mod_revision: revision,
                    version: previous.as_ref().map_or(1, |previous| previous.version + 1),
                    key,
                    value,
                    lease,
                };
                self.restore(item.clone());
                Event::Put { item, previous }
            }
            Operation::Delete { key } => Event::Delete {
                key,
                revision,
                previous,
            },
        })
    }
}

impl Committed {
    /// The changes in the form the log keeps.
    pub fn operations(&self) -> Vec<Operation> {
        self.events
            .iter()
            .map(|event| match event {
                Event::Put { item, .. } => Operation::Put {
                    key: item.key.clone(),
                    value: item.value.clone(),
                    lease: item.lease,
                },
                Event::Delete { key, .. } => Operation::Delete { key: key.clone() },
            })
            .collect()
    }

    /// What this revision costs in memory, roughly.
    pub fn bytes(&self) -> usize {
        self.events
            .iter()
            .map(|event| match event {
                Event::Put { item, .. } => 256 + item.key.len() + item.value.len(),
                Event::Delete { key, .. } => 256 + key.len(),
            })
            .sum()
    }
}

impl Event {
    pub(super) fn previous(&self) -> Option<&KeyValue> {
        match self {
            Event::Put { previous, .. } | Event::Delete { previous, .. } => previous.as_ref(),
        }
    }
}

/// Walks the keys of a range in order.
pub fn in_range<'a>(
    items: &'a Items,
    range: &'a KeyRange,
) -> impl Iterator<Item = &'a Arc<KeyValue>> + 'a {
    let end = if range.end.is_empty() {
        Bound::Unbounded
    } else {
        // A range that ends before it starts is empty, not a mistake.
        Bound::Excluded(range.end.clone().max(range.start.clone()))
    };
    items
        .range((Bound::Included(range.start.clone()), end))
        .map(|(_, item)| item)
}
