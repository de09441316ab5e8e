//! PersistentVolumeClaims.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, immutable, names};
use crate::resource::{MetadataChecks, Strategy, generic};
use crate::strategy::checks::canonical_quantities;
use crate::strategy::checks::{basic_quantity, quantity};
use crate::strategy::claim_spec;
use crate::strategy::persistent_volume::{CLASS_ANNOTATION, access_modes, class, storage_cell};
use crate::strategy::pod::resources::quantity_value;

pub struct PersistentVolumeClaim;

impl Strategy for PersistentVolumeClaim {
    fn returns_deleted(&self) -> bool {
        true
    }

    fn has_status(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec") {
            claim_spec::default(spec);
        } else {
            object.set(&["spec", "volumeMode"], "Filesystem");
        }
        for list in ["capacity", "allocatedResources"] {
            canonical_quantities(object, &["status", list]);
        }
        object.set_default(&["status", "phase"], "Pending");
    }

    fn prepare_create_content(&self, object: &mut Value) {
        object.set(&["status", "phase"], "Pending");
        if let Some(spec) = object.get_mut("spec") {
            settle_data_source(spec, None);
        }
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        if subresource.is_empty()
            && let Some(spec) = new.get_mut("spec")
        {
            settle_data_source(spec, old.get("spec"));
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let empty = Value::object();
        let spec = object.get("spec").unwrap_or(&empty);
        claim_spec::validate(spec, &Path::new("spec"), false)
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "status" => status(new),
            _ => update(new, old),
        }
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        MetadataChecks::both_of_object(subresource)
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let text = |path: &[&str]| object.str_at(path).to_string();
        let or_unset = |name: &str| match object.has(&["spec", name]) {
            true => text(&["spec", name]),
            false => "<unset>".to_string(),
        };
        let phase = match object.has(&["metadata", "deletionTimestamp"]) {
            true => "Terminating".to_string(),
            false => text(&["status", "phase"]),
        };
        let volume = text(&["spec", "volumeName"]);
        let (capacity, modes) = match volume.is_empty() {
            true => (String::new(), String::new()),
            false => (
                storage_cell(object.at(&["status", "capacity"])),
                access_modes(object.list_at(&["status", "accessModes"])),
            ),
        };
        vec![
            text(&["metadata", "name"]).into(),
            phase.into(),
            volume.into(),
            capacity.into(),
            modes.into(),
            class(object).into(),
            or_unset("volumeAttributesClassName").into(),
            object_age(object, now).into(),
            or_unset("volumeMode").into(),
        ]
    }
}

