//! One change of one object as it travels from the store to watchers.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::entry::Entry;

/// An object was put (`current` is some) or deleted (`current` is none).
#[derive(Debug)]
pub(crate) struct Change {
    pub revision: u64,
    pub current: Option<Arc<Entry>>,
    pub previous: Option<Arc<Entry>>,
    /// The JSON line of this change per [`EventType`], made by the first watcher that wants it.
    lines: [OnceLock<Bytes>; 3],
}

/// What a watcher is told, which depends on its selector: an object that no longer matches is
/// `Deleted` for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    Added = 0,
    Modified = 1,
    Deleted = 2,
}

impl EventType {
    pub fn name(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }
}

impl Change {
    pub fn new(revision: u64, current: Option<Arc<Entry>>, previous: Option<Arc<Entry>>) -> Change {
        Change {
            revision,
            current,
            previous,
            lines: Default::default(),
        }
    }

    /// What a watcher with this filter sees, if anything.
    pub fn seen_by(&self, matches: impl Fn(&Entry) -> bool) -> Option<EventType> {
        let now = self.current.as_deref().is_some_and(&matches);
        let before = self.previous.as_deref().is_some_and(&matches);
        match (before, now) {
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
            (false, false) => None,
        }
    }

    /// The object that goes with `event`, and its resourceVersion: a deletion shows the last
    /// matching state at the deletion's revision.
    pub fn object(&self, event: EventType) -> Option<&Arc<Entry>> {
        match event {
            EventType::Added | EventType::Modified => self.current.as_ref(),
            EventType::Deleted => self.previous.as_ref(),
        }
    }

    /// The event as one line of a watch stream.
    pub fn line(&self, event: EventType) -> Bytes {
        self.lines[event as usize]
            .get_or_init(|| {
                let mut line = Vec::new();
                if let Some(entry) = self.object(event) {
                    line.reserve(entry.bytes.len() + 80);
                    line.extend_from_slice(b"{\"type\":\"");
                    line.extend_from_slice(event.name().as_bytes());
                    line.extend_from_slice(b"\",\"object\":");
                    entry.write(&mut line, self.revision);
                    line.extend_from_slice(b"}\n");
                }
                line.into()
            })
            .clone()
    }
}
