//! Validation of an autoscaler's metrics.

use super::{ApiVersion, reference};
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::quantity::Quantity;
use crate::strategy::checks::quantity_text;
use crate::strategy::pod::resources;

const TYPES: [&str; 5] = [
    "ContainerResource",
    "External",
    "Object",
    "Pods",
    "Resource",
];
/// In the order in which they are looked for.
const SOURCES: [&str; 5] = [
    "object",
    "external",
    "pods",
    "resource",
    "containerResource",
];
const UNPOPULATED: &str = "must populate information for the given metric source";

/// Rewrites the quantities of a metric in canonical form.
pub fn canonical(metric: &mut Value) {
    for source in SOURCES {
        for name in ["value", "averageValue"] {
            let at = [source, "target", name];
            if let Some(value) = metric.at_mut(&at)
                && let Ok(quantity) = Quantity::parse(&quantity_text(value))
            {
                *value = quantity.to_string().into();
            }
        }
    }
}

/// Checks `spec.metrics`.
pub fn validate(object: &Value, old: Option<&Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let metrics = object.list_at(&["spec", "metrics"]);
    let described = |metric: &Value| {
        let version = metric.str_at(&["object", "describedObject", "apiVersion"]);
        metric.has(&["object"]) && ApiVersion::Valid.wrong(version).is_some()
    };
    let old_metrics = old.map_or(&[] as &[Value], |old| old.list_at(&["spec", "metrics"]));
    let version = match old_metrics.iter().any(described) {
        true => ApiVersion::Any,
        false => ApiVersion::Valid,
    };
    let mut outside = false;
    for (index, metric) in metrics.iter().enumerate() {
        one(metric, version, &path.index(index), errors);
        outside |= matches!(metric.str_at(&["type"]), "Object" | "External");
    }
    if object.i64_at(&["spec", "minReplicas"]) == Some(0) && !outside {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn one(metric: &Value, version: ApiVersion, path: &Path, errors: &mut Vec<FieldError>) {
    let kind = metric.str_at(&["type"]);
    let at = path.child("type");
    if kind.is_empty() {
        errors.push(FieldError::required(
            &at,
            "must specify a metric source type",
        ));
    }
    let known = TYPES.contains(&kind);
    if !known {
        errors.push(FieldError::not_supported(&at, kind, &TYPES));
    }
    let mut present: Vec<&str> = Vec::new();
    for name in SOURCES {
        let Some(source) = metric.get(name).filter(|value| !value.is_null()) else {
            continue;
        };
        present.push(name);
        if present.len() == 1 {
            self::source(name, source, version, &path.child(name), errors);
        }
    }
    let expected = match kind {
        "ContainerResource" => "containerResource",
        "External" => "external",
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        _ => "",
    };
    if !known {
        errors.push(FieldError::not_supported(&at, kind, &TYPES));
    } else if !present.contains(&expected) {
        errors.push(FieldError::required(&path.child(expected), UNPOPULATED));
    }
    if present.len() != 1 {
        for name in present.into_iter().filter(|name| *name != expected) {
            let detail = "must populate the given metric source only";
            errors.push(FieldError::forbidden(&path.child(name), detail));
        }
    }
}

fn source(
    name: &str,
    source: &Value,
    version: ApiVersion,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let empty = Value::object();
    let target_path = path.child("target");
    let has = |name: &str| source.has(&["target", name]);
    match name {
        "resource" | "containerResource" => {
            let resource = source.str_at(&["name"]);
            if resource.is_empty() {
                let detail = "must specify a resource name";
                errors.push(FieldError::required(&path.child("name"), detail));
            } else if name == "containerResource" {
                errors.extend(resources::container_resource_name(
                    resource,
                    &path.child("name"),
                ));
            }
            if name == "containerResource" {
                let container = source.str_at(&["container"]);
                let at = path.child("container");
                match container {
                    "" => errors.push(FieldError::required(&at, "must specify a container")),
                    _ => errors.extend(all_invalid(&at, container, names::dns_label(container))),
                }
            }
            target(source, &target_path, errors);
            match (has("averageUtilization"), has("averageValue")) {
                (false, false) => errors.push(FieldError::required(
                    &target_path.child("averageUtilization"),
                    "must set either a target raw value or a target utilization",
                )),
                (true, true) => errors.push(FieldError::forbidden(
                    &target_path.child("averageValue"),
                    "may not set both a target raw value and a target utilization",
                )),
                _ => {}
            }
            return;
        }
        "object" => {
            let described = source.get("describedObject").unwrap_or(&empty);
            reference(described, version, &path.child("describedObject"), errors);
        }
        _ => {}
    }
    let metric = source.str_at(&["metric", "name"]);
    let at = path.child("metric").child("name");
    match metric {
        "" => errors.push(FieldError::required(&at, "must specify a metric name")),
        _ => errors.extend(all_invalid(&at, metric, names::path_segment(metric, false))),
    }
    target(source, &target_path, errors);
    let average_path = target_path.child("averageValue");
    let missing = match (name, has("value"), has("averageValue")) {
        ("pods", _, false) => "must specify a positive target averageValue",
        ("object", false, false) => "must set either a target value or averageValue",
        ("external", false, false) => {
            "must set either a target value for metric or a per-pod target"
        }
        ("external", true, true) => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.push(FieldError::forbidden(&target_path.child("value"), detail));
            return;
        }
        _ => return,
    };
    errors.push(FieldError::required(&average_path, missing));
}

fn target(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let kind = source.str_at(&["target", "type"]);
    let at = path.child("type");
    if kind.is_empty() {
        errors.push(FieldError::required(
            &at,
            "must specify a metric target type",
        ));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(&at, kind, detail));
    }
    for name in ["value", "averageValue"] {
        let text = source.str_at(&["target", name]);
        if Quantity::parse(text).is_ok_and(|amount| amount.is_negative() || amount.is_zero()) {
            errors.push(FieldError::invalid(
                &path.child(name),
                text,
                "must be positive",
            ));
        }
    }
    if let Some(percent) = source.i64_at(&["target", "averageUtilization"])
        && percent < 1
    {
        let at = path.child("averageUtilization");
        errors.push(FieldError::invalid(&at, percent, "must be greater than 0"));
    }
}
