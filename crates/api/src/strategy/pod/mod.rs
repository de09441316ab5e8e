//! Pods.

pub mod affinity;
pub mod annotations;
pub mod cells;
mod container_lists;
pub mod containers;
pub mod defaults;
mod environment;
pub mod gates;
mod level_resources;
pub mod probes;
pub mod qos;
mod resize;
pub mod resources;
mod security;
mod status;
pub mod tolerations;
pub mod update;
pub mod validate;
pub mod volume_sources;
mod volumes;
mod windows;

#[cfg(test)]
mod tests;

use crate::document::Value;
use crate::field::FieldError;
use crate::resource::{MetadataChecks, Strategy, generic};

pub struct Pod;

impl Strategy for Pod {
    fn returns_deleted(&self) -> bool {
        true
    }

    fn is_traced(&self) -> bool {
        true
    }

    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        defaults::pod(object);
        let grace = ["spec", "terminationGracePeriodSeconds"];
        if object.i64_at(&grace).is_some_and(|seconds| seconds < 0) {
            object.set(&grace, 1);
        }
    }

    fn prepare_create_content(&self, object: &mut Value) {
        drop_closed(object, None);
        object.set(&["status", "phase"], "Pending");
        object.set(&["status", "qosClass"], qos::class(object));
        if !object.list_at(&["spec", "schedulingGates"]).is_empty() {
            let now = object.str_at(&["metadata", "creationTimestamp"]);
            let condition = crate::document!({
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null, "lastTransitionTime": now,
            });
            object.set(&["status", "conditions"], vec![condition]);
        }
        affinity::merge_label_keys(object);
        annotations::apply_profiles(object);
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        match subresource {
            "status" => {
                generic::keep_field(new, old, &["metadata", "ownerReferences"]);
                if new.str_at(&["status", "qosClass"]).is_empty() {
                    generic::keep_field(new, old, &["status", "qosClass"]);
                }
                status::prepare(new, old);
            }
            "resize" => resize::prepare(new, old),
            "ephemeralcontainers" => resize::prepare_ephemeral(new, old),
            _ => {}
        }
        drop_closed(new, Some(old));
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate::pod(object);
        errors.extend(validate::pod_create(object));
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "status" => status::validate_update(new, old),
            "" => update::spec(new, old),
            "resize" => resize::validate(new, old),
            "ephemeralcontainers" => resize::validate_ephemeral(new, old),
            _ => Vec::new(),
        }
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        match subresource {
            "status" => MetadataChecks::CHANGE,
            _ => MetadataChecks::BOTH,
        }
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let text = |path: &[&str]| object.str_at(path).to_string();
        let mut fields = generic::metadata_fields(object, true);
        let host_network = object.bool_at(&["spec", "hostNetwork"]);
        fields.extend([
            ("spec.nodeName", text(&["spec", "nodeName"])),
            ("spec.restartPolicy", text(&["spec", "restartPolicy"])),
            ("spec.schedulerName", text(&["spec", "schedulerName"])),
            (
                "spec.serviceAccountName",
                text(&["spec", "serviceAccountName"]),
            ),
            ("spec.hostNetwork", host_network.to_string()),
            ("status.phase", text(&["status", "phase"])),
            ("status.podIP", text(&["status", "podIP"])),
            (
                "status.nominatedNodeName",
                text(&["status", "nominatedNodeName"]),
            ),
        ]);
        fields
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        cells::cells(object, now)
    }

    fn graceful_delete(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        let own = object.i64_at(&["spec", "terminationGracePeriodSeconds"]);
        let unscheduled = object.str_at(&["spec", "nodeName"]).is_empty();
        let finished = matches!(object.str_at(&["status", "phase"]), "Failed" | "Succeeded");
        Some(match requested.or(own).unwrap_or(0) {
            _ if unscheduled || finished => 0,
            ..0 => 1,
            seconds => seconds,
        })
    }
}

fn drop_closed(pod: &mut Value, old: Option<&Value>) {
    if let Some(spec) = pod.get_mut("spec") {
        gates::drop_closed(spec, old.and_then(|old| old.get("spec")));
    }
}
