//! The strategy of a kind without rules of its own, and steps that all strategies share.

use crate::document::{Object, Value};
use crate::resource::Strategy;

struct Generic {
    namespaced: bool,
    status: bool,
}

/// The strategy of a kind of which only scope and subresources are known.
pub fn of(namespaced: bool, status: bool) -> &'static dyn Strategy {
    const fn generic(namespaced: bool, status: bool) -> Generic {
        Generic { namespaced, status }
    }
    match (namespaced, status) {
        (true, true) => const { &generic(true, true) },
        (true, false) => const { &generic(true, false) },
        (false, true) => const { &generic(false, true) },
        (false, false) => const { &generic(false, false) },
    }
}

impl Strategy for Generic {
    fn namespaced(&self) -> bool {
        self.namespaced
    }

    fn has_status(&self) -> bool {
        self.status
    }
}

/// Restores everything except the status and some metadata after a write to the status subresource.
/// Only differing fields are copied, and usually there are none.
pub fn keep_all_but_status(new: &mut Value, old: &Value) {
    let (Value::Object(fields), Value::Object(old)) = (new, old) else {
        return;
    };
    fields.retain(|name, _| name == "status" || old.contains(name));
    for (name, value) in old.iter() {
        let may_differ = match name {
            "status" => true,
            "metadata" => fields.contains(name),
            _ => fields.get(name) == Some(value),
        };
        if !may_differ {
            fields.insert(name, value.clone());
        }
    }
}

/// Restores the metadata, for kinds whose status writes do not change it either.
pub fn keep_metadata(new: &mut Value, old: &Value) {
    for name in ["labels", "annotations", "finalizers", "ownerReferences"] {
        keep_field(new, old, &["metadata", name]);
    }
}

/// Restores the field at `path`.
pub fn keep_field(new: &mut Value, old: &Value, path: &[&str]) {
    match old.at(path) {
        Some(value) => new.set(path, value.clone()),
        None => drop(new.remove(path)),
    }
}

/// Whether anything except metadata and status differs.
pub fn desired_state_changed(new: &Value, old: &Value) -> bool {
    // Both are in the order of names.
    !desired(new).eq(desired(old))
}

fn desired(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = object.as_object().map(Object::iter);
    fields
        .into_iter()
        .flatten()
        .filter(|(name, _)| !matches!(*name, "metadata" | "status" | "apiVersion" | "kind"))
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

/// The cells of a kind whose columns are `Name` and `Created At`, as those have that upstream gives
/// no printer.
pub fn name_and_creation(object: &Value) -> Vec<Value> {
    vec![
        object.str_at(&["metadata", "name"]).into(),
        match object.str_at(&["metadata", "creationTimestamp"]) {
            // A bookmark's: Go's zero.
            "" => "0001-01-01T00:00:00Z".into(),
            created => created.into(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Value {
        Value::from_json(text.as_bytes()).expect("an object")
    }

    #[test]
    fn a_status_write_keeps_spec_and_metadata() {
        let old = object(
            r#"{"kind":"Pod","metadata":{"name":"a"},"spec":{"nodeName":"n"},"status":{"phase":"Pending"}}"#,
        );
        let mut new = object(
            r#"{"extra":1,"metadata":{"name":"a","labels":{"b":"c"}},"spec":{},"status":{"phase":"Running"}}"#,
        );
        keep_all_but_status(&mut new, &old);
        let expected = object(
            r#"{"kind":"Pod","metadata":{"name":"a","labels":{"b":"c"}},"spec":{"nodeName":"n"},"status":{"phase":"Running"}}"#,
        );
        assert_eq!(new, expected);

        let mut bare = object("{}");
        keep_all_but_status(&mut bare, &old);
        assert_eq!(bare.get("status"), None);
        assert_eq!(bare.get("metadata"), old.get("metadata"));
    }

    #[test]
    fn the_desired_state_is_everything_except_metadata_and_status() {
        let old = object(r#"{"metadata":{"name":"a"},"spec":{"a":1},"status":{}}"#);
        let same = object(r#"{"kind":"Pod","metadata":{},"spec":{"a":1}}"#);
        assert!(!desired_state_changed(&same, &old));
        for changed in [r#"{"spec":{"a":2}}"#, r#"{"data":{},"spec":{"a":1}}"#, "{}"] {
            assert!(desired_state_changed(&object(changed), &old), "{changed}");
        }
    }
}
