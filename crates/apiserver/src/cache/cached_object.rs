//! One object as the watch cache holds it: the stored bytes (shared with the store) and the little
//! that selecting, ordering and splicing need. Never a decoded tree.

use std::sync::Arc;

use api::Resource;
use api::protobuf::Message;
use api::{Reason, Status, Value};
use bytes::Bytes;
use parking_lot::Mutex;

use super::layout::Layout;

/// The member that clients see and the store does not hold, around its digits.
const VERSION: [&[u8]; 2] = [b"\"resourceVersion\":\"", b"\","];

/// An object at one revision.
#[derive(Debug)]
pub(crate) struct CachedObject {
    /// `namespace/name`, or `name` for cluster-scoped kinds.
    pub key: Arc<str>,
    /// Canonical JSON without `metadata.resourceVersion`.
    pub bytes: Bytes,
    /// The store's mod revision: the object's resourceVersion.
    pub revision: u64,
    /// Whether many will read this, so that keeping other forms of it pays: what the feed has or
    /// will have, not what was made for one answer.
    pub is_shared: bool,
    pub(super) outline: Arc<Outline>,
}

/// The little that is known about an object without decoding it.
#[derive(Debug)]
pub(crate) struct Outline {
    /// Sorted by name.
    labels: Vec<(String, String)>,
    /// Selectable fields, `metadata.name` and `metadata.namespace` included.
    fields: Vec<(&'static str, String)>,
    /// Selectable fields that the definition of an added kind declares.
    added_fields: Vec<(Arc<str>, String)>,
    layout: Layout,
    /// Whether the store has other bytes, which reading brought into their present form.
    is_stale: bool,
    /// Other forms of the object, without its resourceVersion too.
    pub(super) forms: Made,
}

/// Which protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    Object = 0,
    /// `PartialObjectMetadata`.
    Metadata = 1,
}

/// Which form is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Message(Shape),
    Version,
}

/// An object's forms.
pub(super) type Made = Mutex<Kinds>;

#[derive(Debug, Default)]
pub(super) struct Kinds {
    /// By [`Shape`].
    pub messages: [Option<Arc<Message>>; 2],
    /// The object in another version; no kind has more than one other.
    pub version: Option<Version>,
}

/// An object in a version it is not stored in, without its resourceVersion. It has forms of its own.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub version: api::resource::Name,
    pub bytes: Bytes,
    pub outline: Arc<Outline>,
}

impl Kinds {
    pub fn forget(&mut self, slot: Slot) {
        match slot {
            Slot::Message(shape) => self.messages[shape as usize] = None,
            Slot::Version => self.version = None,
        }
    }
}

impl Outline {
    /// `object` is the tree of `bytes`.
    pub fn of(
        resource: &Resource,
        key: &str,
        bytes: &[u8],
        object: &Value,
    ) -> Result<Outline, Status> {
        let layout = Layout::of(bytes).ok_or_else(|| {
            Status::internal(format_args!("{} {key} is not an object", &*resource.plural))
        })?;
        let labels = object
            .at(&["metadata", "labels"])
            .and_then(Value::as_object)
            .map(|labels| {
                labels
                    .iter()
                    .filter_map(|(name, value)| {
                        Some((name.to_string(), value.as_str()?.to_string()))
                    })
                    .collect()
            })
            .unwrap_or_default();
        let mut fields = resource.strategy().selectable_fields(object);
        for (name, path) in [
            ("metadata.name", ["metadata", "name"]),
            ("metadata.namespace", ["metadata", "namespace"]),
        ] {
            if !fields.iter().any(|(field, _)| *field == name) {
                fields.push((name, object.str_at(&path).to_string()));
            }
        }
        Ok(Outline {
            labels,
            fields,
            added_fields: resource.strategy().added_fields(object),
            layout,
            is_stale: false,
            forms: Made::default(),
        })
    }
}

impl CachedObject {
    /// Reads the bytes of a stored object.
    pub fn decode(
        resource: &Resource,
        key: &str,
        bytes: Bytes,
        revision: u64,
    ) -> Result<CachedObject, Status> {
        let mut object = Value::from_json(&bytes).map_err(Status::internal)?;
        if !resource.is_custom() {
            return CachedObject::new(resource, key, bytes, revision, &object);
        }
        api::conversion::custom::settle_stored(resource, &mut object);
        let settled = object.to_json();
        let is_stale = settled != bytes;
        let bytes = match is_stale {
            true => Bytes::copy_from_slice(&settled),
            false => bytes,
        };
        let mut outline = Outline::of(resource, key, &bytes, &object)?;
        outline.is_stale = is_stale;
        let mut entry = CachedObject::with_outline(key, bytes, revision, outline.into());
        entry.is_shared = false;
        Ok(entry)
    }

    /// Whether the store has other bytes than these, so that writing them changes something.
    pub fn is_stale(&self) -> bool {
        self.outline.is_stale
    }

