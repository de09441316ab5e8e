//! Events of `events.k8s.io` and of the core group: the same object under other names.

use crate::document::Value;

/// The names of the core group and of `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

pub fn to_core(event: &mut Value) {
    rename(event, NAMES.map(|(core, other)| (other, core)));
}

pub fn from_core(event: &mut Value) {
    rename(event, NAMES);
}

/// The core group's name of a field that `events.k8s.io` can select by.
pub fn selectable_field(field: &str) -> Option<&str> {
    Some(match field {
        "reason" | "type" | "metadata.name" | "metadata.namespace" => field,
        "reportingController" => "reportingComponent",
        "regarding.kind" => "involvedObject.kind",
        "regarding.namespace" => "involvedObject.namespace",
        "regarding.name" => "involvedObject.name",
        "regarding.uid" => "involvedObject.uid",
        "regarding.apiVersion" => "involvedObject.apiVersion",
        "regarding.resourceVersion" => "involvedObject.resourceVersion",
        "regarding.fieldPath" => "involvedObject.fieldPath",
        _ => return None,
    })
}

fn rename(event: &mut Value, names: [(&str, &str); 7]) {
    for (from, to) in names {
        if let Some(value) = event.remove(&[from]) {
            event.set(&[to], value);
        }
    }
}
