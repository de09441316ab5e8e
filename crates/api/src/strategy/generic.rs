//! The strategy of a kind without rules of its own, and the steps all strategies share.

use crate::document::Value;
use crate::strategy::Strategy;

pub struct Generic {
    pub namespaced: bool,
}

impl Strategy for Generic {
    fn namespaced(&self) -> bool {
        self.namespaced
    }
}

/// A write to the status subresource changes nothing else, some metadata aside.
pub fn keep_all_but_status(new: &mut Value, old: &Value) {
    let status = new.remove(&["status"]);
    let metadata = new.remove(&["metadata"]);
    *new = old.clone();
    if let Some(metadata) = metadata {
        new.set(&["metadata"], metadata);
    }
    match status {
        Some(status) => new.set(&["status"], status),
        None => drop(new.remove(&["status"])),
    }
}

/// Puts back the field at `path` as it was.
pub fn keep_field(new: &mut Value, old: &Value, path: &[&str]) {
    match old.at(path) {
        Some(value) => new.set(path, value.clone()),
        None => drop(new.remove(path)),
    }
}

/// Whether anything but metadata and status differs.
pub fn desired_state_changed(new: &Value, old: &Value) -> bool {
    let desired = |object: &Value| -> Vec<(String, Value)> {
        let fields = object
            .as_object()
            .into_iter()
            .flat_map(|object| object.iter());
        fields
            .filter(|(name, _)| !matches!(*name, "metadata" | "status" | "apiVersion" | "kind"))
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect()
    };
    desired(new) != desired(old)
}

/// `metadata.name` and `metadata.namespace`, selectable for every kind.
pub fn metadata_fields(object: &Value, namespaced: bool) -> Vec<(&'static str, String)> {
    let name = object.str_at(&["metadata", "name"]).to_string();
    let mut fields = vec![("metadata.name", name)];
    if namespaced {
        let namespace = object.str_at(&["metadata", "namespace"]).to_string();
        fields.push(("metadata.namespace", namespace));
    }
    fields
}
