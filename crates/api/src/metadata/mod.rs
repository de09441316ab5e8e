//! ObjectMeta: what every object's metadata must look like and what an update may not change.
//!
//! Rules of one kind are in its strategy.

use crate::document::Value;
use crate::field::{FieldError, Path, most_showing};
use crate::repeats::Seen;

pub mod managed_fields;
pub mod names;

#[cfg(test)]
mod tests;

pub use names::NameRule;

/// All annotations of an object together.
pub(crate) const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Puts back the metadata that no update changes.
pub fn carry_over(new: &mut Value, old: &Value) {
    let old_at = |name: &str| old.at(&["metadata", name]);
    match old_at("generation") {
        Some(generation) => new.set(&["metadata", "generation"], generation.clone()),
        None => drop(new.remove(&["metadata", "generation"])),
    }
    for name in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(value) = old_at(name).filter(|value| !value.is_null()) {
            new.set(&["metadata", name], value.clone());
        }
    }
    if new.str_at(&["metadata", "uid"]).is_empty() {
        new.set(&["metadata", "uid"], old.str_at(&["metadata", "uid"]));
    }
    let grace = ["metadata", "deletionGracePeriodSeconds"];
    if let (Some(value), None) = (old.at(&grace), new.at(&grace)) {
        new.set(&grace, value.clone());
    }
}

/// What a kind demands of its objects' metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub namespaced: bool,
    pub name: NameRule,
    /// Whether the prefix of a generated name is looked at by itself.
    pub generate_name: bool,
    /// Whether finalizers must be well known or qualified.
    pub known_finalizers: bool,
}

impl Rules {
    pub const fn new(namespaced: bool, name: NameRule) -> Rules {
        Rules {
            namespaced,
            name,
            generate_name: true,
            known_finalizers: true,
        }
    }
}

/// Checks the metadata of a new object, its name already generated.
pub fn validate(object: &Value, rules: Rules) -> Vec<FieldError> {
    let Rules {
        namespaced,
        name: rule,
        ..
    } = rules;
    let path = Path::new("metadata");
    let mut errors = Vec::new();
    let text = |name: &str| object.str_at(&["metadata", name]);

    let generate_name = text("generateName");
    if !generate_name.is_empty() && rules.generate_name {
        let wrong = rule.check(generate_name, true);
        errors.extend(all_invalid(
            &path.child("generateName"),
            generate_name,
            wrong,
        ));
    }
    let name = text("name");
    if name.is_empty() {
        let detail = "name or generateName is required";
        errors.push(FieldError::required(&path.child("name"), detail));
    } else {
        let wrong = rule.check(name, false);
        errors.extend(all_invalid(&path.child("name"), name, wrong));
    }

    let namespace = text("namespace");
    let namespace_path = path.child("namespace");
    match (namespaced, namespace) {
        (true, "") => errors.push(FieldError::required(&namespace_path, "")),
        (true, _) => errors.extend(all_invalid(
            &namespace_path,
            namespace,
            names::dns_label(namespace),
        )),
        (false, "") => {}
        (false, _) => errors.push(FieldError::forbidden(
            &namespace_path,
            "not allowed on this type",
        )),
    }

    if let Some(generation) = object
        .at(&["metadata", "generation"])
        .and_then(Value::as_i64)
        && generation < 0
    {
        let detail = "must be greater than or equal to 0";
        let generation_path = path.child("generation");
        errors.push(FieldError::invalid(&generation_path, generation, detail));
    }
    errors.extend(labels(
        object.at(&["metadata", "labels"]),
        &path.child("labels"),
    ));
    errors.extend(annotations(
        object.at(&["metadata", "annotations"]),
        &path.child("annotations"),
    ));
    errors.extend(owner_references(object, &path.child("ownerReferences")));
    errors.extend(finalizers(
        object,
        &path.child("finalizers"),
        rules.known_finalizers,
    ));
    errors.extend(managed_fields::validate(object));
    errors
}

