//! Nodes.

use crate::addresses;
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::repeats::{Seen, repeats};
use crate::resource::{MetadataChecks, Strategy, generic};
use crate::strategy::checks::canonical_quantities;
use crate::strategy::pod::resources::quantity_value;
use crate::strategy::pod::tolerations::taint_effect;

pub struct Node;

impl Strategy for Node {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_status(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        // `podCIDR` is the first of `podCIDRs`; where they differ, the older one counts.
        let single = object.str_at(&["spec", "podCIDR"]).to_string();
        let first = object.list_at(&["spec", "podCIDRs"]).first().cloned();
        match (single.as_str(), first) {
            ("", Some(first)) => object.set(&["spec", "podCIDR"], first),
            ("", None) => {}
            (single, Some(Value::String(first))) if first == single => {}
            _ => object.set(&["spec", "podCIDRs"], vec![Value::from(single)]),
        }
        for list in ["capacity", "allocatable"] {
            canonical_quantities(object, &["status", list]);
        }
        if !object.has(&["status", "allocatable"])
            && let Some(capacity) = object.at(&["status", "capacity"]).cloned()
        {
            object.set(&["status", "allocatable"], capacity);
        }
    }

    /// A node registers itself together with its status.
    fn prepare_create(&self, _object: &mut Value) {}

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = taints(object);
        errors.extend(resources(object));
        errors.extend(features(object));
        pod_ranges(object, &mut errors);
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        let mut errors = match subresource {
            "" => self.validate_content(new),
            _ => Vec::new(),
        };
        errors.extend(resources(new));
        errors.extend(features(new));
        let spec = Path::new("spec");
        let at = ["spec", "podCIDRs"];
        if !old.list_at(&at).is_empty() && old.list_at(&at) != new.list_at(&at) {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            errors.push(FieldError::forbidden(&spec.child("podCIDRs"), detail));
        }
        let at = ["spec", "providerID"];
        if !old.str_at(&at).is_empty() && old.str_at(&at) != new.str_at(&at) {
            let detail = "node updates may not change providerID except from \"\" to valid";
            errors.push(FieldError::forbidden(&spec.child("providerID"), detail));
        }
        let addresses = new.list_at(&["status", "addresses"]);
        let shown: Vec<String> = addresses.iter().map(Value::to_string).collect();
        for index in repeats(&shown) {
            let at = Path::new("status").child("addresses").index(index);
            let text = |name: &str| Value::from(addresses[index].str_at(&[name]));
            let error = FieldError::duplicate(&at, Value::Null);
            errors.push(error.showing(&[("Type", text("type")), ("Address", text("address"))]));
        }
        errors.extend(taints(new));
        errors
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        MetadataChecks::both_of_object(subresource)
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let mut fields = generic::metadata_fields(object, false);
        let unschedulable = object.bool_at(&["spec", "unschedulable"]).to_string();
        fields.push(("spec.unschedulable", unschedulable));
        fields
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let info = |name: &str| object.str_at(&["status", "nodeInfo", name]).to_string();
        let or_unknown = |text: String| match text.as_str() {
            "" => "<unknown>".to_string(),
            _ => text,
        };
        let mut kernel = or_unknown(info("kernelVersion"));
        let architecture = info("architecture");
        if !architecture.is_empty() {
            kernel = format!("{kernel} ({architecture})");
        }
        vec![
            object.str_at(&["metadata", "name"]).into(),
            condition_words(object).into(),
            roles(object).into(),
            object_age(object, now).into(),
            info("kubeletVersion").into(),
            address(object, "InternalIP").into(),
            address(object, "ExternalIP").into(),
            or_unknown(info("osImage")).into(),
            kernel.into(),
            or_unknown(info("containerRuntimeVersion")).into(),
        ]
    }
}

