//! Node selectors outside of Pods.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::warnings::deprecated_label;

/// Checks `{nodeSelectorTerms}`.
pub fn validate(selector: &Value, path: &Path) -> Vec<FieldError> {
    let path = path.child("nodeSelectorTerms");
    let terms = selector.list_at(&["nodeSelectorTerms"]);
    if terms.is_empty() {
        let detail = "must have at least one node selector term";
        return vec![FieldError::required(&path, detail)];
    }
    let mut errors = Vec::new();
    for (index, term) in terms.iter().enumerate() {
        let at = path.index(index);
        for (index, requirement) in term.list_at(&["matchExpressions"]).iter().enumerate() {
            on_labels(
                requirement,
                true,
                &at.child("matchExpressions").index(index),
                &mut errors,
            );
        }
        for (index, requirement) in term.list_at(&["matchFields"]).iter().enumerate() {
            on_fields(
                requirement,
                &at.child("matchFields").index(index),
                &mut errors,
            );
        }
    }
    errors
}

/// Warns of deprecated labels in `matchExpressions` of a term or of a label selector.
pub fn expression_warnings(term: &Value, path: &Path) -> Vec<String> {
    let expressions = term.list_at(&["matchExpressions"]).iter().enumerate();
    expressions
        .filter_map(|(index, expression)| {
            let key = expression.str_at(&["key"]);
            let at = path.child("matchExpressions").index(index).child("key");
            deprecated_label(key).map(|words| format!("{at}: {key} is {words}"))
        })
        .collect()
}

/// Checks a requirement on a node's labels. The values are checked only where upstream is `strict`.
pub fn on_labels(requirement: &Value, strict: bool, path: &Path, errors: &mut Vec<FieldError>) {
    let values = requirement.list_at(&["values"]);
    let values_path = path.child("values");
    match requirement.str_at(&["operator"]) {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            &values_path,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
            &values_path,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "Gt" | "Lt" if values.len() != 1 => errors.push(FieldError::required(
            &values_path,
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.push(FieldError::invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        )),
    }
    let key = requirement.str_at(&["key"]);
    errors.extend(all_invalid(
        &path.child("key"),
        key,
        names::qualified_name(key),
    ));
    for (index, value) in values.iter().enumerate().filter(|_| strict) {
        let value = value.as_str().unwrap_or_default();
        let wrong = names::label_value(value);
        errors.extend(all_invalid(&values_path.index(index), value, wrong));
    }
}

fn on_fields(requirement: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let values = requirement.list_at(&["values"]);
    match requirement.str_at(&["operator"]) {
        "In" | "NotIn" => {
            if values.len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.push(FieldError::required(&path.child("values"), detail));
            }
        }
        other => {
            let at = path.child("operator");
            errors.push(FieldError::invalid(
                &at,
                other,
                "not a valid selector operator",
            ));
        }
    }
    let key = requirement.str_at(&["key"]);
    if key != "metadata.name" {
        let at = path.child("key");
        errors.push(FieldError::invalid(
            &at,
            key,
            "not a valid field selector key",
        ));
        return;
    }
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        let at = path.child("values").index(index);
        errors.extend(all_invalid(&at, value, names::dns_subdomain(value)));
    }
}