/// Checks what an update did to the metadata. [`validate`] is separate.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("metadata");
    let mut errors = Vec::new();
    if old.at(&["metadata", "deletionTimestamp"]).is_some() {
        let before: Seen<&str> = finalizer_names(old).into_iter().collect();
        let mut added: Vec<&str> = finalizer_names(new);
        added.retain(|name| !before.contains(name));
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            errors.push(FieldError::forbidden(&path.child("finalizers"), detail));
        }
    }
    if new.str_at(&["metadata", "resourceVersion"]).is_empty() {
        let detail = "must be specified for an update";
        errors.push(FieldError::invalid(
            &path.child("resourceVersion"),
            "",
            detail,
        ));
    }
    for name in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let at = ["metadata", name];
        errors.extend(immutable(new.at(&at), old.at(&at), &path.child(name)));
    }
    // Upstream looks at these once more.
    let at = |name: &str| new.at(&["metadata", name]);
    errors.extend(labels(at("labels"), &path.child("labels")));
    errors.extend(annotations(at("annotations"), &path.child("annotations")));
    errors.extend(owner_references(new, &path.child("ownerReferences")));
    errors.extend(managed_fields::validate(new));
    errors
}

/// The error for a field that may not change, if it did.
pub fn immutable(new: Option<&Value>, old: Option<&Value>, path: &Path) -> Option<FieldError> {
    let present = |value: Option<&Value>| value.cloned().unwrap_or_default();
    let (new, old) = (present(new), present(old));
    (new != old).then(|| FieldError::invalid(path, new, "field is immutable"))
}

/// Checks a map of labels.
pub fn labels(labels: Option<&Value>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in entries(labels) {
        errors.extend(all_invalid(path, key, names::qualified_name(key)));
        errors.extend(all_invalid(path, value, names::label_value(value)));
    }
    errors
}

/// One `Invalid` error for each message.
pub fn all_invalid(path: &Path, value: &str, wrong: Vec<String>) -> Vec<FieldError> {
    wrong
        .into_iter()
        .map(|detail| FieldError::invalid(path, value, detail))
        .collect()
}

/// Checks a map of annotations.
pub fn annotations(annotations: Option<&Value>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in entries(annotations) {
        let wrong = names::qualified_name(&key.to_lowercase());
        errors.extend(all_invalid(path, key, wrong));
        size += key.len() + value.len();
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long(path, ANNOTATIONS_LIMIT));
    }
    errors
}

fn owner_references(object: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let references = object.at(&["metadata", "ownerReferences"]);
    let mut controller: Option<String> = None;
    let mut controllers = 0;
    for reference in references.and_then(Value::as_array).into_iter().flatten() {
        let api_version = reference.str_at(&["apiVersion"]);
        let version = match api_version.matches('/').count() {
            0 | 1 => api_version.rsplit('/').next().unwrap_or_default(),
            _ => "",
        };
        if version.is_empty() {
            let detail = "version must not be empty";
            errors.push(FieldError::invalid(
                &path.child("apiVersion"),
                api_version,
                detail,
            ));
        }
        for name in ["kind", "name", "uid"] {
            if reference.str_at(&[name]).is_empty() {
                errors.push(FieldError::invalid(
                    &path.child(name),
                    "",
                    "must not be empty",
                ));
            }
        }
        let kind = reference.str_at(&["kind"]);
        if api_version == "v1" && kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, reference.clone(), detail));
        }
        if reference.get("controller").and_then(Value::as_bool) == Some(true) {
            let current = format!("{kind}/{}", reference.str_at(&["name"]));
            match &controller {
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {current}"
                    );
                    let value = references.cloned().unwrap_or_default();
                    errors.push(FieldError::invalid(path, value, detail));
                    controllers += 1;
                    if controllers >= references.map_or(1, most_showing) {
                        break;
                    }
                }
                None => controller = Some(current),
            }
        }
    }
    errors
}

fn finalizers(object: &Value, path: &Path, known: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let list = finalizer_names(object);
    for finalizer in &list {
        let wrong = names::qualified_name(finalizer);
        errors.extend(all_invalid(path, finalizer, wrong));
    }
    for (index, finalizer) in list.iter().enumerate() {
        let standard = matches!(*finalizer, "kubernetes" | "orphan" | "foregroundDeletion");
        if known && !finalizer.contains('/') && !standard {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&path.index(index), *finalizer, detail));
        }
    }
    if list.contains(&"orphan") && list.contains(&"foregroundDeletion") {
        let value = object.at(&["metadata", "finalizers"]).cloned();
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, value.unwrap_or_default(), detail));
    }
    errors
}

fn finalizer_names(object: &Value) -> Vec<&str> {
    let list = object.at(&["metadata", "finalizers"]);
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

fn entries(map: Option<&Value>) -> impl Iterator<Item = (&str, &str)> {
    let object = map.and_then(Value::as_object);
    let fields = object.into_iter().flat_map(|object| object.iter());
    fields.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}
