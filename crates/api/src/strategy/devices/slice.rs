//! ResourceSlices: the devices of a driver, or a part of them.

use super::{counters, device};
use super::{each_of_set, name_of, pool_name};
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, immutable, names};
use crate::resource::{Strategy, generic};
use crate::strategy::checks::{driver_name, immutable_text};
use crate::strategy::node_selector;

const MOST_DEVICES: usize = 128;
const MOST_ADVANCED_DEVICES: usize = 64;
const MOST_COUNTER_SETS: usize = 8;

pub struct ResourceSlice;

impl Strategy for ResourceSlice {
    fn namespaced(&self) -> bool {
        false
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn unsupported_field(&self, field: &str, api_version: &str) -> String {
        format!("field label not supported for {api_version}, Kind=ResourceSlice: {field}")
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn prepare_create_content(&self, object: &mut Value) {
        device::drop_disabled(object);
    }

    fn prepare_update_content(&self, new: &mut Value, _old: &Value, _: &str) {
        device::drop_disabled(new);
    }

    fn stamp(&self, new: &mut Value, old: Option<&Value>, _subresource: &str, now: &str) {
        for device in new.list_at_mut(&["spec", "devices"]) {
            for taint in device.list_at_mut(&["taints"]) {
                taint.set_default(&["timeAdded"], now);
            }
        }
        // The times count among what was sent.
        if let Some(old) = old.filter(|old| old.get("spec") == new.get("spec")) {
            generic::keep_field(new, old, &["metadata", "generation"]);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        validate(object, None)
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        validate(new, Some(old))
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>, _subresource: &str) -> Vec<String> {
        let driver = new.str_at(&["spec", "driver"]);
        match driver == driver.to_lowercase() {
            true => Vec::new(),
            false => vec![format!(
                "spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters"
            )],
        }
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let mut fields = generic::metadata_fields(object, false);
        let text = |name: &str| object.str_at(&["spec", name]).to_string();
        fields.push(("spec.nodeName", text("nodeName")));
        fields.push(("spec.driver", text("driver")));
        fields
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let text = |path: &[&str]| -> Value { object.str_at(path).into() };
        vec![
            text(&["metadata", "name"]),
            text(&["spec", "nodeName"]),
            text(&["spec", "driver"]),
            text(&["spec", "pool", "name"]),
            object_age(object, now).into(),
        ]
    }
}

fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = Path::new("spec");
    let empty = Value::object();
    let spec = object.get("spec").unwrap_or(&empty);
    let driver = spec.str_at(&["driver"]);
    let mut errors = driver_name(driver, &path.child("driver"));
    pool(spec, &path.child("pool"), &mut errors);
    if let Some(old) = old {
        let text = |object: &Value, at: &[&str]| object.str_at(at).to_string();
        let fixed: [(&[&str], Path); 2] = [
            (&["spec", "pool", "name"], path.child("pool").child("name")),
            (&["spec", "driver"], path.child("driver")),
        ];
        for (at, path) in fixed {
            let (new, old) = (text(object, at), text(old, at));
            errors.extend(immutable_text(&new, &old, &path));
        }
        let at = ["spec", "nodeName"];
        let path = path.child("nodeName");
        errors.extend(immutable(object.at(&at), old.at(&at), &path));
    }
    nodes(spec, &path, &mut errors);
    if spec.has(&["sharedCounters"]) && spec.has(&["devices"]) {
        let detail = "only one of `sharedCounters` or `devices` is allowed";
        errors.push(FieldError::invalid(&path, "", detail));
    }
    let devices = spec.list_at(&["devices"]);
    let advanced = devices.iter().any(|device| {
        ["taints", "consumesCounters"]
            .iter()
            .any(|list| !device.list_at(&[list]).is_empty())
    });
    let most = match advanced {
        true => MOST_ADVANCED_DEVICES,
        false => MOST_DEVICES,
    };
    let per_device = spec.bool_at(&["perDeviceNodeSelection"]);
    let before = old.map_or(&[][..], |old| old.list_at(&["spec", "devices"]));
    each_of_set(
        devices,
        most,
        name_of,
        &path.child("devices"),
        &mut errors,
        |one, at, errors| {
            let name = one.str_at(&["name"]);
            let old = before.iter().find(|old| old.str_at(&["name"]) == name);
            device::validate(one, old, per_device, at, errors);
        },
    );
    each_of_set(
        spec.list_at(&["sharedCounters"]),
        MOST_COUNTER_SETS,
        name_of,
        &path.child("sharedCounters"),
        &mut errors,
        |one, at, errors| {
            counters::validate(one, "name", at, errors);
        },
    );
    errors
}

fn pool(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let name = spec.str_at(&["pool", "name"]);
    errors.extend(pool_name(name, &path.child("name")));
    let count = spec.i64_at(&["pool", "resourceSliceCount"]).unwrap_or(0);
    if count <= 0 {
        let at = path.child("resourceSliceCount");
        errors.push(FieldError::invalid(&at, count, "must be greater than zero"));
    }
    let generation = spec.i64_at(&["pool", "generation"]).unwrap_or(0);
    if generation < 0 {
        let at = path.child("generation");
        let detail = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(&at, generation, detail));
    }
}

/// Checks that exactly one field says from which nodes the devices can be reached.
fn nodes(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let mut set = Vec::new();
    if let Some(name) = spec.get("nodeName").and_then(Value::as_str) {
        let at = path.child("nodeName");
        if name.is_empty() {
            let detail = "must be either unset or set to a non-empty string";
            errors.push(FieldError::invalid(&at, "", detail));
        } else {
            set.push("`nodeName`");
            errors.extend(all_invalid(&at, name, names::dns_subdomain(name)));
        }
    }
    if let Some(selector) = spec.get("nodeSelector").filter(|value| !value.is_null()) {
        set.push("`nodeSelector`");
        let at = path.child("nodeSelector");
        errors.extend(node_selector::validate(selector, &at));
        let terms = selector.list_at(&["nodeSelectorTerms"]);
        if terms.len() != 1 {
            let value = selector.get("nodeSelectorTerms").cloned();
            let detail = "must have exactly one node selector term";
            let at = at.child("nodeSelectorTerms");
            errors.push(FieldError::invalid(&at, value.unwrap_or_default(), detail));
        }
    }
    for (name, shown) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        match spec.get(name).and_then(Value::as_bool) {
            Some(true) => set.push(shown),
            Some(false) => {
                let detail = "must be either unset or set to true";
                errors.push(FieldError::invalid(&path.child(name), false, detail));
            }
            None => {}
        }
    }
    let words = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match set.len() {
        0 => errors.push(FieldError::required(path, words)),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            let detail = format!("{words}, but multiple fields are set");
            errors.push(FieldError::invalid(path, shown, detail));
        }
    }
}
