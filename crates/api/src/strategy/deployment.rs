//! Deployments.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::immutable;
use crate::metadata::names::pattern_error;
use crate::strategy::{Strategy, generic, pod, workload};
use crate::table::duration::object_age;

pub struct Deployment;

impl Strategy for Deployment {
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
        object.set_default(&["spec", "strategy", "type"], "RollingUpdate");
        if object.str_at(&["spec", "strategy", "type"]) == "RollingUpdate" {
            for name in ["maxSurge", "maxUnavailable"] {
                object.set_default(&["spec", "strategy", "rollingUpdate", name], "25%");
            }
        }
        object.set_default(&["spec", "revisionHistoryLimit"], 10);
        object.set_default(&["spec", "progressDeadlineSeconds"], 600);
        workload::default_template(object);
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
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
        errors.extend(workload::selector_and_template(object));
        rollout(object, &path.child("strategy"), &mut errors);
        errors.extend(workload::not_negative(object, "spec", "minReadySeconds"));
        errors.extend(workload::not_negative(
            object,
            "spec",
            "revisionHistoryLimit",
        ));
        if let Some(deadline) = object.i64_at(&["spec", "progressDeadlineSeconds"]) {
            let at = path.child("progressDeadlineSeconds");
            errors.extend(pod::probes::not_negative(deadline, &at));
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
            return status(new);
        }
        let mut errors = self.validate_content(new);
        let at = ["spec", "selector"];
        let path = Path::new("spec").child("selector");
        errors.extend(immutable(new.at(&at), old.at(&at), &path));
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
            workload::selector_cell(object),
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
            let value = strategy.cloned().unwrap_or_default();
            let supported = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported(path, value, &supported));
        }
    }
}

fn rolling_update(rolling: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["maxUnavailable", "maxSurge"] {
        let at = path.child(name);
        match rolling.get(name) {
            Some(Value::String(text)) if percent(text).is_none() => {
                let detail = pattern_error(
                    "a valid percent string must be a numeric string followed by an ending '%'",
                    "[0-9]+%",
                    &["1%", "93%"],
                );
                errors.push(FieldError::invalid(&at, text.as_str(), detail));
            }
            Some(Value::Integer(number)) => {
                errors.extend(pod::probes::not_negative(*number, &at));
            }
            _ => {}
        }
    }
    let amount = |name: &str| match rolling.get(name) {
        Some(Value::String(text)) => percent(text).unwrap_or(0),
        Some(number) => number.as_i64().unwrap_or(0),
        None => 0,
    };
    let at = path.child("maxUnavailable");
    let value = rolling.get("maxUnavailable").cloned().unwrap_or_default();
    if amount("maxUnavailable") == 0 && amount("maxSurge") == 0 {
        let detail = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(&at, value.clone(), detail));
    }
    if value
        .as_str()
        .and_then(percent)
        .is_some_and(|value| value > 100)
    {
        errors.push(FieldError::invalid(
            &at,
            value,
            "must not be greater than 100%",
        ));
    }
}

fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// Checks `status`.
fn status(object: &Value) -> Vec<FieldError> {
    let path = Path::new("status");
    let number = |name: &str| object.i64_at(&["status", name]).unwrap_or(0);
    let mut errors = Vec::new();
    for name in [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ] {
        errors.extend(workload::not_negative(object, "status", name));
    }
    for name in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
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
