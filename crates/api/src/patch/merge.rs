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
            continue;
        }
        let current = merged.remove(name).unwrap_or_default();
        let value = match (&current, change) {
            (Value::Object(_), change) => merge_patch(&current, change),
            (_, change) => pruned(change),
        };
        merged.insert(name, value);
    }
    Value::Object(merged)
}

/// Without the fields that are null, also inside of lists: what is new has nothing to delete.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(name, value)| (name.to_string(), pruned(value)));
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(pruned).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    /// The examples of RFC 7396, appendix A.
    #[test]
    fn the_examples_of_the_rfc() {
        let check = |object: Value, patch: Value, expected: Value| {
            assert_eq!(merge_patch(&object, &patch), expected, "{object} + {patch}");
        };
        check(
            document!({"a": "b"}),
            document!({"a": "c"}),
            document!({"a": "c"}),
        );
        check(
            document!({"a": "b"}),
            document!({"b": "c"}),
            document!({"a": "b", "b": "c"}),
        );
        check(document!({"a": "b"}), document!({"a": null}), document!({}));
        check(
            document!({"a": "b", "b": "c"}),
            document!({"a": null}),
            document!({"b": "c"}),
        );
        check(
            document!({"a": ["b"]}),
            document!({"a": "c"}),
            document!({"a": "c"}),
        );
        check(
            document!({"a": "c"}),
            document!({"a": ["b"]}),
            document!({"a": ["b"]}),
        );
        check(
            document!({"a": {"b": "c"}}),
            document!({"a": {"b": "d", "c": null}}),
            document!({"a": {"b": "d"}}),
        );
        check(
            document!({"a": [{"b": "c"}]}),
            document!({"a": [1]}),
            document!({"a": [1]}),
        );
        check(
            document!(["a", "b"]),
            document!(["c", "d"]),
            document!(["c", "d"]),
        );
        check(document!({"a": "b"}), document!(["c"]), document!(["c"]));
        check(
            document!({"e": null}),
            document!({"a": 1}),
            document!({"e": null, "a": 1}),
        );
        check(
            document!([1, 2]),
            document!({"a": "b", "c": null}),
            document!({"a": "b"}),
        );
        check(
            document!({}),
            document!({"a": {"bb": {"ccc": null}}}),
            document!({"a": {"bb": {}}}),
        );
    }
}
