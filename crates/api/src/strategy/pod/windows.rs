//! Validation that depends on a Pod's operating system, and of the options of Windows.

use std::sync::LazyLock;

use regex::Regex;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::strategy::pod::container_lists::all_containers;

const LONGEST_CREDENTIAL: usize = 64 * 1024;
const LONGEST_DOMAIN: usize = 256;
const LONGEST_USER: usize = 104;
const FOR_LINUX: &str = "windows options cannot be set for a linux pod";
const FOR_WINDOWS: &str = "cannot be set for a windows pod";

static NET_BIOS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$"#).expect("a constant pattern compiles")
});
static DNS: LazyLock<Regex> = LazyLock::new(|| {
    let label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
    Regex::new(&format!(r"^{label}(?:\.{label})*$")).expect("a constant pattern compiles")
});

/// Checks `windowsOptions` of a security context.
pub fn options(context: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(options) = context.get("windowsOptions") else {
        return;
    };
    let path = path.child("windowsOptions");
    let text = |name: &str| options.get(name).and_then(Value::as_str);
    if let Some(name) = text("gmsaCredentialSpecName") {
        let at = path.child("gmsaCredentialSpecName");
        errors.extend(all_invalid(&at, name, names::dns_subdomain(name)));
    }
    if let Some(credential) = text("gmsaCredentialSpec") {
        let at = path.child("gmsaCredentialSpec");
        if credential.is_empty() {
            let detail = "gmsaCredentialSpec cannot be an empty string";
            errors.push(FieldError::invalid(&at, credential, detail));
        } else if credential.len() > LONGEST_CREDENTIAL {
            let detail = "gmsaCredentialSpec size must be under 64 KiB";
            errors.push(FieldError::invalid(&at, credential, detail));
        }
    }
    if let Some(name) = text("runAsUserName") {
        let at = path.child("runAsUserName");
        for detail in user_name(name) {
            errors.push(FieldError::invalid(&at, name, detail));
        }
    }
}

fn user_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string".to_string()];
    }
    if name.contains(|character: char| character.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters".to_string()];
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return vec!["runAsUserName cannot contain more than one backslash".to_string()],
    };
    let mut wrong = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= LONGEST_DOMAIN) {
        wrong.push(format!(
            "runAsUserName's Domain length must be under {LONGEST_DOMAIN} characters"
        ));
    }
    if domain.is_some_and(|domain| !NET_BIOS.is_match(domain) && !DNS.is_match(domain)) {
        let words = "runAsUserName's Domain doesn't match the NetBios nor the DNS format";
        wrong.push(words.to_string());
    }
    if user.is_empty() {
        wrong.push("runAsUserName's User cannot be empty".to_string());
    } else if user.len() > LONGEST_USER {
        wrong.push(format!(
            "runAsUserName's User length must not be longer than {LONGEST_USER} characters"
        ));
    }
    if !user.is_empty() && user.chars().all(|character| matches!(character, '.' | ' ')) {
        wrong.push("runAsUserName's User cannot contain only periods or spaces".to_string());
    }
    if user.contains(|character: char| r#""/\:;|=,+*?<>@[]"#.contains(character)) {
        wrong.push(
            r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#
                .to_string(),
        );
    }
    wrong
}

/// Checks containers that are processes of a Windows host.
pub fn host_process(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = ["securityContext", "windowsOptions", "hostProcess"];
    let whole = spec.at(&at).and_then(Value::as_bool);
    let (mut all, mut hosted) = (0, 0);
    for (list, index, container) in all_containers(spec) {
        all += 1;
        let own = container.at(&at).and_then(Value::as_bool);
        if let (Some(whole), Some(own)) = (whole, own)
            && whole != own
        {
            let detail = format!(
                "pod hostProcess value must be identical if both are specified, was {whole}"
            );
            let mut at_path = path.child(list).index(index);
            for name in at {
                at_path = at_path.child(name);
            }
            errors.push(FieldError::invalid(&at_path, own, detail));
        }
        hosted += usize::from(own.or(whole).unwrap_or(false));
    }
    if hosted == 0 {
        return;
    }
    if hosted != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(FieldError::invalid(path, "", detail));
    }
    if !spec.bool_at(&["hostNetwork"]) {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(FieldError::invalid(
            &path.child("hostNetwork"),
            false,
            detail,
        ));
    }
}

/// Checks `os` and what it rules out.
pub fn system(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(system) = spec.get("os").filter(|value| !value.is_null()) else {
        return;
    };
    let at = path.child("os");
    let context_path = path.child("securityContext");
    match system.str_at(&["name"]) {
        "" => errors.push(FieldError::required(&at.child("name"), "")),
        "linux" => {
            if spec.has(&["securityContext", "windowsOptions"]) {
                let at = context_path.child("windowsOptions");
                errors.push(FieldError::forbidden(&at, FOR_LINUX));
            }
            forbid(spec, &["windowsOptions"], FOR_LINUX, path, errors);
        }
        "windows" => {
            let mut check = |at: &[&str], path: &Path| {
                let value = spec.at(at).filter(|value| !value.is_null());
                let unset = matches!(value, None | Some(Value::Bool(false)) | Some(Value::Array(_)) if value.and_then(Value::as_array).is_none_or(Vec::is_empty));
                if !unset {
                    errors.push(FieldError::forbidden(path, FOR_WINDOWS));
                }
            };
            for (inside, name) in [
                (true, "appArmorProfile"),
                (true, "seLinuxOptions"),
                (false, "hostUsers"),
                (false, "hostPID"),
                (false, "hostIPC"),
                (true, "seccompProfile"),
                (true, "fsGroup"),
                (true, "fsGroupChangePolicy"),
                (true, "sysctls"),
                (false, "shareProcessNamespace"),
                (true, "runAsUser"),
                (true, "runAsGroup"),
                (true, "supplementalGroups"),
                (true, "supplementalGroupsPolicy"),
                (true, "seLinuxChangePolicy"),
            ] {
                match inside {
                    true => check(&["securityContext", name], &context_path.child(name)),
                    false => check(&[name], &path.child(name)),
                }
            }
            let names = [
                "appArmorProfile",
                "seLinuxOptions",
                "seccompProfile",
                "capabilities",
                "readOnlyRootFilesystem",
                "privileged",
                "allowPrivilegeEscalation",
                "procMount",
                "runAsUser",
                "runAsGroup",
            ];
            forbid(spec, &names, FOR_WINDOWS, path, errors);
        }
        other => {
            let supported = ["linux", "windows"];
            errors.push(FieldError::not_supported(&at, other, &supported));
        }
    }
}

fn forbid(spec: &Value, names: &[&str], words: &str, path: &Path, errors: &mut Vec<FieldError>) {
    for (list, index, container) in all_containers(spec) {
        let path = path.child(list).index(index).child("securityContext");
        for name in names {
            if container.has(&["securityContext", name]) {
                errors.push(FieldError::forbidden(&path.child(name), words));
            }
        }
    }
}
