//! The newest changes, as one watch on etcd delivers them, kept for all watchers of this process.
//! Bounded; a watcher older than the window asks etcd itself.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};

use super::Bounds;
use crate::{Error, Event, Revision};

/// The changes of one revision to our keys.
pub struct Committed {
    pub revision: Revision,
    pub events: Vec<Event>,
}

impl Committed {
    fn bytes(&self) -> usize {
        let size = |event: &Event| match event {
            Event::Put { item, previous } => {
                let before = previous.as_ref().map_or(0, |item| item.value.len());
                item.key.len() + item.value.len() + before
            }
            Event::Delete { key, previous, .. } => {
                key.len() + previous.as_ref().map_or(0, |item| item.value.len())
            }
        };
        self.events.iter().map(size).sum()
    }
}

/// What a watcher finds.
pub enum Look {
    /// Its revision is older than the window.
    Behind,
    Nothing,
    /// The next changes, and the newest revision known.
    Changes(Vec<Arc<Committed>>, Revision),
}

pub struct Window {
    bounds: Bounds,
    inner: Mutex<Inner>,
    changed: Notify,
    /// The newest revision that a reader has seen: the follower asks etcd for a sign that it has
    /// been reached.
    wanted: watch::Sender<Revision>,
}

struct Inner {
    /// In order, with gaps where revisions did not touch our keys.
    entries: VecDeque<Arc<Committed>>,
    bytes: usize,
    /// The first revision from which the entries are complete.
    start: Revision,
    /// The newest revision known to be complete.
    head: Revision,
    /// What this process asked to be forgotten: everything before.
    compacted: Revision,
    closed: bool,
}

impl Window {
    pub fn new(bounds: Bounds, revision: Revision) -> Window {
        Window {
            bounds,
            inner: Mutex::new(Inner {
                entries: VecDeque::new(),
                bytes: 0,
                start: revision + 1,
                head: revision,
                compacted: 0,
                closed: false,
            }),
            changed: Notify::new(),
            wanted: watch::Sender::new(revision),
        }
    }

    pub fn push(&self, committed: Arc<Committed>) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        inner.head = inner.head.max(committed.revision);
        if committed.revision >= inner.start {
            inner.bytes += committed.bytes();
            inner.entries.push_back(committed);
            while inner.entries.len() > 1
                && (inner.entries.len() > self.bounds.revisions || inner.bytes > self.bounds.bytes)
            {
                inner.drop_oldest();
            }
        }
        drop(guard);
        self.changed.notify_waiters();
    }

    /// Everything up to `revision` has been delivered.
    pub fn reached(&self, revision: Revision) {
        let mut inner = self.inner.lock();
        if revision > inner.head {
            inner.head = revision;
            drop(inner);
            self.changed.notify_waiters();
        }
    }

    /// Begins anew after `revision`: what lies between is gone.
    pub fn reset(&self, revision: Revision) {
        let mut inner = self.inner.lock();
        inner.entries.clear();
        inner.bytes = 0;
        inner.start = revision + 1;
        inner.head = revision;
        drop(inner);
        self.changed.notify_waiters();
    }

    pub fn compact(&self, revision: Revision) {
        let mut inner = self.inner.lock();
        let before = |entry: &Arc<Committed>| entry.revision < revision;
        while inner.entries.front().is_some_and(before) {
            inner.drop_oldest();
        }
        inner.start = inner.start.max(revision);
        inner.compacted = inner.compacted.max(revision);
        drop(inner);
        self.changed.notify_waiters();
    }

    pub fn look(&self, from: Revision, most: usize) -> Result<Look, Error> {
        let inner = self.inner.lock();
        inner.check_open()?;
        if from < inner.start {
            return Ok(Look::Behind);
        }
        if from > inner.head {
            return Ok(Look::Nothing);
        }
        let first = inner.entries.partition_point(|entry| entry.revision < from);
        let changes = inner.entries.range(first..).take(most).cloned().collect();
        Ok(Look::Changes(changes, inner.head))
    }

    /// Whether a watch can start at `from` without asking etcd.
    pub fn covers(&self, from: Revision) -> Result<bool, Error> {
        let inner = self.inner.lock();
        inner.check_open()?;
        Ok(from >= inner.start && from <= inner.head + 1)
    }

    pub fn head(&self) -> Revision {
        self.inner.lock().head
    }

    pub fn compacted(&self) -> Revision {
        self.inner.lock().compacted
    }

    /// Completes at the next change; enable it before looking.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub fn want(&self, revision: Revision) {
        self.wanted.send_if_modified(|wanted| {
            let more = revision > *wanted;
            *wanted = revision.max(*wanted);
            more
        });
    }

    pub fn wanted(&self) -> watch::Receiver<Revision> {
        self.wanted.subscribe()
    }

    /// Ends all watches.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.changed.notify_waiters();
    }
}

impl Inner {
    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.entries.pop_front() {
            self.bytes -= oldest.bytes();
            self.start = self.start.max(oldest.revision + 1);
        }
    }

    fn check_open(&self) -> Result<(), Error> {
        match self.closed {
            true => Err(Error::Closed("the client was dropped".to_owned())),
            false => Ok(()),
        }
    }
}
