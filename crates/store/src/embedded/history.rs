//! The newest revisions' changes, kept so that watches can start in the past and ranges can be
//! read at an older revision. Bounded by count and bytes; what falls out is compacted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::state::{Committed, FIRST_REVISION, Items};
use crate::{Error, KeyRange, KeyValue, Revision};

/// How much history is kept without being asked to forget it.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub revisions: usize,
    pub bytes: usize,
}

#[derive(Clone)]
pub struct History {
    /// Without gaps: each entry's revision is one more than that of the entry before.
    entries: VecDeque<Arc<Committed>>,
    bytes: usize,
    /// The oldest revision that can be read at or watched from.
    pub oldest: Revision,
}

impl History {
    pub fn new(oldest: Revision) -> History {
        History {
            entries: VecDeque::new(),
            bytes: 0,
            oldest,
        }
    }

    pub fn push(&mut self, committed: Arc<Committed>) {
        self.bytes += committed.bytes();
        self.entries.push_back(committed);
    }

    /// Drops the oldest revisions until the window holds, always keeping the newest.
    pub fn trim(&mut self, window: Window) {
        while self.entries.len() > 1
            && (self.entries.len() > window.revisions || self.bytes > window.bytes)
        {
            self.drop_oldest();
        }
    }

    /// Forgets everything before `revision`.
    pub fn compact(&mut self, revision: Revision) {
        while self
            .entries
            .front()
            .is_some_and(|entry| entry.revision < revision)
        {
            self.drop_oldest();
        }
        self.oldest = self.oldest.max(revision);
    }

    /// Up to `limit` entries from `revision` on.
    pub fn from(&self, revision: Revision, limit: usize) -> Vec<Arc<Committed>> {
        let start = match self.entries.front() {
            Some(front) => revision.saturating_sub(front.revision) as usize,
            None => 0,
        };
        self.entries
            .iter()
            .skip(start)
            .take(limit)
            .cloned()
            .collect()
    }

    /// The revision just before the first entry: what a checkpoint takes as its base.
    pub fn base_revision(&self, newest: Revision) -> Revision {
        match self.entries.front() {
            Some(front) => front.revision - 1,
            None => newest,
        }
    }

    /// Whether `revision` can still be read at or watched from.
    pub fn check(&self, requested: Revision) -> Result<(), Error> {
        if requested < self.oldest {
            return Err(Error::Compacted {
                requested,
                oldest: self.oldest,
            });
        }
        Ok(())
    }

    fn drop_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.bytes();
            self.oldest = self.oldest.max(entry.revision + 1);
        }
    }
}

/// What the keys of `range` held before `entries` (all newer revisions, oldest first) happened:
/// per touched key its older state, `None` for absent.
pub fn undo(
    entries: &[Arc<Committed>],
    range: Option<&KeyRange>,
) -> BTreeMap<Bytes, Option<KeyValue>> {
    let mut before = BTreeMap::new();
    for event in entries.iter().flat_map(|entry| &entry.events) {
        if range.is_none_or(|range| range.contains(event.key())) {
            before
                .entry(event.key().clone())
                .or_insert_with(|| event.previous().cloned());
        }
    }
    before
}

/// The whole map as it was before `entries` happened.
pub fn rewind(items: &Items, entries: &[Arc<Committed>]) -> Items {
    let mut items = items.clone();
    for (key, previous) in undo(entries, None) {
        match previous {
            Some(previous) => items.insert(key, Arc::new(previous)),
            None => items.remove(&key),
        };
    }
    items
}

impl Default for History {
    fn default() -> History {
        History::new(FIRST_REVISION)
    }
}
