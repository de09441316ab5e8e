//! Validation of a container's environment variables and their sources.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names::{self, NameRule};
use crate::quantity::Quantity;
use crate::strategy::checks::{no_backsteps, quantity_text};

const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

const CPU_DIVISORS: [&str; 2] = ["1m", "1"];
const DIVISORS: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// Checks `env`.
pub fn variables(variables: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    for (index, variable) in variables.iter().enumerate() {
        let at = path.index(index);
        let name = variable.str_at(&["name"]);
        match name {
            "" => errors.push(FieldError::required(&at.child("name"), "")),
            _ => errors.extend(all_invalid(
                &at.child("name"),
                name,
                names::environment_name(name),
            )),
        }
        if let Some(from) = variable.get("valueFrom").filter(|from| !from.is_null()) {
            value_from(variable, from, &at.child("valueFrom"), errors);
        }
    }
}

/// Checks `envFrom`.
pub fn sources(sources: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    for (index, source) in sources.iter().enumerate() {
        let at = path.index(index);
        let prefix = source.str_at(&["prefix"]);
        if !prefix.is_empty() {
            let wrong = names::environment_name(prefix);
            errors.extend(all_invalid(&at.child("prefix"), prefix, wrong));
        }
        let mut found = 0;
        for kind in ["configMapRef", "secretRef"] {
            let Some(reference) = source.get(kind).filter(|value| !value.is_null()) else {
                continue;
            };
            found += 1;
            let name = reference.str_at(&["name"]);
            let at = at.child(kind).child("name");
            match name {
                "" => errors.push(FieldError::required(&at, "")),
                _ => {
                    let wrong = NameRule::DnsSubdomain.check(name, true);
                    errors.extend(all_invalid(&at, name, wrong));
                }
            }
        }
        let detail = match found {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.push(FieldError::invalid(path, "", detail));
    }
}

/// Checks a reference to a field of the Pod.
pub fn field_reference(
    reference: &Value,
    supported: &[&str],
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let field = reference.str_at(&["fieldPath"]);
    if reference.str_at(&["apiVersion"]).is_empty() {
        errors.push(FieldError::required(&path.child("apiVersion"), ""));
        return;
    }
    let at = path.child("fieldPath");
    if field.is_empty() {
        errors.push(FieldError::required(&at, ""));
        return;
    }
    let subscript = field
        .strip_suffix("']")
        .and_then(|field| field.split_once("['"));
    match subscript {
        Some(("metadata.annotations", key)) => {
            let wrong = names::qualified_name(&key.to_lowercase());
            errors.extend(all_invalid(path, key, wrong));
        }
        Some(("metadata.labels", key)) => {
            errors.extend(all_invalid(path, key, names::qualified_name(key)));
        }
        Some(_) => {
            let detail = format!(
                "error converting fieldPath: field label does not support subscript: {field}"
            );
            errors.push(FieldError::invalid(&at, field, detail));
        }
        None if supported.contains(&field) => {}
        None if known_field(field) => {
            errors.push(FieldError::not_supported(&at, field, supported));
        }
        None => {
            let detail = format!("error converting fieldPath: field label not supported: {field}");
            errors.push(FieldError::invalid(&at, field, detail));
        }
    }
}

/// Checks a reference to a container's requests or limits.
pub fn resource_reference(
    reference: &Value,
    in_volume: bool,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let resource = reference.str_at(&["resource"]);
    let huge_pages =
        resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if in_volume && reference.str_at(&["containerName"]).is_empty() {
        errors.push(FieldError::required(&path.child("containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(&path.child("resource"), ""));
    } else if !RESOURCE_FIELDS.contains(&resource) && !huge_pages {
        let at = path.child("resource");
        errors.push(FieldError::not_supported(&at, resource, &RESOURCE_FIELDS));
    }
    divisor(reference, resource, &path.child("divisor"), errors);
}

fn divisor(reference: &Value, resource: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(Ok(divisor)) = reference
        .get("divisor")
        .map(|value| Quantity::parse(&quantity_text(value)))
    else {
        return;
    };
    if divisor.is_zero() {
        return;
    }
    let text = divisor.to_string();
    let word = match resource.split_once('.') {
        Some((_, "cpu")) => "cpu",
        Some((_, "memory")) => "memory",
        Some((_, "ephemeral-storage")) => "local ephemeral storage",
        Some((_, name)) if name.starts_with("hugepages-") => "hugepages",
        _ => return,
    };
    let supported = match word {
        "cpu" => CPU_DIVISORS.as_slice(),
        _ => DIVISORS.as_slice(),
    };
    if !supported.contains(&text.as_str()) {
        let supported = match word {
            "cpu" => "1m and 1".to_string(),
            _ => DIVISORS.join(", "),
        };
        let detail =
            format!("only divisor's values {supported} are supported with the {word} resource");
        errors.push(FieldError::invalid(path, resource, detail));
    }
}

fn file_reference(reference: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let text = |name: &str| reference.str_at(&[name]);
    for name in ["key", "volumeName", "path"] {
        let (value, at) = (text(name), path.child(name));
        if value.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        match name {
            "key" => errors.extend(all_invalid(&at, value, names::environment_name(value))),
            "volumeName" => errors.extend(all_invalid(&at, value, names::dns_label(value))),
            _ => errors.extend(no_backsteps(value, &at)),
        }
    }
}

fn value_from(variable: &Value, from: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let mut found = 0;
    for kind in [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ] {
        let Some(reference) = from.get(kind).filter(|value| !value.is_null()) else {
            continue;
        };
        found += 1;
        let at = path.child(kind);
        match kind {
            "fieldRef" => field_reference(reference, &VARIABLE_FIELDS, &at, errors),
            "resourceFieldRef" => resource_reference(reference, false, &at, errors),
            "configMapKeyRef" | "secretKeyRef" => key_reference(reference, &at, errors),
            _ => file_reference(reference, &at, errors),
        }
    }
    let detail = match found {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !variable.str_at(&["value"]).is_empty() => {
            "may not be specified when `value` is not empty"
        }
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(path, "", detail));
}

fn key_reference(reference: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let name = reference.str_at(&["name"]);
    let wrong = names::dns_subdomain(name);
    errors.extend(all_invalid(&path.child("name"), name, wrong));
    let key = reference.str_at(&["key"]);
    match key {
        "" => errors.push(FieldError::required(&path.child("key"), "")),
        _ => errors.extend(all_invalid(&path.child("key"), key, names::config_key(key))),
    }
}

/// Fields that exist for the downward API, whether or not they are served everywhere.
fn known_field(field: &str) -> bool {
    VARIABLE_FIELDS.contains(&field)
        || matches!(
            field,
            "metadata.annotations" | "metadata.labels" | "spec.restartPolicy" | "status.phase"
        )
}
