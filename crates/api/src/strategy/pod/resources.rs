//! Validation of requests and limits.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::quantity::Quantity;

/// Checks `{requests, limits}` of a container.
pub fn validate(resources: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["limits", "requests"] {
        let list_path = path.child(list);
        for (name, value) in resources.fields_at(&[list]) {
            let at = list_path.key(name);
            errors.extend(container_resource_name(name, &at));
            errors.extend(quantity_value(name, value, &at));
        }
    }
    let requests_path = path.child("requests");
    for (name, value) in resources.fields_at(&["requests"]) {
        let limit = resources.at(&["limits", name]);
        match (parsed(value), limit.map(parsed)) {
            (Some(request), Some(Some(limit))) => {
                let detail = if request != limit && !overcommit_allowed(name) {
                    format!("must be equal to {name} limit of {limit}")
                } else if request > limit {
                    format!("must be less than or equal to {name} limit of {limit}")
                } else {
                    continue;
                };
                let request = request.to_string();
                errors.push(FieldError::invalid(&requests_path, request, detail));
            }
            (_, None) if !overcommit_allowed(name) => errors.push(FieldError::required(
                &path.child("limits"),
                "Limit must be set for non overcommitable resources",
            )),
            _ => {}
        }
    }
    let any = |wanted: fn(&str) -> bool| {
        ["limits", "requests"]
            .iter()
            .any(|list| resources.fields_at(&[list]).any(|(name, _)| wanted(name)))
    };
    if any(|name| name.starts_with("hugepages-")) && !any(|name| matches!(name, "cpu" | "memory")) {
        errors.push(FieldError::forbidden(
            path,
            "HugePages require cpu or memory",
        ));
    }
    errors
}

/// Checks one amount: a quantity, not negative, whole where fractions make no sense.
pub fn quantity_value(name: &str, value: &Value, path: &Path) -> Vec<FieldError> {
    let Some(quantity) = parsed(value) else {
        let detail = match value.as_str().map(Quantity::parse) {
            Some(Err(error)) => error.to_string(),
            _ => "must be a valid resource quantity".to_string(),
        };
        return vec![FieldError::invalid(path, value.clone(), detail)];
    };
    let mut errors = Vec::new();
    if quantity.is_negative() {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path, quantity.to_string(), detail));
    }
    let counted = name == "pods" || name.contains('/') && !native(name);
    if counted && !quantity.is_integer() {
        let detail = "must be an integer";
        errors.push(FieldError::invalid(path, quantity.to_string(), detail));
    }
    errors
}

fn parsed(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Integer(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

fn container_resource_name(name: &str, path: &Path) -> Vec<FieldError> {
    let wrong = names::qualified_name(name);
    if !wrong.is_empty() {
        let mut errors = all_invalid(path, name, wrong);
        if !name.contains('/') {
            let detail = "must be a standard resource for containers";
            errors.push(FieldError::invalid(path, name, detail));
        }
        return errors;
    }
    if name.contains('/') {
        if !native(name) && name.starts_with("requests.") {
            let detail = "doesn't follow extended resource name standard";
            return vec![FieldError::invalid(path, name, detail)];
        }
        return Vec::new();
    }
    let mut errors = Vec::new();
    if matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
        return errors;
    }
    if !standard(name) {
        let detail = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, name, detail));
    }
    let detail = "must be a standard resource for containers";
    errors.push(FieldError::invalid(path, name, detail));
    errors
}

/// Names without a domain that stand for something in some kind of object.
fn standard(name: &str) -> bool {
    matches!(
        name.strip_prefix("requests.")
            .or(name.strip_prefix("limits."))
            .unwrap_or(name),
        "cpu"
            | "memory"
            | "ephemeral-storage"
            | "storage"
            | "pods"
            | "services"
            | "secrets"
            | "configmaps"
            | "resourcequotas"
            | "replicationcontrollers"
            | "persistentvolumeclaims"
            | "services.nodeports"
            | "services.loadbalancers"
    ) || name.contains("hugepages-")
}

fn native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn overcommit_allowed(name: &str) -> bool {
    native(name) && !name.starts_with("hugepages-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn requests_and_limits() {
        let check = |resources: Value, expected: &[&str]| {
            let errors = validate(&resources, &Path::new("r"));
            let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
            assert_eq!(texts, expected, "{resources}");
        };
        check(
            document!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}),
            &[],
        );
        check(
            document!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            &[r#"r.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#],
        );
        check(
            document!({"limits": {"cpu": "-1"}}),
            &[r#"r.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0"#],
        );
        check(
            document!({"requests": {"gpu": "1"}}),
            &[
                r#"r.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified"#,
                r#"r.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers"#,
            ],
        );
        check(
            document!({"requests": {"example.com/gpu": "1"}}),
            &["r.limits: Required value: Limit must be set for non overcommitable resources"],
        );
        check(
            document!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}),
            &[r#"r.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2"#],
        );
        check(
            document!({"limits": {"example.com/gpu": "1500m"}}),
            &[r#"r.limits[example.com/gpu]: Invalid value: "1500m": must be an integer"#],
        );
        check(
            document!({"limits": {"cpu": "much"}}),
            &[
                r#"r.limits[cpu]: Invalid value: "much": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"#,
            ],
        );
    }
}
