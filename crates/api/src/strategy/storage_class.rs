//! StorageClasses, and what VolumeAttributesClasses share with them.

use std::collections::{BTreeMap, BTreeSet};

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, immutable, names};
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::{immutable_text, semantically_equal, size_of_map, supported};
use crate::strategy::ingress_class::name_or_default;

/// The largest number of errors about duplicate topologies.
const MOST_REPEATED: usize = 1_000;
const MOST_PARAMETERS: usize = 512;
const PARAMETERS_SIZE: usize = 256 * 1024;

pub struct StorageClass;

impl Strategy for StorageClass {
    fn namespaced(&self) -> bool {
        false
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        for (name, value) in [
            ("reclaimPolicy", "Delete"),
            ("volumeBindingMode", "Immediate"),
        ] {
            if !object.has(&[name]) {
                object.set(&[name], value);
            }
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = provisioner(object, "provisioner");
        errors.extend(parameters(object, true));
        let policy = object.str_at(&["reclaimPolicy"]);
        if !policy.is_empty() {
            let policies = ["Delete", "Retain"];
            errors.extend(supported(policy, &policies, &Path::new("reclaimPolicy")));
        }
        errors.extend(supported(
            object.str_at(&["volumeBindingMode"]),
            &["Immediate", "WaitForFirstConsumer"],
            &Path::new("volumeBindingMode"),
        ));
        topologies(object, &mut errors);
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = self.validate_content(new);
        if !semantically_equal(new.get("parameters"), old.get("parameters")) {
            let (new, old) = (new.get("parameters"), old.get("parameters"));
            errors.extend(immutable(new, old, &Path::new("parameters")));
        }
        for name in ["provisioner", "reclaimPolicy", "volumeBindingMode"] {
            let path = Path::new(name);
            let (new, old) = (new.str_at(&[name]), old.str_at(&[name]));
            errors.extend(immutable_text(new, old, &path));
        }
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let or = |name: &str, default: &str| match object.str_at(&[name]) {
            "" => default.to_string(),
            text => text.to_string(),
        };
        let annotations = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        vec![
            name_or_default(object, &annotations).into(),
            object.str_at(&["provisioner"]).into(),
            or("reclaimPolicy", "Delete").into(),
            or("volumeBindingMode", "Immediate").into(),
            object.bool_at(&["allowVolumeExpansion"]).into(),
            object_age(object, now).into(),
        ]
    }
}

/// Checks the name of who makes the volumes.
pub fn provisioner(object: &Value, field: &str) -> Vec<FieldError> {
    let name = object.str_at(&[field]).to_lowercase();
    let path = Path::new(field);
    match name.as_str() {
        "" => vec![FieldError::required(&path, "")],
        _ => all_invalid(&path, &name, names::qualified_name(&name)),
    }
}

/// Checks `parameters`.
pub fn parameters(object: &Value, may_be_empty: bool) -> Vec<FieldError> {
    let path = Path::new("parameters");
    let count = object.fields_at(&["parameters"]).count();
    if count > MOST_PARAMETERS {
        return vec![FieldError::too_long(&path, MOST_PARAMETERS)];
    }
    let mut errors = Vec::new();
    if object
        .fields_at(&["parameters"])
        .any(|(key, _)| key.is_empty())
    {
        let detail = "field can not be empty.";
        errors.push(FieldError::invalid(&path, "", detail));
    }
    if size_of_map(object, &["parameters"]) > PARAMETERS_SIZE {
        errors.push(FieldError::too_long(&path, PARAMETERS_SIZE));
    }
    if count == 0 && !may_be_empty {
        let detail = "must contain at least one key/value pair";
        errors.push(FieldError::required(&path, detail));
    }
    errors
}

fn topologies(object: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("allowedTopologies");
    let mut seen: BTreeMap<Vec<(String, Vec<String>)>, usize> = BTreeMap::new();
    for (index, term) in object.list_at(&["allowedTopologies"]).iter().enumerate() {
        let at = path.index(index).child("matchLabelExpressions");
        let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let expressions = term.list_at(&["matchLabelExpressions"]);
        for (index, expression) in expressions.iter().enumerate() {
            let at = at.index(index);
            let mut set: BTreeSet<&str> = BTreeSet::new();
            let values = expression.list_at(&["values"]);
            if values.is_empty() {
                errors.push(FieldError::required(&at.child("values"), ""));
            }
            for (index, value) in values.iter().enumerate() {
                let text = value.as_str().unwrap_or_default();
                if !set.insert(text) {
                    let at = at.child("values").index(index);
                    errors.push(FieldError::duplicate(&at, text));
                }
            }
            let key = expression.str_at(&["key"]);
            let wrong = names::qualified_name(key);
            errors.extend(all_invalid(&at.child("key"), key, wrong));
            let set = set.into_iter().map(str::to_string).collect();
            if keys.insert(key.to_string(), set).is_some() {
                errors.push(FieldError::duplicate(&at.child("key"), key));
            }
        }
        // Upstream starts with as many empty ones as there are terms.
        let empty = match keys.is_empty() {
            true => object.list_at(&["allowedTopologies"]).len(),
            false => 0,
        };
        let count = seen.entry(keys.into_iter().collect()).or_default();
        // One error for each other term that is alike is too many when there are many terms.
        let room = MOST_REPEATED.saturating_sub(errors.len());
        for _ in 0..(*count + empty).min(room) {
            errors.push(FieldError::duplicate(&at, ""));
        }
        *count += 1;
    }
}
