//! RFC 7396 JSON merge patch.

use crate::document::{Object, Value};

/// Applies a merge patch: objects merge, null deletes, anything else replaces.
pub fn merge_patch(object: &Value, patch: &Value) -> Value {
    let Value::Object(fields) = patch else {
        return patch.clone();
    };
    let mut merged = match object {
        Value::Object(object) => object.clone(),
        _ => Object::default(),
    };
    for (name, change) in fields.iter() {
        if change.is_null() {
            merged.remove(name);
        } else {
            let current = merged.remove(name).unwrap_or_default();
            merged.insert(name, merge_patch(&current, change));
        }
    }
    Value::Object(merged)
}
