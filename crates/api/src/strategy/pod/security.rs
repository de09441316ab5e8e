//! Validation of the security contexts of Pods and containers.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names;
use crate::strategy::pod::containers::numbers;
use crate::strategy::pod::volumes::local_path;

const HIGHEST_ID: i64 = i32::MAX as i64;

/// Checks the security context of a Pod.
pub fn pod(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(context) = spec.get("securityContext") else {
        return;
    };
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        identity(context, name, path, errors);
    }
    for (index, group) in context.list_at(&["supplementalGroups"]).iter().enumerate() {
        let number = group.as_i64().unwrap_or(0);
        let at = path.child("supplementalGroups").index(index);
        errors.extend(numbers(&at, number, names::in_range(number, 0, HIGHEST_ID)));
    }
    if spec.bool_at(&["hostPID"]) && spec.bool_at(&["shareProcessNamespace"]) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        let at = path.child("shareProcessNamespace");
        errors.push(FieldError::invalid(&at, true, detail));
    }
    let policy = context.str_at(&["fsGroupChangePolicy"]);
    if !matches!(policy, "" | "Always" | "OnRootMismatch") {
        let at = path.child("fsGroupChangePolicy");
        let supported = ["Always", "OnRootMismatch"];
        errors.push(FieldError::not_supported(&at, policy, &supported));
    }
    seccomp(context, path, errors);
}

/// Checks the security context of a container.
pub fn container(context: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["runAsUser", "runAsGroup"] {
        identity(context, name, path, errors);
    }
    let mount = context.str_at(&["procMount"]);
    if !matches!(mount, "" | "Default" | "Unmasked") {
        let supported = ["Default", "Unmasked"];
        let at = path.child("procMount");
        errors.push(FieldError::not_supported(&at, mount, &supported));
    }
    seccomp(context, path, errors);
    let escalation = context
        .get("allowPrivilegeEscalation")
        .and_then(Value::as_bool);
    if escalation == Some(false) {
        if context.bool_at(&["privileged"]) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(FieldError::invalid(path, context.clone(), detail));
        }
        let added = context.list_at(&["capabilities", "add"]);
        if added
            .iter()
            .any(|name| name.as_str() == Some("CAP_SYS_ADMIN"))
        {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(FieldError::invalid(path, context.clone(), detail));
        }
    }
}

fn identity(context: &Value, name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(number) = context.i64_at(&[name]) {
        let wrong = names::in_range(number, 0, HIGHEST_ID);
        errors.extend(numbers(&path.child(name), number, wrong));
    }
}

fn seccomp(context: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(profile) = context
        .get("seccompProfile")
        .filter(|value| !value.is_null())
    else {
        return;
    };
    let path = path.child("seccompProfile");
    let kind = profile.str_at(&["type"]);
    if !matches!(kind, "Localhost" | "RuntimeDefault" | "Unconfined") {
        let supported = ["Localhost", "RuntimeDefault", "Unconfined"];
        let at = path.child("type");
        errors.push(match kind {
            "" => FieldError::required(&at, "type is required when seccompProfile is set"),
            _ => FieldError::not_supported(&at, kind, &supported),
        });
    }
    let file = profile.get("localhostProfile").and_then(Value::as_str);
    let at = path.child("localhostProfile");
    match (kind, file) {
        ("Localhost", None) => {
            let detail = "must be set when seccomp type is Localhost";
            errors.push(FieldError::required(&at, detail));
        }
        ("Localhost", Some(file)) => errors.extend(local_path(file, &at)),
        (_, Some(_)) => {
            let detail = "can only be set when seccomp type is Localhost";
            errors.push(FieldError::invalid(&at, profile.clone(), detail));
        }
        (_, None) => {}
    }
}
