//! RFC 7396 JSON merge patch.

use std::convert::Infallible;

use crate::document::{Object, Value};

/// Applies a merge patch: objects merge, null deletes, anything else replaces.
pub fn merge_patch(object: &Value, patch: &Value) -> Value {
    match patch {
        Value::Object(_) => merged(object.clone(), patch),
        other => other.clone(),
    }
}

fn merged(object: Value, patch: &Value) -> Value {
    let Value::Object(fields) = patch else {
        return patch.clone();
    };
    let before = match object {
        Value::Object(object) => object,
        _ => Object::default(),
    };
    let merged = before.changed(fields.iter(), |_, current, change| {
        Ok::<_, Infallible>(match (current, change) {
            (_, Value::Null) => None,
            (Some(current @ Value::Object(_)), change) => Some(merged(current, change)),
            (_, change) => Some(pruned(change)),
        })
    });
    let Ok(merged) = merged;
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

    #[test]
    fn many_changes_cost_n_log_n() {
        crate::steps::assert_n_log_n(|fields| {
            let keys = |from: usize| {
                let fields = (from..from + fields).map(|key| (format!("{key:07}"), 1.into()));
                Value::Object(fields.collect())
            };
            let (object, patch) = (keys(fields / 2), keys(0));
            crate::steps::of(|| {
                let merged = merge_patch(&object, &patch);
                assert_eq!(merged.fields_at(&[]).count(), fields + fields / 2);
            })
        });
    }

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
