//! Checks label selectors (`{matchLabels, matchExpressions}`).

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{self, all_invalid, names};

/// Checks a label selector at `path`.
pub fn validate(selector: &Value, path: &Path) -> Vec<FieldError> {
    let labels = selector.get("matchLabels");
    let mut errors = metadata::labels(labels, &path.child("matchLabels"));
    for (index, expression) in selector.list_at(&["matchExpressions"]).iter().enumerate() {
        let at = path.child("matchExpressions").index(index);
        let values = expression.list_at(&["values"]);
        let values_path = at.child("values");
        match expression.str_at(&["operator"]) {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                &values_path,
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                &values_path,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                &at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = expression.str_at(&["key"]);
        errors.extend(all_invalid(
            &at.child("key"),
            key,
            names::qualified_name(key),
        ));
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            let wrong = names::label_value(value);
            errors.extend(all_invalid(&values_path.index(index), value, wrong));
        }
    }
    errors
}