    /// The `apiVersion` that the bytes name.
    pub fn names_version(&self, api_version: &str) -> bool {
        let member = &self.bytes[self.outline.layout.api_version.clone()];
        let quoted = member
            .strip_prefix(b"\"apiVersion\":\"")
            .unwrap_or_default();
        quoted
            .strip_prefix(api_version.as_bytes())
            .is_some_and(|rest| rest.starts_with(b"\""))
    }

    /// As [`CachedObject::decode`], by one who already has the tree.
    pub fn new(
        resource: &Resource,
        key: &str,
        bytes: Bytes,
        revision: u64,
        object: &Value,
    ) -> Result<CachedObject, Status> {
        let outline = Outline::of(resource, key, &bytes, object)?;
        let mut entry = CachedObject::with_outline(key, bytes, revision, outline.into());
        entry.is_shared = false;
        Ok(entry)
    }

    /// An entry whose writer and feed share its outline.
    pub fn with_outline(
        key: &str,
        bytes: Bytes,
        revision: u64,
        outline: Arc<Outline>,
    ) -> CachedObject {
        CachedObject {
            key: key.into(),
            bytes,
            revision,
            is_shared: true,
            outline,
        }
    }

    pub fn into_shared(mut self) -> Arc<CachedObject> {
        self.is_shared = true;
        Arc::new(self)
    }

    pub fn namespace(&self) -> &str {
        self.key
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(_, name)| name)
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        let labels = &self.outline.labels;
        let found = labels.binary_search_by(|(label, _)| label.as_str().cmp(name));
        found.ok().map(|index| labels[index].1.as_str())
    }

    /// The value of a selectable field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let fields = self.outline.fields.iter();
        let fields = fields.map(|(field, value)| (*field, value));
        let added = self.outline.added_fields.iter();
        let added = added.map(|(field, value)| (&**field, value));
        let mut found = fields.chain(added).filter(|(field, _)| *field == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// The resourceVersion as clients see it.
    pub fn version(&self) -> String {
        match self.revision {
            0 => String::new(),
            revision => revision.to_string(),
        }
    }

    /// The tree, without resourceVersion.
    pub fn object(&self) -> Result<Value, Status> {
        Value::from_json(&self.bytes).map_err(|problem| {
            Status::new(
                Reason::StoreReadError,
                format!(
                    "Internal error occurred: StorageError: corrupt object, Code: 7, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={}: {problem}",
                    self.key, self.revision
                ),
            )
        })
    }

    /// The tree as clients see it.
    pub fn object_with_version(&self) -> Result<Value, Status> {
        let mut object = self.object()?;
        if self.revision > 0 {
            object.set(&["metadata", "resourceVersion"], self.version());
        }
        Ok(object)
    }

    /// The whole object as clients see it, in three chunks that share the stored bytes.
    pub fn chunks(&self) -> [Bytes; 3] {
        let mut version = Vec::with_capacity(48);
        splice(&mut version, self.revision);
        // Bytes without room to spare need no second allocation.
        version.shrink_to_fit();
        [
            self.bytes.slice(..self.outline.layout.slot),
            version.into(),
            self.bytes.slice(self.outline.layout.slot..),
        ]
    }

    /// Appends the whole object, with `revision` as its resourceVersion.
    pub fn write(&self, out: &mut Vec<u8>, revision: u64) {
        out.extend_from_slice(&self.bytes[..self.outline.layout.slot]);
        splice(out, revision);
        out.extend_from_slice(&self.bytes[self.outline.layout.slot..]);
    }

    /// Appends the object as an item of a typed list: without apiVersion and kind.
    pub fn write_list_item(&self, out: &mut Vec<u8>) {
        let Layout {
            api_version,
            kind,
            slot,
            ..
        } = &self.outline.layout;
        // Members are sorted: apiVersion < kind < metadata.
        out.extend_from_slice(&self.bytes[..api_version.start]);
        out.extend_from_slice(&self.bytes[api_version.end..kind.start]);
        out.extend_from_slice(&self.bytes[kind.end..*slot]);
        splice(out, self.revision);
        out.extend_from_slice(&self.bytes[*slot..]);
    }

    /// Appends the object as `PartialObjectMetadata`, with `revision` as its resourceVersion.
    pub fn write_metadata(&self, out: &mut Vec<u8>, revision: u64) {
        let Layout { metadata, slot, .. } = &self.outline.layout;
        out.extend_from_slice(
            br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
        );
        out.extend_from_slice(&self.bytes[metadata.start..*slot]);
        splice(out, revision);
        out.extend_from_slice(&self.bytes[*slot..metadata.end]);
        out.push(b'}');
    }
}

/// What a dry run made has no resourceVersion.
fn splice(out: &mut Vec<u8>, revision: u64) {
    if revision > 0 {
        out.extend_from_slice(VERSION[0]);
        out.extend_from_slice(itoa::Buffer::new().format(revision).as_bytes());
        out.extend_from_slice(VERSION[1]);
    }
}
