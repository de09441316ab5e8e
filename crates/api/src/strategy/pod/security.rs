//! Validation of the security contexts of Pods and containers.

use std::sync::LazyLock;

use regex::Regex;

use crate::document::Value;
use crate::field::{FieldError, Path, most_showing};
use crate::metadata::names;
use crate::repeats::Seen;
use crate::strategy::checks::{invalid_number, optional_one_of, relative_path};
use crate::strategy::pod::windows;

const HIGHEST_ID: i64 = i32::MAX as i64;
const LONGEST_SYSCTL: usize = 253;
const LONGEST_PROFILE: usize = 4095;
const SYSCTL: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

static SYSCTL_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(SYSCTL).expect("a constant pattern compiles"));

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
        errors.extend(invalid_number(
            &at,
            number,
            names::in_range(number, 0, HIGHEST_ID),
        ));
    }
    if spec.bool_at(&["hostPID"]) && spec.bool_at(&["shareProcessNamespace"]) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        let at = path.child("shareProcessNamespace");
        errors.push(FieldError::invalid(&at, true, detail));
    }
    sysctls(spec, context, &path.child("sysctls"), errors);
    let policies = ["Always", "OnRootMismatch"];
    optional_one_of(context, "fsGroupChangePolicy", &policies, path, errors);
    seccomp(context, path, errors);
    windows::options(context, path, errors);
    app_armor(context, path, errors);
    let policies = ["Merge", "Strict"];
    optional_one_of(context, "supplementalGroupsPolicy", &policies, path, errors);
    // Without the SELinuxMount feature there is only one.
    let policies = ["Recursive"];
    optional_one_of(context, "seLinuxChangePolicy", &policies, path, errors);
}

/// Removes the errors for values that were allowed while the feature gate was open.
pub fn allow_all_change_policies(pod: &Value, errors: &mut Vec<FieldError>) {
    let at = ["spec", "securityContext", "seLinuxChangePolicy"];
    let path = at.join(".");
    let policies = ["MountOption", "Recursive"];
    let policy = pod.str_at(&at);
    errors.retain(|error| error.path != path || !policies.contains(&policy));
    if let Some(error) = errors.iter_mut().find(|error| error.path == path) {
        *error = FieldError::not_supported(&Path::new(&path), policy, &policies);
    }
}

/// Checks the security context of a container in a Pod that shares the host's users or not.
pub fn container(context: &Value, host_users: bool, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["runAsUser", "runAsGroup"] {
        identity(context, name, path, errors);
    }
    optional_one_of(context, "procMount", &["Default", "Unmasked"], path, errors);
    if host_users && context.str_at(&["procMount"]) == "Unmasked" {
        let at = path.child("procMount");
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.push(FieldError::invalid(&at, "Unmasked", detail));
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
        let added = context.list_at(&["capabilities", "add"]).iter();
        let administers = added.filter(|added| added.as_str() == Some("CAP_SYS_ADMIN"));
        for _ in administers.take(most_showing(context)) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(FieldError::invalid(path, context.clone(), detail));
        }
    }
    windows::options(context, path, errors);
    app_armor(context, path, errors);
}

fn identity(context: &Value, name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(number) = context.i64_at(&[name]) {
        let wrong = names::in_range(number, 0, HIGHEST_ID);
        errors.extend(invalid_number(&path.child(name), number, wrong));
    }
}

fn sysctls(spec: &Value, context: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let mut seen = Seen::new();
    for (index, sysctl) in context.list_at(&["sysctls"]).iter().enumerate() {
        let at = path.index(index).child("name");
        let name = sysctl.str_at(&["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else if name.len() > LONGEST_SYSCTL || !SYSCTL_PATTERN.is_match(name) {
            let detail =
                format!("must have at most {LONGEST_SYSCTL} characters and match regex {SYSCTL}");
            errors.push(FieldError::invalid(&at, name, detail));
        } else if seen.contains(&name) {
            errors.push(FieldError::duplicate(&at, name));
        }
        for (host, namespace) in [("hostNetwork", "net"), ("hostIPC", "ipc")] {
            if spec.bool_at(&[host]) && namespace_of(name) == namespace {
                let detail = format!("may not be specified when '{host}' is true");
                errors.push(FieldError::invalid(&at, name, detail));
                break;
            }
        }
        seen.insert(name);
    }
}

/// The kernel namespace of a sysctl. The first separator in the name decides which one is used.
fn namespace_of(name: &str) -> &'static str {
    let name = match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => {
            let swapped = name.chars().map(|character| match character {
                '/' => '.',
                '.' => '/',
                other => other,
            });
            swapped.collect()
        }
        _ => name.to_string(),
    };
    if name.starts_with("net.") {
        "net"
    } else if name == "kernel.sem"
        || ["kernel.shm", "kernel.msg", "fs.mqueue."]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    {
        "ipc"
    } else {
        ""
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
        ("Localhost", Some(file)) => errors.extend(relative_path(file, &at)),
        (_, Some(_)) => {
            let detail = "can only be set when seccomp type is Localhost";
            let shown = crate::document!({"Type": kind, "LocalhostProfile": file});
            errors.push(FieldError::invalid(&at, shown, detail));
        }
        (_, None) => {}
    }
}

fn app_armor(context: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(profile) = context
        .get("appArmorProfile")
        .filter(|value| !value.is_null())
    else {
        return;
    };
    let path = path.child("appArmorProfile");
    let at = path.child("localhostProfile");
    let file = profile.get("localhostProfile").and_then(Value::as_str);
    match (profile.str_at(&["type"]), file) {
        ("Localhost", file) => {
            let text = file.unwrap_or_default();
            if text.trim() != text {
                let detail = "must not be padded with whitespace";
                errors.push(FieldError::invalid(&at, text, detail));
            } else if text.is_empty() {
                let detail = "must be set when AppArmor type is Localhost";
                errors.push(FieldError::required(&at, detail));
            }
            if text.len() > LONGEST_PROFILE {
                errors.push(FieldError::too_long(&at, LONGEST_PROFILE));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            let detail = "can only be set when AppArmor type is Localhost";
            errors.push(FieldError::invalid(&at, file, detail));
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => {
            let detail = "type is required when appArmorProfile is set";
            errors.push(FieldError::required(&path.child("type"), detail));
        }
        (kind, _) => {
            let supported = ["Localhost", "RuntimeDefault", "Unconfined"];
            errors.push(FieldError::not_supported(
                &path.child("type"),
                kind,
                &supported,
            ));
        }
    }
}
