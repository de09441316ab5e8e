//! Validation of the spec of a PersistentVolumeClaim, in a claim or in a template of one.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::strategy::checks::{
    canonical_quantities, label_selector, optional_one_of, positive_quantity, supported,
};

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

pub const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Defaults of a claim's spec, also inside a template.
pub fn default(spec: &mut Value) {
    if !spec.has(&["volumeMode"]) {
        spec.set(&["volumeMode"], "Filesystem");
    }
    for name in ["limits", "requests"] {
        canonical_quantities(spec, &["resources", name]);
    }
}

/// Checks a claim's spec. `known_group` means that the invalid API group of a data source was there
/// before.
pub fn validate(spec: &Value, path: &Path, known_group: bool) -> Vec<FieldError> {
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
    errors.extend(access_mode_errors(modes, &modes_path));
    let at = path.child("resources").key("storage");
    match spec.at(&["resources", "requests", "storage"]) {
        None | Some(Value::Null) => errors.push(FieldError::required(&at, "")),
        Some(storage) => errors.extend(positive_quantity(storage, &at)),
    }
    class_name(spec, "storageClassName", path, &mut errors);
    optional_one_of(spec, "volumeMode", &VOLUME_MODES, path, &mut errors);
    data_sources(spec, path, known_group, &mut errors);
    class_name(spec, "volumeAttributesClassName", path, &mut errors);
    errors
}

/// Checks a list of access modes, of a claim or a volume.
pub fn access_mode_errors(modes: &[Value], path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let texts = || modes.iter().map(|mode| mode.as_str().unwrap_or_default());
    for mode in texts() {
        errors.extend(supported(mode, &ACCESS_MODES, path));
    }
    let single = texts().any(|mode| mode == "ReadWriteOncePod");
    let other = texts().any(|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode));
    if single && other {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(path, detail));
    }
    errors
}

fn class_name(spec: &Value, name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let class = spec.str_at(&[name]);
    if !class.is_empty() {
        let wrong = names::dns_subdomain(class);
        errors.extend(all_invalid(&path.child(name), class, wrong));
    }
}

fn data_sources(spec: &Value, path: &Path, known_group: bool, errors: &mut Vec<FieldError>) {
    let source = spec.get("dataSource").filter(|value| !value.is_null());
    let reference = spec.get("dataSourceRef").filter(|value| !value.is_null());
    for (name, one) in [("dataSource", source), ("dataSourceRef", reference)] {
        if let Some(one) = one {
            data_source(name, one, path, known_group, errors);
        }
    }
    let (Some(source), Some(reference)) = (source, reference) else {
        return;
    };
    // The value that upstream shows is an empty Go struct.
    let shown = Value::object();
    if !reference.str_at(&["namespace"]).is_empty() {
        let detail = "may not be specified when dataSourceRef.namespace is specified";
        errors.push(FieldError::invalid(path, shown, detail));
    } else if ["apiGroup", "kind", "name"]
        .iter()
        .any(|name| source.get(name) != reference.get(name))
    {
        errors.push(FieldError::invalid(path, shown, "must match dataSourceRef"));
    }
}

fn data_source(
    name: &str,
    source: &Value,
    path: &Path,
    known_group: bool,
    errors: &mut Vec<FieldError>,
) {
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
    if !group.is_empty() && !known_group {
        let wrong = names::dns_subdomain(group);
        errors.extend(all_invalid(&at.child("apiGroup"), group, wrong));
    }
    let namespace = source.str_at(&["namespace"]);
    if name == "dataSourceRef" && !namespace.is_empty() {
        let wrong = names::dns_label(namespace);
        errors.extend(all_invalid(&at.child("namespace"), namespace, wrong));
    }
}
