//! Validation of probes and lifecycle handlers.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::strategy::checks::{invalid_number, not_negative};

/// Checks the lifecycle and the three probes of a container.
pub fn validate(spec: &Value, container: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["postStart", "preStop"] {
        if let Some(one) = container.at(&["lifecycle", name]) {
            let at = path.child("lifecycle").child(name);
            handler(
                spec,
                one,
                &["exec", "httpGet", "tcpSocket", "sleep"],
                &at,
                errors,
            );
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(one) = container.get(name).filter(|probe| !probe.is_null()) {
            probe(spec, one, name, &path.child(name), errors);
        }
    }
}

fn probe(spec: &Value, probe: &Value, name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    handler(
        spec,
        probe,
        &["exec", "httpGet", "tcpSocket", "grpc"],
        path,
        errors,
    );
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        let number = probe.i64_at(&[field]).unwrap_or(0);
        errors.extend(not_negative(number, &path.child(field)));
    }
    let grace = probe.i64_at(&["terminationGracePeriodSeconds"]);
    let grace_path = path.child("terminationGracePeriodSeconds");
    if let Some(seconds) = grace.filter(|seconds| *seconds <= 0) {
        let detail = "must be greater than 0";
        errors.push(FieldError::invalid(&grace_path, seconds, detail));
    }
    if name == "readinessProbe" {
        if let Some(seconds) = grace {
            let detail = "must not be set for readinessProbes";
            errors.push(FieldError::invalid(&grace_path, seconds, detail));
        }
    } else {
        let threshold = probe.i64_at(&["successThreshold"]).unwrap_or(0);
        if threshold != 1 {
            let at = path.child("successThreshold");
            errors.push(FieldError::invalid(&at, threshold, "must be 1"));
        }
    }
}

fn handler(
    spec: &Value,
    handler: &Value,
    kinds: &[&str],
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let mut found = 0;
    for kind in kinds {
        let Some(action) = handler.get(kind).filter(|action| !action.is_null()) else {
            continue;
        };
        let at = path.child(kind);
        if found > 0 {
            let detail = "may not specify more than 1 handler type";
            errors.push(FieldError::forbidden(&at, detail));
            continue;
        }
        found += 1;
        match *kind {
            "exec" if action.list_at(&["command"]).is_empty() => {
                errors.push(FieldError::required(&at.child("command"), ""));
            }
            "httpGet" => http_get(action, &at, errors),
            "tcpSocket" | "grpc" => {
                errors.extend(port(action.get("port"), &at.child("port")));
            }
            "sleep" => {
                let seconds = action.i64_at(&["seconds"]).unwrap_or(0);
                let grace = spec
                    .i64_at(&["terminationGracePeriodSeconds"])
                    .unwrap_or(30);
                if !(0..=grace).contains(&seconds) {
                    let detail = format!(
                        "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                    );
                    errors.push(FieldError::invalid(&at, seconds, detail));
                }
            }
            _ => {}
        }
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn http_get(action: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if action.str_at(&["path"]).is_empty() {
        errors.push(FieldError::required(&path.child("path"), ""));
    }
    errors.extend(port(action.get("port"), &path.child("port")));
    let scheme = action.str_at(&["scheme"]);
    if !matches!(scheme, "HTTP" | "HTTPS") {
        let at = path.child("scheme");
        errors.push(FieldError::not_supported(&at, scheme, &["HTTP", "HTTPS"]));
    }
    for header in action.list_at(&["httpHeaders"]) {
        let name = header.str_at(&["name"]);
        let allowed = |byte: u8| byte == b'-' || byte.is_ascii_alphanumeric();
        if name.is_empty() || !name.bytes().all(allowed) {
            let detail = names::pattern_error(
                "a valid HTTP header must consist of alphanumeric characters or '-'",
                "[-A-Za-z0-9]+",
                &["X-Header-Name"],
            );
            errors.push(FieldError::invalid(
                &path.child("httpHeaders"),
                name,
                detail,
            ));
        }
    }
}

/// A port by number or by name.
pub fn port(port: Option<&Value>, path: &Path) -> Vec<FieldError> {
    match port {
        Some(Value::String(name)) => all_invalid(path, name, names::port_name(name)),
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or(0);
            invalid_number(path, number, names::port_number(number))
        }
    }
}
