//! Deployments.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::resource::{Strategy, generic};
use crate::strategy::checks;
use crate::strategy::{int_or_percent, workload};

pub struct Deployment;

impl Strategy for Deployment {
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
        object.set_default(&["spec", "strategy", "type"], "RollingUpdate");
        if object.str_at(&["spec", "strategy", "type"]) == "RollingUpdate" {
            for name in ["maxSurge", "maxUnavailable"] {
                object.set_missing(&["spec", "strategy", "rollingUpdate", name], "25%");
            }
        }
        object.set_default(&["spec", "revisionHistoryLimit"], 10);
        object.set_default(&["spec", "progressDeadlineSeconds"], 600);
        workload::default_template(object);
    }

    fn prepare_create_content(&self, object: &mut Value) {
        workload::drop_closed(object, None);
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        workload::drop_closed(new, Some(old));
        if subresource == "status" {
            generic::keep_field(new, old, &["metadata", "labels"]);
        }
        // Annotations travel to the ReplicaSets, so they count as a change of the desired state.
        let at = ["metadata", "annotations"];
        let same_spec = !generic::desired_state_changed(new, old);
        if subresource.is_empty() && same_spec && new.at(&at) != old.at(&at) {
            let generation = old.i64_at(&["metadata", "generation"]).unwrap_or(0);
            new.set(&["metadata", "generation"], generation + 1);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec");
        let mut errors = Vec::new();
        errors.extend(workload::not_negative(object, "spec", "replicas"));
        errors.extend(workload::selector_and_template(
            object,
            "deployment",
            "ReplicaSet",
        ));
        rollout(object, &path.child("strategy"), &mut errors);
        errors.extend(workload::not_negative(object, "spec", "minReadySeconds"));
        errors.extend(workload::not_negative(
            object,
            "spec",
            "revisionHistoryLimit",
        ));
        if let Some(deadline) = object.i64_at(&["spec", "progressDeadlineSeconds"]) {
            let at = path.child("progressDeadlineSeconds");
            errors.extend(checks::not_negative(deadline, &at));
            if deadline <= object.i64_at(&["spec", "minReadySeconds"]).unwrap_or(0) {
                let detail = "must be greater than minReadySeconds";
                errors.push(FieldError::invalid(&at, deadline, detail));
            }
        }
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource == "status" {
            return status(new, old);
        }
        let mut errors = self.validate_content(new);
        errors.extend(workload::immutable_selector(new, old));
        errors
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let status = |name: &str| object.i64_at(&["status", name]).unwrap_or(0);
        let desired = object.i64_at(&["spec", "replicas"]).unwrap_or(0);
        let [containers, images] = workload::container_cells(object);
        vec![
            object.str_at(&["metadata", "name"]).into(),
            format!("{}/{desired}", status("readyReplicas")).into(),
            status("updatedReplicas").into(),
            status("availableReplicas").into(),
            object_age(object, now).into(),
            containers,
            images,
            // One that is not there selects nothing, and is shown as nothing.
            match object.has(&["spec", "selector"]) {
                true => workload::selector_cell(object),
                false => "".into(),
            },
        ]
    }
}

fn rollout(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let strategy = object.at(&["spec", "strategy"]);
    let rolling = object.at(&["spec", "strategy", "rollingUpdate"]);
    let rolling = rolling.filter(|value| !value.is_null());
    let at = path.child("rollingUpdate");
    match (object.str_at(&["spec", "strategy", "type"]), rolling) {
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(&at, detail));
        }
        ("Recreate", None) => {}
        ("RollingUpdate", None) => {
            let detail = "this should be defaulted and never be nil";
            errors.push(FieldError::required(&at, detail));
        }
        ("RollingUpdate", Some(rolling)) => rolling_update(rolling, &at, errors),
        _ => {
            let value = int_or_percent::shown_strategy(strategy);
            let supported = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported(path, value, &supported));
        }
    }
}

fn rolling_update(rolling: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["maxUnavailable", "maxSurge"] {
        if let Some(value) = rolling.get(name) {
            errors.extend(int_or_percent::validate(value, &path.child(name)));
        }
    }
    let amount = |name: &str| int_or_percent::amount(rolling.get(name));
    let at = path.child("maxUnavailable");
    let value = rolling.get("maxUnavailable").cloned().unwrap_or_default();
    if amount("maxUnavailable") == 0 && amount("maxSurge") == 0 {
        let detail = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(&at, value.clone(), detail));
    }
    errors.extend(int_or_percent::above_hundred(&value, &at));
}

/// Checks an update of `status`.
fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let counters = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    let below = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    let mut errors = workload::status_counters(new, &counters, &below, "readyReplicas");
    errors.extend(workload::decremented_collisions(new, old));
    errors
}
