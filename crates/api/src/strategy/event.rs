//! Events of the core group. Those of `events.k8s.io` are converted and validated more strictly.

use std::time::Duration;

use crate::age::age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names::NameRule;
use crate::metadata::{self, Rules, all_invalid, immutable, names};
use crate::resource::{Dependents, MetadataChecks, Strategy, generic};

pub struct Event {
    /// Whether they come through `events.k8s.io`.
    pub strict: bool,
}

impl Strategy for Event {
    /// An hour.
    fn time_to_live(&self) -> Option<Duration> {
        Some(Duration::from_secs(3600))
    }

    fn has_watch_cache(&self) -> bool {
        false
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn dependents(&self) -> Dependents {
        Dependents::None
    }

    fn metadata_rules(&self) -> Rules {
        Rules {
            known_finalizers: false,
            ..Rules::new(true, NameRule::PathSegment)
        }
    }

    /// The metadata is validated only if the rest is valid.
    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        match self.validate_content(object) {
            errors if errors.is_empty() => metadata::validate(object, self.metadata_rules()),
            errors => errors,
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_leniently(object);
        if self.strict {
            strictly(object, &mut errors);
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        if !self.strict {
            return self.validate_content(new);
        }
        let mut errors = self.validate_leniently(new);
        errors.extend(metadata::validate_update(new, old));
        if new.get("series") != old.get("series") {
            series(new, &mut errors);
        }
        for name in [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "reason",
            "type",
            "eventTime",
            "action",
            "related",
            "reportingComponent",
            "reportingInstance",
        ] {
            let path = Path::new(match name {
                "reportingComponent" => "reportingController",
                _ => name,
            });
            let (new, old) = (shown(new, name), shown(old, name));
            errors.extend(immutable(Some(&new), Some(&old), &path));
        }
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

impl Event {
    fn validate_leniently(&self, object: &Value) -> Vec<FieldError> {
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
            reported(object, self.strict, &mut errors);
        }
        let wrong = names::dns_subdomain(namespace);
        errors.extend(all_invalid(&Path::new("namespace"), namespace, wrong));
        errors
    }
}

/// A field in the format of upstream's errors: its internal type with Go's names.
fn shown(event: &Value, name: &str) -> Value {
    let empty = Value::object();
    match name {
        "involvedObject" => {
            let object = event.get(name).unwrap_or(&empty);
            crate::document!({
                "Kind": object.str_at(&["kind"]), "Namespace": object.str_at(&["namespace"]),
                "Name": object.str_at(&["name"]), "UID": object.str_at(&["uid"]),
                "APIVersion": object.str_at(&["apiVersion"]),
                "ResourceVersion": object.str_at(&["resourceVersion"]),
                "FieldPath": object.str_at(&["fieldPath"]),
            })
        }
        "reason" | "message" | "type" | "action" | "reportingComponent" | "reportingInstance" => {
            event.str_at(&[name]).into()
        }
        "count" => event.i64_at(&[name]).unwrap_or(0).into(),
        _ => event.get(name).cloned().unwrap_or_default(),
    }
}

/// Additional validation of new events of `events.k8s.io`.
fn strictly(object: &Value, errors: &mut Vec<FieldError>) {
    let rules = Rules::new(true, NameRule::DnsSubdomain);
    errors.extend(metadata::validate(object, rules));
    series(object, errors);
    if !object.has(&["eventTime"]) {
        errors.push(FieldError::required(&Path::new("eventTime"), ""));
    }
    let kind = object.str_at(&["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        let detail = format!("has invalid value: {kind}");
        errors.push(FieldError::invalid(&Path::new("type"), "", detail));
    }
    let count = object.i64_at(&["count"]).unwrap_or(0) != 0;
    let source = ["component", "host"]
        .iter()
        .any(|name| !object.str_at(&["source", name]).is_empty());
    for (name, set) in [
        ("firstTimestamp", object.has(&["firstTimestamp"])),
        ("lastTimestamp", object.has(&["lastTimestamp"])),
        ("count", count),
        ("source", source),
    ] {
        if set {
            errors.push(FieldError::invalid(
                &Path::new(name),
                "",
                "needs to be unset",
            ));
        }
    }
}

fn series(object: &Value, errors: &mut Vec<FieldError>) {
    if !object.has(&["series"]) {
        return;
    }
    if object.i64_at(&["series", "count"]).unwrap_or(0) < 2 {
        let at = Path::new("series.count");
        errors.push(FieldError::invalid(&at, "", "should be at least 2"));
    }
    if !object.has(&["series", "lastObservedTime"]) {
        errors.push(FieldError::required(
            &Path::new("series.lastObservedTime"),
            "",
        ));
    }
}

/// Validates the reporter of an event with `eventTime`.
fn reported(object: &Value, strict: bool, errors: &mut Vec<FieldError>) {
    let controller = object.str_at(&["reportingComponent"]);
    let path = Path::new(match strict {
        true => "reportingController",
        false => "reportingComponent",
    });
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
