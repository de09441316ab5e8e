//! The rules of the kinds that are questions: the SubjectAccessReview family. What they answer is
//! the API server's business.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};

/// Everything that is wrong with a review of access.
pub fn access(kind: &str, review: &Value, namespace: &str) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let set = |name: &str| {
        let value = review.at(&["spec", name]);
        value.filter(|value| !value.is_null())
    };
    let (on_resource, on_path) = (set("resourceAttributes"), set("nonResourceAttributes"));
    match (on_resource, on_path) {
        (Some(_), Some(asked)) => {
            let at = path.child("nonResourceAttributes");
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.push(shown_path(&at, asked, detail));
        }
        (None, None) => {
            let at = path.child("resourceAttributes");
            let detail =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(FieldError::invalid(&at, Value::Null, detail));
        }
        _ => {}
    }
    let someone = !review.str_at(&["spec", "user"]).is_empty()
        || !review.list_at(&["spec", "groups"]).is_empty();
    if kind != "SelfSubjectAccessReview" && !someone {
        let detail = "at least one of user or group must be specified";
        errors.push(FieldError::invalid(&path.child("user"), "", detail));
    }
    if let Some(asked) = on_resource {
        selectors(asked, &path.child("resourceAttributes"), &mut errors);
    }
    metadata(kind, review, &mut errors);
    if kind == "LocalSubjectAccessReview" {
        if let Some(asked) = on_resource {
            let asked = asked.str_at(&["namespace"]);
            if asked != namespace {
                let at = path.child("resourceAttributes").child("namespace");
                let detail = "must match metadata.namespace";
                errors.push(FieldError::invalid(&at, asked, detail));
            }
        }
        if let Some(asked) = on_path {
            let at = path.child("nonResourceAttributes");
            errors.push(shown_path(&at, asked, "disallowed on this kind of request"));
        }
    }
    errors
}

/// `nonResourceAttributes` as Go shows them.
fn shown_path(path: &Path, asked: &Value, detail: &str) -> FieldError {
    FieldError::invalid(path, Value::Null, detail).showing(&[
        ("Path", asked.str_at(&["path"]).into()),
        ("Verb", asked.str_at(&["verb"]).into()),
    ])
}

fn metadata(kind: &str, review: &Value, errors: &mut Vec<FieldError>) {
    let local = kind == "LocalSubjectAccessReview";
    let set = review.fields_at(&["metadata"]).any(|(name, value)| {
        let ignored = name == "managedFields" || (local && name == "namespace");
        let empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Integer(number) => *number == 0,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        !ignored && !empty
    });
    if set {
        let value = review.get("metadata").cloned().unwrap_or_default();
        let detail = match local {
            true => "must be empty except for namespace",
            false => "must be empty",
        };
        errors.push(FieldError::invalid(&Path::new("metadata"), value, detail));
    }
}

fn selectors(asked: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["fieldSelector", "labelSelector"] {
        let Some(selector) = asked.get(name).filter(|value| !value.is_null()) else {
            continue;
        };
        let at = path.child(name);
        let raw = selector.str_at(&["rawSelector"]);
        let requirements = selector.list_at(&["requirements"]);
        match (raw.is_empty(), requirements.is_empty()) {
            (false, false) => {
                let at = at.child("rawSelector");
                let detail = "may not specified at the same time as requirements";
                errors.push(FieldError::invalid(&at, raw, detail));
            }
            (true, true) => {
                let detail =
                    format!("when {at} is specified, requirements or rawSelector is required");
                errors.push(FieldError::required(&at.child("requirements"), detail));
            }
            _ => {}
        }
        for (index, one) in requirements.iter().enumerate() {
            let at = at.child("requirements").index(index);
            requirement(one, name == "labelSelector", &at, errors);
        }
    }
}

/// Operators of later versions are let pass.
fn requirement(one: &Value, on_labels: bool, path: &Path, errors: &mut Vec<FieldError>) {
    let key = one.str_at(&["key"]);
    let at = path.child("key");
    if !on_labels && key.is_empty() {
        errors.push(FieldError::required(&at, "must be specified"));
    }
    let values = one.list_at(&["values"]);
    let values_at = path.child("values");
    match one.str_at(&["operator"]) {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            &values_at,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
            &values_at,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        _ => {}
    }
    if on_labels {
        errors.extend(all_invalid(&at, key, names::qualified_name(key)));
        for (index, value) in values.iter().enumerate() {
            let text = value.as_str().unwrap_or_default();
            let wrong = names::label_value(text);
            errors.extend(all_invalid(&values_at.index(index), text, wrong));
        }
    }
}
