//! Which requests a policy or a binding is about.

use super::{MATCH_POLICIES, rules};
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::strategy::checks::label_selector;

const RULES: [&str; 2] = ["resourceRules", "excludeResourceRules"];

pub fn default(resources: &mut Value) {
    if resources.is_null() {
        return;
    }
    resources.set_missing(&["matchPolicy"], "Equivalent");
    resources.set_missing(&["namespaceSelector"], Value::object());
    resources.set_missing(&["objectSelector"], Value::object());
    for field in RULES {
        resources
            .list_at_mut(&[field])
            .iter_mut()
            .for_each(rules::default);
    }
}

pub fn validate(resources: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("matchPolicy");
    match resources.get("matchPolicy").and_then(Value::as_str) {
        None => errors.push(FieldError::required(&at, "")),
        Some(policy) if MATCH_POLICIES.contains(&policy) => {}
        Some(policy) => errors.push(FieldError::not_supported(&at, policy, &MATCH_POLICIES)),
    }
    for field in ["namespaceSelector", "objectSelector"] {
        let at = path.child(field);
        match resources.get(field).filter(|selector| !selector.is_null()) {
            None => errors.push(FieldError::required(&at, "")),
            Some(selector) => errors.extend(label_selector::validate(selector, &at)),
        }
    }
    for field in RULES {
        for (index, rule) in resources.list_at(&[field]).iter().enumerate() {
            rules::validate_named(rule, &path.child(field).index(index), errors);
        }
    }
}

/// As [`validate`], of the constraints of a policy, which must name something.
pub fn validate_constraints(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("matchConstraints");
    let Some(constraints) = spec
        .get("matchConstraints")
        .filter(|given| !given.is_null())
    else {
        return errors.push(FieldError::required(&at, ""));
    };
    validate(constraints, &at, errors);
    if constraints.list_at(&["resourceRules"]).is_empty() {
        errors.push(FieldError::required(&at.child("resourceRules"), ""));
    }
}
