//! Where the store's keys lie in etcd: the caller's `root` is exchanged for the `prefix` in etcd, and
//! back. Keys of others, outside the prefix, are never read or written.

use bytes::Bytes;

use super::wire;
use crate::{Event, KeyRange, KeyValue};

/// etcd's way to say "no upper bound", and its smallest key.
const ZERO: &[u8] = &[0];

/// Both sides' common beginnings.
pub struct Keys {
    root: KeyRange,
    prefix: KeyRange,
}

/// A range as etcd takes it: never empty at either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireRange {
    pub key: Vec<u8>,
    pub range_end: Vec<u8>,
}

impl Keys {
    pub fn new(root: &str, prefix: &str) -> Keys {
        Keys {
            root: KeyRange::prefix(root.as_bytes().to_vec()),
            prefix: KeyRange::prefix(prefix.as_bytes().to_vec()),
        }
    }

    /// The key in etcd; `None` for one outside the root.
    pub fn outward(&self, key: &[u8]) -> Option<Vec<u8>> {
        let rest = key.strip_prefix(&self.root.start[..])?;
        let key = [&self.prefix.start[..], rest].concat();
        (!key.is_empty()).then_some(key)
    }

    /// The caller's key; `None` for a key in etcd that is not ours.
    pub fn inward(&self, key: &[u8]) -> Option<Bytes> {
        let rest = key.strip_prefix(&self.prefix.start[..])?;
        Some(match self.root.start == self.prefix.start {
            true => Bytes::copy_from_slice(key),
            false => [&self.root.start[..], rest].concat().into(),
        })
    }

    /// The range in etcd; `None` if nothing can lie in it.
    pub fn range(&self, range: &KeyRange) -> Option<WireRange> {
        let root = &self.root;
        let key = match self.outward(&range.start) {
            Some(key) => key,
            None if range.start <= root.start => self.everything().key,
            None => return None,
        };
        let beyond = |end: &Bytes| end.is_empty() || (!root.end.is_empty() && *end >= root.end);
        let range_end = if beyond(&range.end) {
            self.everything().range_end
        } else {
            self.outward(&range.end)?
        };
        let empty = range_end != ZERO && key >= range_end;
        (!empty).then_some(WireRange { key, range_end })
    }

    /// All of ours.
    pub fn everything(&self) -> WireRange {
        WireRange {
            key: or_zero(&self.prefix.start),
            range_end: or_zero(&self.prefix.end),
        }
    }

    /// All that etcd holds.
    pub fn whole_etcd() -> WireRange {
        WireRange {
            key: ZERO.to_vec(),
            range_end: ZERO.to_vec(),
        }
    }

    pub fn item(&self, item: wire::KeyValue) -> Option<KeyValue> {
        Some(KeyValue {
            key: self.inward(&item.key)?,
            value: item.value.into(),
            create_revision: item.create_revision as u64,
            mod_revision: item.mod_revision as u64,
            version: item.version as u64,
            lease: (item.lease != 0).then_some(item.lease as u64),
        })
    }

    pub fn event(&self, event: wire::Event) -> Option<Event> {
        let deleted = event.r#type() == wire::event::EventType::Delete;
        let item = self.item(event.kv?)?;
        let previous = event.prev_kv.and_then(|previous| self.item(previous));
        Some(match deleted {
            true => Event::Delete {
                key: item.key,
                revision: item.mod_revision,
                previous,
            },
            false => Event::Put { item, previous },
        })
    }
}

fn or_zero(key: &[u8]) -> Vec<u8> {
    match key {
        [] => ZERO.to_vec(),
        key => key.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &'static str, end: &'static str) -> KeyRange {
        KeyRange {
            start: start.into(),
            end: end.into(),
        }
    }

    fn shown(keys: &Keys, range: KeyRange) -> Option<(String, String)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let range = keys.range(&range)?;
        Some((text(range.key), text(range.range_end)))
    }

    fn some(key: &str, end: &str) -> Option<(String, String)> {
        Some((key.to_owned(), end.to_owned()))
    }

    #[test]
    fn an_empty_prefix_is_all_of_etcd() {
        let keys = Keys::new("", "");
        assert_eq!(shown(&keys, KeyRange::prefix("")), some("\0", "\0"));
        assert_eq!(shown(&keys, range("a", "")), some("a", "\0"));
        assert_eq!(shown(&keys, range("a", "b")), some("a", "b"));
        assert_eq!(shown(&keys, range("b", "a")), None);
        assert_eq!(keys.outward(b""), None);
    }

    #[test]
    fn a_root_is_exchanged_for_the_prefix() {
        let keys = Keys::new("/registry/", "/c1/");
        let whole = some("/c1/", "/c10");
        assert_eq!(keys.outward(b"/registry/a").as_deref(), Some(&b"/c1/a"[..]));
        assert_eq!(keys.outward(b"/other"), None);
        assert_eq!(keys.inward(b"/c1/a").as_deref(), Some(&b"/registry/a"[..]));
        assert_eq!(keys.inward(b"/c2/a"), None);
        assert_eq!(shown(&keys, KeyRange::prefix("/registry/")), whole);
        assert_eq!(shown(&keys, KeyRange::prefix("")), whole);
        assert_eq!(
            shown(&keys, range("/registry/b", "/z")),
            some("/c1/b", "/c10")
        );
        assert_eq!(
            shown(&keys, range("/registry/b", "/registry/c")),
            some("/c1/b", "/c1/c")
        );
        assert_eq!(shown(&keys, range("/a", "/b")), None);
        assert_eq!(shown(&keys, range("/s", "/t")), None);
    }
}
