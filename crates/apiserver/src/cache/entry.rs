//! One object as the watch cache holds it: the stored bytes (shared with the store) and the little
//! that selecting, ordering and splicing need. Never a decoded tree.

use std::sync::Arc;

use api::catalogue::Resource;
use api::{Status, Value};
use bytes::Bytes;

use super::layout::Layout;

/// An object at one revision.
#[derive(Debug)]
pub(crate) struct Entry {
    /// `namespace/name`, or `name` for cluster-scoped kinds.
    pub key: Arc<str>,
    /// Canonical JSON without `metadata.resourceVersion`.
    pub bytes: Bytes,
    /// The store's mod revision: the object's resourceVersion.
    pub revision: u64,
    pub labels: Vec<(String, String)>,
    /// Selectable fields, `metadata.name` and `metadata.namespace` included.
    pub fields: Vec<(&'static str, String)>,
    layout: Layout,
}

impl Entry {
    /// Reads the bytes of a stored object.
    pub fn decode(
        resource: &Resource,
        key: &str,
        bytes: Bytes,
        revision: u64,
    ) -> Result<Entry, Status> {
        let object = Value::from_json(&bytes).map_err(Status::internal)?;
        Entry::new(resource, key, bytes, revision, &object)
    }

    /// As [`Entry::decode`], by one who already has the tree.
    pub fn new(
        resource: &Resource,
        key: &str,
        bytes: Bytes,
        revision: u64,
        object: &Value,
    ) -> Result<Entry, Status> {
        let layout = Layout::of(&bytes).ok_or_else(|| {
            Status::internal(format_args!("{} {key} is not an object", resource.plural))
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
        let mut fields = api::strategy::of(resource).selectable_fields(object);
        for (name, path) in [
            ("metadata.name", ["metadata", "name"]),
            ("metadata.namespace", ["metadata", "namespace"]),
        ] {
            if !fields.iter().any(|(field, _)| *field == name) {
                fields.push((name, object.str_at(&path).to_string()));
            }
        }
        Ok(Entry {
            key: key.into(),
            bytes,
            revision,
            labels,
            fields,
            layout,
        })
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
        self.labels
            .iter()
            .find(|(label, _)| label == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value.as_str())
    }

    /// The tree, without resourceVersion.
    pub fn object(&self) -> Result<Value, Status> {
        Value::from_json(&self.bytes).map_err(Status::internal)
    }

    /// The tree as clients see it.
    pub fn object_with_version(&self) -> Result<Value, Status> {
        let mut object = self.object()?;
        object.set(&["metadata", "resourceVersion"], self.revision.to_string());
        Ok(object)
    }

    /// The whole object as clients see it, in three chunks that share the stored bytes.
    pub fn chunks(&self) -> [Bytes; 3] {
        [
            self.bytes.slice(..self.layout.slot),
            Bytes::from(splice(self.revision)),
            self.bytes.slice(self.layout.slot..),
        ]
    }

    /// Appends the whole object, with `revision` as its resourceVersion.
    pub fn write(&self, out: &mut Vec<u8>, revision: u64) {
        out.extend_from_slice(&self.bytes[..self.layout.slot]);
        out.extend_from_slice(splice(revision).as_bytes());
        out.extend_from_slice(&self.bytes[self.layout.slot..]);
    }

    /// Appends the object as an item of a typed list: without apiVersion and kind.
    pub fn write_list_item(&self, out: &mut Vec<u8>) {
        let Layout {
            api_version,
            kind,
            slot,
        } = &self.layout;
        // Members are sorted: apiVersion < kind < metadata.
        out.extend_from_slice(&self.bytes[..api_version.start]);
        out.extend_from_slice(&self.bytes[api_version.end..kind.start]);
        out.extend_from_slice(&self.bytes[kind.end..*slot]);
        out.extend_from_slice(splice(self.revision).as_bytes());
        out.extend_from_slice(&self.bytes[*slot..]);
    }
}

fn splice(revision: u64) -> String {
    format!("\"resourceVersion\":\"{revision}\",")
}
