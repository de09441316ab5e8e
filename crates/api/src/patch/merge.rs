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