fn taints(object: &Value) -> Vec<FieldError> {
    let path = Path::new("metadata").child("taints");
    let taints = object.list_at(&["spec", "taints"]);
    let mut errors = Vec::new();
    let mut seen = Seen::new();
    for (index, taint) in taints.iter().enumerate() {
        let at = path.index(index);
        let text = |name: &str| taint.str_at(&[name]);
        let (key, value, effect) = (text("key"), text("value"), text("effect"));
        errors.extend(all_invalid(
            &at.child("key"),
            key,
            names::qualified_name(key),
        ));
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            let detail = wrong.join(";");
            errors.push(FieldError::invalid(&at.child("value"), value, detail));
        }
        errors.extend(taint_effect(effect, &at.child("effect")));
        if !seen.insert((key, effect)) {
            let mut error = FieldError::duplicate(&at, Value::Null);
            error.detail = "taints must be unique by key and effect pair".to_string();
            let added = taint.get("timeAdded").cloned().unwrap_or_default();
            errors.push(error.showing(&[
                ("Key", key.into()),
                ("Value", value.into()),
                ("Effect", effect.into()),
                ("TimeAdded", added),
            ]));
        }
    }
    errors
}

fn resources(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["capacity", "allocatable"] {
        let path = Path::new("status").child(list);
        for (name, value) in object.fields_at(&["status", list]) {
            errors.extend(quantity_value(name, value, &path.child(name)));
        }
    }
    errors
}

fn pod_ranges(object: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec").child("podCIDRs");
    let list = object.list_at(&["spec", "podCIDRs"]);
    let mut families = Vec::new();
    for (index, range) in list.iter().enumerate() {
        let text = range.as_str().unwrap_or_default();
        errors.extend(addresses::old_range(text, &Seen::new(), &path.index(index)));
        families.extend(addresses::parse_range(text).map(|range| range.address.is_ipv4()));
    }
    let unread = list.iter().position(|range| {
        let text = range.as_str().unwrap_or_default();
        addresses::parse_range(text).is_none()
    });
    if let (Some(index), true) = (unread, list.len() > 1) {
        let text = list[index].as_str().unwrap_or_default();
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR address: {text})"
        );
        errors.push(FieldError::internal(&path, detail));
    }
    let both = families.contains(&true) && families.contains(&false);
    if list.len() > 2 || (list.len() == 2 && !both) {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid(&path, list.to_vec(), detail));
    }
}

/// Checks the features that a node declares: their names must be sorted.
fn features(object: &Value) -> Vec<FieldError> {
    let path = Path::new("status").child("declaredFeatures");
    let list = object.list_at(&["status", "declaredFeatures"]);
    let mut errors = Vec::new();
    for (index, feature) in list.iter().enumerate() {
        let name = feature.as_str().unwrap_or_default();
        let mut parts = name.split('/');
        let valid = parts
            .next()
            .is_some_and(|part| part.starts_with(|first: char| first.is_ascii_uppercase()))
            && name
                .split('/')
                .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric()));
        if name.len() > 253 || !valid {
            let detail = match name.len() > 253 {
                true => {
                    format!("invalid feature name {name:?}: must be no more than 253 characters")
                }
                false => format!(
                    "invalid feature name {name:?}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
                ),
            };
            errors.push(FieldError::invalid(&path.index(index), name, detail));
        }
        let Some(next) = list.get(index + 1).and_then(Value::as_str) else {
            continue;
        };
        let at = path.index(index + 1);
        if name == next {
            errors.push(FieldError::duplicate(&at, next));
        } else if name > next {
            let detail = "list must be sorted alphabetically";
            errors.push(FieldError::invalid(&at, next, detail));
        }
    }
    errors
}

fn condition_words(object: &Value) -> String {
    let conditions = object.list_at(&["status", "conditions"]);
    let ready = conditions
        .iter()
        .find(|one| one.str_at(&["type"]) == "Ready");
    let mut words = match ready.map(|condition| condition.str_at(&["status"])) {
        Some("True") => "Ready".to_string(),
        Some(_) => "NotReady".to_string(),
        None => "Unknown".to_string(),
    };
    if object.bool_at(&["spec", "unschedulable"]) {
        words.push_str(",SchedulingDisabled");
    }
    words
}

fn roles(object: &Value) -> String {
    let mut roles: Vec<&str> = object
        .fields_at(&["metadata", "labels"])
        .filter_map(|(key, value)| match key {
            "kubernetes.io/role" => value.as_str(),
            _ => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    match roles.is_empty() {
        true => "<none>".to_string(),
        false => roles.join(","),
    }
}

fn address(object: &Value, kind: &str) -> String {
    let addresses = object.list_at(&["status", "addresses"]);
    let found = addresses.iter().find(|one| one.str_at(&["type"]) == kind);
    found
        .map_or("<none>", |one| one.str_at(&["address"]))
        .to_string()
}
