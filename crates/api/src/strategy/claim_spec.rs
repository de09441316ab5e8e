//! Validation of the spec of a PersistentVolumeClaim, in a claim or in a template of one.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::quantity::Quantity;
use crate::strategy::checks::{
    canonical_quantities, label_selector, optional_one_of, quantity_text,
};

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

/// Defaults of a claim's spec, also inside a template.
pub fn default(spec: &mut Value) {
    if !spec.has(&["volumeMode"]) {
        spec.set(&["volumeMode"], "Filesystem");
    }
    for name in ["limits", "requests"] {
        canonical_quantities(spec, &["resources", name]);
    }
}

/// Checks the spec of a new claim.
pub fn validate(spec: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let modes = spec.list_at(&["accessModes"]);
    let modes_path = path.child("accessModes");
    if modes.is_empty() {
        let detail = "at least 1 access mode is required";
        errors.push(FieldError::required(&modes_path, detail));
    }
    if let Some(selector) = spec.get("selector").filter(|value| !value.is_null()) {
        errors.extend(label_selector::validate(selector, &path.child("selector")));
    }
    let (mut one_pod, mut others) = (false, false);
    for mode in modes {
        let mode = mode.as_str().unwrap_or_default();
        match ACCESS_MODES.contains(&mode) {
            false => errors.push(FieldError::not_supported(&modes_path, mode, &ACCESS_MODES)),
            true if mode == "ReadWriteOncePod" => one_pod = true,
            true => others = true,
        }
    }
    if one_pod && others {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(&modes_path, detail));
    }
    let at = path.child("resources").key("storage");
    match spec.at(&["resources", "requests", "storage"]) {
        None | Some(Value::Null) => errors.push(FieldError::required(&at, "")),
        Some(value) => {
            let quantity = Quantity::parse(&quantity_text(value));
            if quantity.is_ok_and(|size| size.is_negative() || size.is_zero()) {
                let detail = "must be greater than zero";
                errors.push(FieldError::invalid(&at, value.clone(), detail));
            }
        }
    }
    class_name(spec, "storageClassName", path, &mut errors);
    let modes = ["Block", "Filesystem"];
    optional_one_of(spec, "volumeMode", &modes, path, &mut errors);
    data_sources(spec, path, &mut errors);
    class_name(spec, "volumeAttributesClassName", path, &mut errors);
    errors
}

fn class_name(spec: &Value, name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let class = spec.str_at(&[name]);
    if !class.is_empty() {
        let wrong = names::dns_subdomain(class);
        errors.extend(all_invalid(&path.child(name), class, wrong));
    }
}

fn data_sources(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["dataSource", "dataSourceRef"] {
        let Some(source) = spec.get(name).filter(|value| !value.is_null()) else {
            continue;
        };
        let at = path.child(name);
        for field in ["name", "kind"] {
            if source.str_at(&[field]).is_empty() {
                errors.push(FieldError::required(&at.child(field), ""));
            }
        }
        let (group, kind) = (source.str_at(&["apiGroup"]), source.str_at(&["kind"]));
        if group.is_empty() && kind != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.push(FieldError::invalid(&at, kind, detail));
        }
        if !group.is_empty() {
            let wrong = names::dns_subdomain(group);
            errors.extend(all_invalid(&at.child("apiGroup"), group, wrong));
        }
        let namespace = source.str_at(&["namespace"]);
        if name == "dataSourceRef" && !namespace.is_empty() {
            let wrong = names::dns_label(namespace);
            errors.extend(all_invalid(&at.child("namespace"), namespace, wrong));
        }
    }
}
