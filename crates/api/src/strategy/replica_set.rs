//! ReplicaSets.

use crate::age::object_age;
use crate::document::Value;
use crate::field::FieldError;
use crate::resource::Strategy;
use crate::strategy::workload;

pub struct ReplicaSet;

impl Strategy for ReplicaSet {
    /// Upstream's own type counts without a pointer, so there is a zero to be seen.
    fn fill_empty(&self, object: &mut Value) {
        object.set(&["spec", "replicas"], 0);
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
        workload::drop_closed(object, None);
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, _: &str) {
        workload::drop_closed(new, Some(old));
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        errors.extend(workload::not_negative(object, "spec", "replicas"));
        errors.extend(workload::not_negative(object, "spec", "minReadySeconds"));
        errors.extend(workload::selector_and_template(
            object,
            "deployment",
            "ReplicaSet",
        ));
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
        errors.extend(workload::immutable_selector(new, old));
        errors
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

/// Checks `status`, which ReplicationControllers have alike.
pub fn status(object: &Value) -> Vec<FieldError> {
    let counters = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    workload::status_counters(object, &counters, &counters[1..4], "readyReplicas")
}
