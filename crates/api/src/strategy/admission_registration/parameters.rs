//! The parameters of policies: their kind, and which of them a binding means.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::strategy::checks::label_selector;

const NOT_FOUND_ACTIONS: [&str; 2] = ["Deny", "Allow"];

/// `paramKind` of a policy.
pub fn validate_kind(kind: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("apiVersion");
    let given = kind.str_at(&["apiVersion"]);
    let mut wrong = |value: &str, detail: String| {
        errors.push(FieldError::invalid(&at, value, detail));
    };
    match given.matches('/').count() {
        _ if given.is_empty() => errors.push(FieldError::required(&at, "")),
        0 | 1 => {
            let (group, version) = given.split_once('/').unwrap_or(("", given));
            if !group.is_empty() {
                let problems = names::dns_subdomain(group);
                if !problems.is_empty() {
                    wrong(group, problems.join(","));
                }
            }
            if version.is_empty() {
                wrong(given, "version must be specified".to_string());
            } else {
                let problems = names::dns_1035_label(version);
                if !problems.is_empty() {
                    wrong(version, problems.join(","));
                }
            }
        }
        _ => wrong(given, format!("unexpected GroupVersion string: {given}")),
    }
    let at = path.child("kind");
    match kind.str_at(&["kind"]) {
        "" => errors.push(FieldError::required(&at, "")),
        name => {
            let problems = names::dns_1035_label(&name.to_lowercase());
            if !problems.is_empty() {
                let detail = format!(
                    "may have mixed case, but should otherwise match: {}",
                    problems.join(",")
                );
                errors.push(FieldError::invalid(&at, name, detail));
            }
        }
    }
}

/// `paramRef` of a binding.
pub fn validate_reference(reference: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let name = reference.str_at(&["name"]);
    let selector = reference.get("selector").filter(|given| !given.is_null());
    if !name.is_empty() {
        let at = path.child("name");
        errors.extend(all_invalid(&at, name, names::path_segment(name, false)));
        if selector.is_some() {
            errors.push(FieldError::forbidden(&at, EXCLUSIVE));
        }
    }
    if let Some(selector) = selector {
        let at = path.child("selector");
        errors.extend(label_selector::validate(selector, &at));
        if !name.is_empty() {
            errors.push(FieldError::forbidden(&at, EXCLUSIVE));
        }
    }
    if name.is_empty() && selector.is_none() {
        let detail = "one of name or selector must be specified";
        errors.push(FieldError::required(path, detail));
    }
    let at = path.child("parameterNotFoundAction");
    match reference.str_at(&["parameterNotFoundAction"]) {
        "" => errors.push(FieldError::required(&at, "")),
        action if NOT_FOUND_ACTIONS.contains(&action) => {}
        action => errors.push(FieldError::not_supported(&at, action, &NOT_FOUND_ACTIONS)),
    }
}

/// What a table shows of a policy's `paramKind`.
pub fn kind_cell(object: &Value) -> String {
    let text = |field: &str| object.str_at(&["spec", "paramKind", field]);
    match object.has(&["spec", "paramKind"]) {
        true => format!("{}/{}", text("apiVersion"), text("kind")),
        false => "<unset>".to_string(),
    }
}

/// What a table shows of a binding's `paramRef`.
pub fn reference_cell(object: &Value) -> String {
    let reference = object.at(&["spec", "paramRef"]).unwrap_or(&Value::Null);
    let (namespace, name) = (
        reference.str_at(&["namespace"]),
        reference.str_at(&["name"]),
    );
    match (namespace, name) {
        ("", "") | (_, "") => match reference.get("selector") {
            Some(selector) if !selector.is_null() => shown_selector(selector),
            _ => "<unset>".to_string(),
        },
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// A selector as Go's generated code shows it.
fn shown_selector(selector: &Value) -> String {
    let labels = selector.fields_at(&["matchLabels"]);
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    let expressions = selector.list_at(&["matchExpressions"]).iter();
    let expressions: Vec<String> = expressions
        .map(|one| {
            let values: Vec<&str> = one
                .list_at(&["values"])
                .iter()
                .filter_map(Value::as_str)
                .collect();
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                one.str_at(&["key"]),
                one.str_at(&["operator"]),
                values.join(" ")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.join(""),
        expressions.join("")
    )
}
