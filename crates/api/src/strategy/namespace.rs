//! Namespaces.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names::{self, NameRule};
use crate::resource::{MetadataChecks, Strategy, generic};

pub struct Namespace;

/// The finalizer that the namespace controller removes once everything inside is gone.
pub const FINALIZER: &str = "kubernetes";

impl Strategy for Namespace {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_finalizers_of_its_own(&self, object: &Value) -> bool {
        !object.list_at(&["spec", "finalizers"]).is_empty()
    }

    fn prepare_deleting(&self, object: &mut Value) {
        object.set(&["status", "phase"], "Terminating");
        object.remove(&["metadata", "deletionGracePeriodSeconds"]);
    }

    fn checks_delete_preconditions_itself(&self) -> bool {
        true
    }

    fn name_rule(&self) -> NameRule {
        NameRule::DnsLabel
    }

    fn has_status(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        let name = object.str_at(&["metadata", "name"]).to_string();
        if !name.is_empty() {
            let label = ["metadata", "labels", "kubernetes.io/metadata.name"];
            object.set(&label, name);
        }
        object.set_default(&["status", "phase"], "Active");
    }

    fn prepare_create_content(&self, object: &mut Value) {
        object.set(&["status", "phase"], "Active");
        let mut finalizers = object.list_at(&["spec", "finalizers"]).to_vec();
        if !finalizers.contains(&FINALIZER.into()) {
            finalizers.push(FINALIZER.into());
            object.set(&["spec", "finalizers"], finalizers);
        }
        // The name may have been generated after defaulting.
        self.default(object);
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        match subresource {
            "" => generic::keep_field(new, old, &["spec", "finalizers"]),
            "finalize" => generic::keep_field(new, old, &["status"]),
            _ => {}
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        finalizers(object)
    }

    fn validate_update_content(
        &self,
        new: &Value,
        _old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "status" => status(new),
            _ => finalizers(new),
        }
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        MetadataChecks::both_of_object(subresource)
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let mut fields = generic::metadata_fields(object, false);
        let phase = object.str_at(&["status", "phase"]).to_string();
        fields.push(("status.phase", phase));
        fields
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object.str_at(&["status", "phase"]).into(),
            object_age(object, now).into(),
        ]
    }
}

fn finalizers(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec").child("finalizers");
    let mut errors = Vec::new();
    for finalizer in object.list_at(&["spec", "finalizers"]) {
        let name = finalizer.as_str().unwrap_or_default();
        let wrong = names::qualified_name(name);
        errors.extend(crate::metadata::all_invalid(&path, name, wrong));
        if !name.contains('/') && name != FINALIZER {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&path, name, detail));
        }
    }
    errors
}

fn status(object: &Value) -> Vec<FieldError> {
    let path = Path::new("status").child("Phase");
    let deleting = object.has(&["metadata", "deletionTimestamp"]);
    let phase = object.str_at(&["status", "phase"]);
    match (deleting, phase) {
        (false, "Active") | (true, "Terminating") => Vec::new(),
        (false, _) => vec![FieldError::invalid(
            &path,
            phase,
            "may only be 'Active' if `deletionTimestamp` is empty",
        )],
        (true, _) => vec![FieldError::invalid(
            &path,
            phase,
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        )],
    }
}
