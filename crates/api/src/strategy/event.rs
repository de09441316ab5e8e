//! Events of the core group.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names::NameRule;
use crate::metadata::{all_invalid, immutable, names};
use crate::strategy::{MetadataChecks, Strategy, generic};
use crate::table::duration::age;

pub struct Event;

impl Strategy for Event {
    fn namespaced(&self) -> bool {
        true
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let namespace = object.str_at(&["metadata", "namespace"]);
        let involved = object.str_at(&["involvedObject", "namespace"]);
        let new_style = object.has(&["eventTime"]);
        let matches = match (new_style, involved) {
            (false, "") => matches!(namespace, "" | "default"),
            (false, _) => namespace == involved,
            (true, "") => matches!(namespace, "default" | "kube-system"),
            (true, _) => true,
        };
        if !matches {
            let at = Path::new("involvedObject").child("namespace");
            let detail = "does not match event.namespace";
            errors.push(FieldError::invalid(&at, involved, detail));
        }
        if new_style {
            reported(object, &mut errors);
        }
        let wrong = names::dns_subdomain(namespace);
        errors.extend(all_invalid(&Path::new("namespace"), namespace, wrong));
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::NONE
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let mut fields = generic::metadata_fields(object, true);
        let involved = |name: &str| object.str_at(&["involvedObject", name]).to_string();
        let text = |name: &str| object.str_at(&[name]).to_string();
        let source = match object.str_at(&["source", "component"]) {
            "" => text("reportingComponent"),
            component => component.to_string(),
        };
        fields.extend([
            ("involvedObject.kind", involved("kind")),
            ("involvedObject.namespace", involved("namespace")),
            ("involvedObject.name", involved("name")),
            ("involvedObject.uid", involved("uid")),
            ("involvedObject.apiVersion", involved("apiVersion")),
            (
                "involvedObject.resourceVersion",
                involved("resourceVersion"),
            ),
            ("involvedObject.fieldPath", involved("fieldPath")),
            ("reason", text("reason")),
            ("reportingComponent", text("reportingComponent")),
            ("source", source),
            ("type", text("type")),
        ]);
        fields
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let first = match object.str_at(&["firstTimestamp"]) {
            "" => object.str_at(&["eventTime"]),
            time => time,
        };
        let series = object.has(&["series"]);
        let last = match object.str_at(&["lastTimestamp"]) {
            _ if series => object.str_at(&["series", "lastObservedTime"]),
            "" => first,
            time => time,
        };
        let count = match series {
            true => object.i64_at(&["series", "count"]).unwrap_or(0),
            false => object.i64_at(&["count"]).unwrap_or(0).max(1),
        };
        let kind = object.str_at(&["involvedObject", "kind"]).to_lowercase();
        let target = match object.str_at(&["involvedObject", "name"]) {
            "" => kind,
            name => format!("{kind}/{name}"),
        };
        vec![
            age(last, now).into(),
            object.str_at(&["type"]).into(),
            object.str_at(&["reason"]).into(),
            target.into(),
            object.str_at(&["involvedObject", "fieldPath"]).into(),
            source(object).into(),
            object.str_at(&["message"]).trim().into(),
            age(first, now).into(),
            count.into(),
            object.str_at(&["metadata", "name"]).into(),
        ]
    }
}

/// What a request by way of `events.k8s.io/v1` must also heed, in the fields of the stored version.
/// `old` is there for updates.
pub fn validate_strictly(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match old {
        None => strict_create(new),
        Some(old) => strict_update(new, old),
    }
}

fn strict_create(object: &Value) -> Vec<FieldError> {
    let mut errors = series(object);
    if !object.has(&["eventTime"]) {
        errors.push(FieldError::required(&Path::new("eventTime"), ""));
    }
    let mut unset = |name: &str, detail: String| {
        errors.push(FieldError::invalid(&Path::new(name), "", detail));
    };
    let kind = object.str_at(&["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        unset("type", format!("has invalid value: {kind}"));
    }
    for name in ["firstTimestamp", "lastTimestamp"] {
        if object.has(&[name]) {
            unset(name, "needs to be unset".to_string());
        }
    }
    if object.i64_at(&["count"]).unwrap_or(0) != 0 {
        unset("count", "needs to be unset".to_string());
    }
    let source = |name: &str| object.str_at(&["source", name]);
    if !source("component").is_empty() || !source("host").is_empty() {
        unset("source", "needs to be unset".to_string());
    }
    errors
}

fn strict_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = match new.get("series") == old.get("series") {
        true => Vec::new(),
        false => series(new),
    };
    for (name, shown) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let error = immutable(new.get(name), old.get(name), &Path::new(shown));
        errors.extend(error);
    }
    errors
}

fn series(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object.has(&["series"]) {
        if object.i64_at(&["series", "count"]).unwrap_or(0) < 2 {
            let path = Path::new("series").child("count");
            errors.push(FieldError::invalid(&path, "", "should be at least 2"));
        }
        if !object.has(&["series", "lastObservedTime"]) {
            let path = Path::new("series").child("lastObservedTime");
            errors.push(FieldError::required(&path, ""));
        }
    }
    errors
}

/// What an event with `eventTime` must say about its reporter.
fn reported(object: &Value, errors: &mut Vec<FieldError>) {
    let controller = object.str_at(&["reportingComponent"]);
    let path = Path::new("reportingComponent");
    if controller.is_empty() {
        errors.push(FieldError::required(&path, ""));
    }
    errors.extend(all_invalid(
        &path,
        controller,
        names::qualified_name(controller),
    ));
    for (name, most) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let text = object.str_at(&[name]);
        if text.is_empty() {
            errors.push(FieldError::required(&Path::new(name), ""));
        }
        errors.extend(too_long(name, text, most));
    }
    errors.extend(too_long("message", object.str_at(&["message"]), 1024));
}

fn too_long(name: &str, text: &str, most: usize) -> Option<FieldError> {
    let detail = format!("can have at most {most} characters");
    (text.len() > most).then(|| FieldError::invalid(&Path::new(name), "", detail))
}

fn source(object: &Value) -> String {
    let either = |old: &[&str], new: &str| match object.str_at(old) {
        "" => object.str_at(&[new]).to_string(),
        text => text.to_string(),
    };
    let component = either(&["source", "component"], "reportingComponent");
    let instance = either(&["source", "host"], "reportingInstance");
    match instance.is_empty() {
        true => component,
        false => format!("{component}, {instance}"),
    }
}
