//! ResourceClaims and the validation of their specs.

use super::claim_status;
use super::requests::request_names;
use super::{
    MOST_CONFIGURATIONS, MOST_REQUESTS, configuration, each, each_of_set, fully_qualified_name,
    label, name_of, selectors, toleration,
};
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::resource::{MetadataChecks, Strategy, generic};
use crate::strategy::checks::supported;

const MOST_CONSTRAINTS: usize = 32;
const MOST_ALTERNATIVES: usize = 8;

pub struct ResourceClaim;

impl Strategy for ResourceClaim {
    fn namespaced(&self) -> bool {
        true
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn has_status(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec") {
            default_spec(spec);
        }
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        if subresource == "status" {
            generic::keep_metadata(new, old);
            claim_status::forget_deallocated(new, old);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let empty = Value::object();
        let mut errors = Vec::new();
        let claim = object.get("spec").unwrap_or(&empty);
        spec(claim, &Path::new("spec"), &mut errors);
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "status" => claim_status::validate(new, old),
            _ => immutable_spec(new, old),
        }
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        MetadataChecks::both_of_object(subresource)
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let mut states = Vec::new();
        let deleted = object.has(&["metadata", "deletionTimestamp"]);
        if deleted {
            states.push("deleted");
        }
        if object.has(&["status", "allocation"]) {
            states.push("allocated");
            if !object.list_at(&["status", "reservedFor"]).is_empty() {
                states.push("reserved");
            }
        } else if !deleted {
            states.push("pending");
        }
        vec![
            object.str_at(&["metadata", "name"]).into(),
            states.join(",").into(),
            object_age(object, now).into(),
        ]
    }
}

/// The error for a changed spec.
pub fn immutable_spec(new: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (new.get("spec"), old.get("spec"));
    match new == old {
        true => Vec::new(),
        false => {
            let value = new.cloned().unwrap_or_default();
            let path = Path::new("spec");
            vec![FieldError::invalid(&path, value, "field is immutable")]
        }
    }
}

/// Defaults of a claim's spec, also inside a template.
pub fn default_spec(spec: &mut Value) {
    fn one(request: &mut Value) {
        request.set_default(&["allocationMode"], "ExactCount");
        let counts = request.str_at(&["allocationMode"]) == "ExactCount";
        if counts && request.i64_at(&["count"]).unwrap_or(0) == 0 {
            request.set(&["count"], 1);
        }
    }
    for request in spec.list_at_mut(&["devices", "requests"]) {
        if let Some(exactly) = request.get_mut("exactly").filter(|value| !value.is_null()) {
            one(exactly);
        }
        for alternative in request.list_at_mut(&["firstAvailable"]) {
            one(alternative);
        }
    }
}

/// Checks a claim's spec.
pub fn spec(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let path = path.child("devices");
    let requests = spec.list_at(&["devices", "requests"]);
    let at = path.child("requests");
    each_of_set(requests, MOST_REQUESTS, name_of, &at, errors, request);
    let list = spec.list_at(&["devices", "constraints"]);
    let at = path.child("constraints");
    each(list, MOST_CONSTRAINTS, &at, errors, |one, at, errors| {
        request_names(one, requests, at, errors);
        constraint(one, at, errors);
    });
    let list = spec.list_at(&["devices", "config"]);
    let at = path.child("config");
    each(list, MOST_CONFIGURATIONS, &at, errors, |one, at, errors| {
        request_names(one, requests, at, errors);
        configuration(one, at, errors);
    });
}

fn request(request: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    errors.extend(label(request.str_at(&["name"]), &path.child("name")));
    let alternatives = request.list_at(&["firstAvailable"]);
    let exactly = request.get("exactly").filter(|value| !value.is_null());
    match (exactly, alternatives.is_empty()) {
        (None, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required";
            errors.push(FieldError::required(path, detail));
        }
        (Some(_), false) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.push(FieldError::invalid(path, Value::Null, detail));
        }
        (Some(exactly), true) => details(exactly, &path.child("exactly"), errors),
        (None, false) => {
            let at = path.child("firstAvailable");
            let most = MOST_ALTERNATIVES;
            each_of_set(
                alternatives,
                most,
                name_of,
                &at,
                errors,
                |one, at, errors| {
                    errors.extend(label(one.str_at(&["name"]), &at.child("name")));
                    details(one, at, errors);
                },
            );
        }
    }
}

fn details(request: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let class = request.str_at(&["deviceClassName"]);
    let at = path.child("deviceClassName");
    match class {
        "" => errors.push(FieldError::required(&at, "")),
        _ => errors.extend(all_invalid(&at, class, names::dns_subdomain(class))),
    }
    let list = request.list_at(&["selectors"]);
    // Specs never change, so that none is checked again after it was stored.
    selectors(list, &path.child("selectors"), false, errors);
    let count = request.i64_at(&["count"]).unwrap_or(0);
    let at = path.child("count");
    match request.str_at(&["allocationMode"]) {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(&at, count, detail));
        }
        "ExactCount" if count <= 0 => {
            errors.push(FieldError::invalid(&at, count, "must be greater than zero"));
        }
        mode => {
            let modes = ["All", "ExactCount"];
            errors.extend(supported(mode, &modes, &path.child("allocationMode")));
        }
    }
    for (index, one) in request.list_at(&["tolerations"]).iter().enumerate() {
        toleration(one, &path.child("tolerations").index(index), errors);
    }
}

fn constraint(constraint: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["matchAttribute", "distinctAttribute"] {
        if constraint.has(&[name]) {
            let attribute = constraint.str_at(&[name]);
            errors.extend(fully_qualified_name(attribute, &path.child(name)));
            return;
        }
    }
    let detail = r#"exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#;
    errors.push(FieldError::required(path, detail));
}
