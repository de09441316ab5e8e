//! The rules of webhooks and policies: operations on resources.

use super::texts;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
/// What cannot be changed is not offered to mutating policies.
const MUTABLE_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

/// Fills in the scope.
pub fn default(rule: &mut Value) {
    rule.set_missing(&["scope"], "*");
}

pub fn validate(rule: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("operations");
    let operations = texts(rule, "operations");
    if operations.is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    only_wildcard(rule, "operations", "operations", &at, errors);
    for (index, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            let at = at.index(index);
            errors.push(FieldError::not_supported(&at, *operation, &OPERATIONS));
        }
    }
    let at = path.child("apiGroups");
    if texts(rule, "apiGroups").is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    only_wildcard(rule, "apiGroups", "API groups", &at, errors);
    let at = path.child("apiVersions");
    let versions = texts(rule, "apiVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    only_wildcard(rule, "apiVersions", "API versions", &at, errors);
    for (index, _) in versions
        .iter()
        .enumerate()
        .filter(|(_, text)| text.is_empty())
    {
        errors.push(FieldError::required(&at.index(index), ""));
    }
    resources(rule, &path.child("resources"), errors);
    if let Some(scope) = rule.get("scope").and_then(Value::as_str)
        && !SCOPES.contains(&scope)
    {
        let at = path.child("scope");
        errors.push(FieldError::not_supported(&at, scope, &SCOPES));
    }
}

/// As [`validate`], of a rule that may name objects.
pub fn validate_named(rule: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("resourceNames");
    let mut seen: Vec<&str> = Vec::new();
    for (index, name) in texts(rule, "resourceNames").into_iter().enumerate() {
        let at = at.index(index);
        errors.extend(all_invalid(&at, name, names::path_segment(name, false)));
        match seen.contains(&name) {
            true => errors.push(FieldError::duplicate(&at, name)),
            false => seen.push(name),
        }
    }
    validate(rule, path, errors);
}

/// Only what is created, updated or connected to can be mutated.
pub fn validate_mutable(rules: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("resourceRules").child("operations");
    for operation in rules.iter().flat_map(|rule| texts(rule, "operations")) {
        if !MUTABLE_OPERATIONS.contains(&operation) {
            errors.push(FieldError::not_supported(
                &at,
                operation,
                &MUTABLE_OPERATIONS,
            ));
        }
    }
}

fn only_wildcard(rule: &Value, field: &str, what: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let items = texts(rule, field);
    if items.len() > 1 && items.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        let value = rule.get(field).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path, value, detail));
    }
}

fn resources(rule: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let resources = texts(rule, "resources");
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    // Of which resource all subresources are named, and which subresource of all resources.
    let (mut all_below, mut below_all): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    // As upstream: only the last one without a subresource counts.
    let mut has_plain = false;
    for (index, text) in resources.iter().enumerate() {
        let at = path.index(index);
        if text.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let Some((resource, below)) = text.split_once('/') else {
            has_plain = *text != "*";
            continue;
        };
        if all_below.contains(&resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {text}");
            errors.push(FieldError::invalid(&at, *text, detail));
        }
        if below_all.contains(&below) {
            let detail = format!("if '*/{below}' is present, must not specify {text}");
            errors.push(FieldError::invalid(&at, *text, detail));
        }
        if below == "*" {
            all_below.push(resource);
        }
        if resource == "*" {
            below_all.push(below);
        }
    }
    let value = || rule.get("resources").cloned().unwrap_or_default();
    if resources.len() > 1 && resources.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, value(), detail));
    }
    if resources.contains(&"*") && has_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, value(), detail));
    }
}
