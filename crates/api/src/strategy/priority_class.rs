//! PriorityClasses.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::immutable;
use crate::resource::Strategy;

pub struct PriorityClass;

/// Above this only the system's own classes are.
const HIGHEST_FOR_USERS: i64 = 1_000_000_000;
/// The classes whose names begin with `system-`.
const SYSTEM: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];

impl Strategy for PriorityClass {
    fn namespaced(&self) -> bool {
        false
    }

    /// It begins with the first and stays there.
    fn prepare_create_content(&self, object: &mut Value) {
        object.set(&["metadata", "generation"], 1);
    }

    fn default(&self, object: &mut Value) {
        if !object.has(&["preemptionPolicy"]) {
            object.set(&["preemptionPolicy"], "PreemptLowerPriority");
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let name = object.str_at(&["metadata", "name"]);
        let value = object.i64_at(&["value"]).unwrap_or(0);
        if name.starts_with("system-") {
            if let Some(words) = not_a_system_class(object, name, value) {
                let at = Path::new("metadata").child("name");
                let detail = format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {words}"
                );
                errors.push(FieldError::forbidden(&at, detail));
            }
        } else if value > HIGHEST_FOR_USERS {
            let detail =
                format!("maximum allowed value of a user defined priority is {HIGHEST_FOR_USERS}");
            errors.push(FieldError::forbidden(&Path::new("value"), detail));
        }
        let policy = object.str_at(&["preemptionPolicy"]);
        if !matches!(policy, "PreemptLowerPriority" | "Never") {
            let at = Path::new("preemptionPolicy");
            let supported = ["PreemptLowerPriority", "Never"];
            errors.push(match policy {
                "" => FieldError::required(&at, ""),
                _ => FieldError::not_supported(&at, policy, &supported),
            });
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let value = |object: &Value| object.i64_at(&["value"]).unwrap_or(0);
        if value(new) != value(old) {
            let detail = "may not be changed in an update.";
            errors.push(FieldError::forbidden(&Path::new("value"), detail));
        }
        let name = "preemptionPolicy";
        errors.extend(immutable(new.get(name), old.get(name), &Path::new(name)));
        errors
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object.i64_at(&["value"]).unwrap_or(0).into(),
            object.bool_at(&["globalDefault"]).into(),
            object_age(object, now).into(),
            object.str_at(&["preemptionPolicy"]).into(),
        ]
    }
}

fn not_a_system_class(object: &Value, name: &str, value: i64) -> Option<String> {
    let Some((_, expected)) = SYSTEM.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value != *expected {
        return Some(format!("value of {name} PriorityClass must be {expected}"));
    }
    if object.bool_at(&["globalDefault"]) {
        return Some(format!(
            "globalDefault of {name} PriorityClass must be false"
        ));
    }
    None
}
