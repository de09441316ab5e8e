//! ValidatingAdmissionPolicyBindings and MutatingAdmissionPolicyBindings.

use super::{match_resources, parameters, rules, texts, warn_of_static_suffix};
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::resource::{MetadataChecks, Strategy};

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// Either of the two kinds.
pub struct PolicyBinding {
    pub is_mutating: bool,
}

impl Strategy for PolicyBinding {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn takes_effect_at_once(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        if let Some(resources) = object.at_mut(&["spec", "matchResources"]) {
            match_resources::default(resources);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (
            object.get("spec").unwrap_or(&Value::Null),
            Path::new("spec"),
        );
        let mut errors = Vec::new();
        let at = path.child("policyName");
        match spec.str_at(&["policyName"]) {
            "" => errors.push(FieldError::required(&at, "")),
            name => errors.extend(all_invalid(&at, name, names::dns_subdomain(name))),
        }
        if let Some(reference) = spec.get("paramRef").filter(|given| !given.is_null()) {
            parameters::validate_reference(reference, &path.child("paramRef"), &mut errors);
        }
        if let Some(resources) = spec.get("matchResources").filter(|given| !given.is_null()) {
            let at = path.child("matchResources");
            match_resources::validate(resources, &at, &mut errors);
            if self.is_mutating {
                let named = resources.list_at(&["resourceRules"]);
                rules::validate_mutable(named, &at, &mut errors);
            }
        }
        if !self.is_mutating {
            actions(spec, &path.child("validationActions"), &mut errors);
        }
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::WHOLE
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>, _subresource: &str) -> Vec<String> {
        warn_of_static_suffix(new)
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object.str_at(&["spec", "policyName"]).into(),
            parameters::reference_cell(object).into(),
            object_age(object, now).into(),
        ]
    }
}

fn actions(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let actions = texts(spec, "validationActions");
    for (index, action) in actions.iter().enumerate() {
        let at = path.index(index);
        if !ACTIONS.contains(action) {
            errors.push(FieldError::not_supported(&at, *action, &ACTIONS));
        }
        if actions[..index].contains(action) {
            errors.push(FieldError::duplicate(&at, *action));
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        let value = spec.get("validationActions").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path, value, detail));
    }
    if actions.is_empty() {
        let detail = "at least one validation action is required";
        errors.push(FieldError::required(path, detail));
    }
}