/// Copies `dataSource` to `dataSourceRef` or the other way round, and drops references that are not
/// supported.
fn settle_data_source(spec: &mut Value, old: Option<&Value>) {
    let in_use = |name: &str| old.is_some_and(|old| old.has(&[name]));
    let crosses = !spec.str_at(&["dataSourceRef", "namespace"]).is_empty();
    if crosses && !in_use("dataSourceRef") {
        spec.remove(&["dataSourceRef"]);
    }
    let known = matches!(
        (
            spec.str_at(&["dataSource", "apiGroup"]),
            spec.str_at(&["dataSource", "kind"]),
        ),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    let used = in_use("dataSource") || in_use("dataSourceRef");
    if !used && !spec.has(&["dataSourceRef"]) && !known {
        spec.remove(&["dataSource"]);
    }
    let copy = |from: &Value| {
        let mut copy = Value::object();
        for name in ["apiGroup", "kind", "name"] {
            if let Some(value) = from.get(name) {
                copy.set(&[name], value.clone());
            }
        }
        copy
    };
    let source = spec.get("dataSource").filter(|value| !value.is_null());
    let reference = spec.get("dataSourceRef").filter(|value| !value.is_null());
    match (source, reference) {
        (Some(source), None) => {
            let made = copy(source);
            spec.set(&["dataSourceRef"], made);
        }
        (None, Some(reference)) if reference.str_at(&["namespace"]).is_empty() => {
            let made = copy(reference);
            spec.set(&["dataSource"], made);
        }
        _ => {}
    }
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let empty = Value::object();
    let groups = ["dataSource", "dataSourceRef"];
    let known_group = groups
        .iter()
        .any(|name| old.has(&["spec", name, "apiGroup"]));
    let spec = new.get("spec").unwrap_or(&empty);
    let mut errors = claim_spec::validate(spec, &path, known_group);

    let (mut new_spec, mut old_spec) = (
        new.get("spec").cloned().unwrap_or_default(),
        old.get("spec").cloned().unwrap_or_default(),
    );
    if old_spec.str_at(&["volumeName"]).is_empty() {
        generic::keep_field(&mut old_spec, &new_spec, &["volumeName"]);
    }
    let annotation = ["metadata", "annotations", CLASS_ANNOTATION];
    let name = ["storageClassName"];
    let (old_class, new_class) = (old.at(&annotation), new.at(&annotation));
    let from_annotation = old_class.is_some()
        && !old_spec.has(&name)
        && new_spec.get("storageClassName") == old_class
        && new_class.is_none_or(|class| Some(class) == old_class);
    if from_annotation {
        new_spec.remove(&name);
    } else {
        let text = |class: Option<&Value>| class.and_then(Value::as_str).unwrap_or("").to_string();
        if text(new_class) != text(old_class) {
            let at = Path::new("metadata")
                .child("annotations")
                .child(CLASS_ANNOTATION);
            errors.push(FieldError::invalid(
                &at,
                text(new_class),
                "field is immutable",
            ));
        }
        let set_later = new_spec.has(&name)
            && !old_spec.has(&name)
            && old_class.is_none_or(|class| new_spec.get("storageClassName") == Some(class));
        if set_later {
            new_spec.remove(&name);
        }
    }
    let bound = new.str_at(&["status", "phase"]) == "Bound";
    if bound {
        if new_spec.has(&["resources", "requests"]) {
            generic::keep_field(
                &mut new_spec,
                &old_spec,
                &["resources", "requests", "storage"],
            );
        }
        generic::keep_field(&mut new_spec, &old_spec, &["volumeAttributesClassName"]);
    }
    if new_spec != old_spec {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";
        errors.push(FieldError::forbidden(&path, detail));
    }
    let storage = ["spec", "resources", "requests", "storage"];
    let (new_size, old_size) = (quantity(new.at(&storage)), quantity(old.at(&storage)));
    if new_size < old_size && new_size <= quantity(old.at(&["status", "capacity", "storage"])) {
        let at = path.child("resources").child("requests").child("storage");
        let detail = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden(&at, detail));
    }
    let at = ["spec", "volumeMode"];
    errors.extend(immutable(
        new.at(&at),
        old.at(&at),
        &Path::new("volumeMode"),
    ));
    let at = ["spec", "volumeAttributesClassName"];
    if old.at(&at) != new.at(&at) && old.has(&["status", "currentVolumeAttributesClassName"]) {
        let path = path.child("volumeAttributesClassName");
        let set = "is forbidden when status.currentVolumeAttributesClassName is not nil";
        match new.at(&at).and_then(Value::as_str) {
            None => errors.push(FieldError::forbidden(&path, format!("update to nil {set}"))),
            Some("") => errors.push(FieldError::forbidden(
                &path,
                format!("update to empty string {set}"),
            )),
            Some(_) => {}
        }
    }
    errors
}

fn status(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if new.list_at(&["spec", "accessModes"]).is_empty() {
        let at = Path::new("Spec").child("accessModes");
        errors.push(FieldError::required(&at, ""));
    }
    let path = Path::new("status");
    for (name, value) in new.fields_at(&["status", "capacity"]) {
        errors.extend(basic_quantity(value, &path.child("capacity").key(name)));
    }
    let states = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let at = path.child("allocatedResourceStatuses");
    for (name, value) in new.fields_at(&["status", "allocatedResourceStatuses"]) {
        errors.extend(resource_key(name, &at));
        if !states.contains(&value.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(&at, name, &states));
        }
    }
    let at = path.child("allocatedResources");
    for (name, value) in new.fields_at(&["status", "allocatedResources"]) {
        let wrong = resource_key(name, &at);
        if !wrong.is_empty() {
            errors.extend(wrong);
            continue;
        }
        match basic_quantity(value, &at.key(name)) {
            Some(error) => errors.push(error),
            None => errors.extend(quantity_value("storage", value, &at.key(name))),
        }
    }
    errors
}

fn resource_key(name: &str, path: &Path) -> Vec<FieldError> {
    let wrong = names::qualified_name(name);
    if !wrong.is_empty() {
        return all_invalid(path, name, wrong);
    }
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    match native && name != "storage" {
        true => vec![FieldError::not_supported(path, name, &["storage"])],
        false => Vec::new(),
    }
}
