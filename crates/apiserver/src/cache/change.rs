//! One change of one object as it travels from the store to watchers.

use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use parking_lot::Mutex;

use super::cached_object::CachedObject;

/// An object was put (`current` is some) or deleted (`current` is none).
#[derive(Debug)]
pub(crate) struct Change {
    pub revision: u64,
    pub current: Option<Arc<CachedObject>>,
    pub previous: Option<Arc<CachedObject>>,
    frames: Mutex<Frames>,
}

/// A change as watch streams have it, per [`EventType`] and [`Frame`], made by the first watcher
/// that wants it.
#[derive(Debug, Default)]
struct Frames {
    made: Option<Box<[[Option<Bytes>; 4]; 3]>>,
    /// Few want it any more: what is made is no longer kept.
    is_old: bool,
}

/// In which form an event goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Json = 0,
    JsonMetadata = 1,
    Protobuf = 2,
    ProtobufMetadata = 3,
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
    pub fn new(
        revision: u64,
        current: Option<Arc<CachedObject>>,
        previous: Option<Arc<CachedObject>>,
    ) -> Change {
        Change {
            revision,
            current,
            previous,
            frames: Mutex::default(),
        }
    }

    /// How long the object is that this change brought, or took away.
    pub fn bytes(&self) -> usize {
        let entry = self.current.as_ref().or(self.previous.as_ref());
        entry.map_or(0, |entry| entry.bytes.len())
    }

    /// What a watcher with this filter sees, if anything.
    pub fn seen_by(&self, matches: impl Fn(&CachedObject) -> bool) -> Option<EventType> {
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
    pub fn object(&self, event: EventType) -> Option<&Arc<CachedObject>> {
        match event {
            EventType::Added | EventType::Modified => self.current.as_ref(),
            EventType::Deleted => self.previous.as_ref(),
        }
    }

    /// The event as a part of a watch stream, by `make` when it was not needed before. Those who want
    /// it meanwhile wait.
    pub fn frame(
        &self,
        event: EventType,
        frame: Frame,
        make: impl FnOnce() -> Result<Bytes, Status>,
    ) -> Result<Bytes, Status> {
        let mut frames = self.frames.lock();
        let is_old = frames.is_old;
        let made = frames.made.get_or_insert_default();
        let slot = &mut made[event as usize][frame as usize];
        if let Some(bytes) = slot {
            return Ok(bytes.clone());
        }
        let bytes = make()?;
        match is_old {
            true => frames.made = None,
            false => *slot = Some(bytes.clone()),
        }
        Ok(bytes)
    }

    /// This is history now: those who watch have had it.
    pub fn grow_old(&self) {
        *self.frames.lock() = Frames {
            made: None,
            is_old: true,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn an_old_change_keeps_no_frames() {
        let resource = api::catalogue::built_in()
            .find("", "v1", "configmaps")
            .unwrap();
        let json = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b","uid":"u"}}"#;
        let entry = CachedObject::decode(resource, "b/a", json.into(), 7).unwrap();
        let change = Change::new(7, Some(entry.into_shared()), None);
        let made = Cell::new(0);
        let frame = |frame| {
            let make = || {
                made.set(made.get() + 1);
                Ok("line".into())
            };
            change.frame(EventType::Added, frame, make).unwrap()
        };
        assert_eq!(frame(Frame::Json), frame(Frame::Json));
        assert_eq!(made.get(), 1);
        frame(Frame::Protobuf);
        assert_eq!(made.get(), 2);
        change.grow_old();
        assert_eq!(frame(Frame::Json), "line");
        assert_eq!(made.get(), 3);
        assert!(change.frames.lock().made.is_none());
    }
}
