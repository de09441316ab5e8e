//! ReplicaSets.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::immutable;
use crate::strategy::{Strategy, generic, workload};
use crate::table::duration::object_age;

pub struct ReplicaSet;

impl Strategy for ReplicaSet {
    fn namespaced(&self) -> bool {
        true
    }

    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        object.set_default(&["spec", "replicas"], 1);
        workload::default_template(object);
    }

    fn prepare_create_content(&self, object: &mut Value) {
        object.set(&["status", "replicas"], 0);
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        errors.extend(workload::not_negative(object, "spec", "replicas"));
        errors.extend(workload::not_negative(object, "spec", "minReadySeconds"));
        errors.extend(workload::selector_and_template(object));
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource == "status" {
            return status(new);
        }
        let mut errors = self.validate_content(new);
        let at = ["spec", "selector"];
        let path = Path::new("spec").child("selector");
        errors.extend(immutable(new.at(&at), old.at(&at), &path));
        errors
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let mut fields = generic::metadata_fields(object, true);
        let replicas = object.i64_at(&["status", "replicas"]).unwrap_or(0);
        fields.push(("status.replicas", replicas.to_string()));
        fields
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let number = |path: &[&str]| object.i64_at(path).unwrap_or(0);
        let [containers, images] = workload::container_cells(object);
        vec![
            object.str_at(&["metadata", "name"]).into(),
            number(&["spec", "replicas"]).into(),
            number(&["status", "replicas"]).into(),
            number(&["status", "readyReplicas"]).into(),
            object_age(object, now).into(),
            containers,
            images,
            workload::selector_cell(object),
        ]
    }
}

fn status(object: &Value) -> Vec<FieldError> {
    let path = Path::new("status");
    let number = |name: &str| object.i64_at(&["status", name]).unwrap_or(0);
    let mut errors = Vec::new();
    for name in [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
    ] {
        errors.extend(workload::not_negative(object, "status", name));
    }
    for name in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if number(name) > number("replicas") {
            let detail = "cannot be greater than status.replicas";
            errors.push(FieldError::invalid(&path.child(name), number(name), detail));
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        let at = path.child("availableReplicas");
        let detail = "cannot be greater than readyReplicas";
        errors.push(FieldError::invalid(
            &at,
            number("availableReplicas"),
            detail,
        ));
    }
    errors
}
