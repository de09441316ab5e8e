//! The annotations that mean something to a Pod.

use crate::document::Value;
use crate::field::{FieldError, Path, quote};
use crate::repeats::Seen;
use crate::strategy::checks::relative_path;
use crate::strategy::pod::container_lists::all_containers;
use crate::strategy::pod::tolerations;

pub const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub const APPARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Checks the annotations of a Pod or of a template.
pub fn validate(annotations: Option<&Value>, spec: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(annotations) = annotations.filter(|value| value.as_object().is_some()) else {
        return errors;
    };
    let text = |name: &str| annotations.get(name).and_then(Value::as_str);
    if let Some(value) = text(MIRROR)
        && spec.str_at(&["nodeName"]).is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(FieldError::invalid(&path.key(MIRROR), value, detail));
    }
    if let Some(json) = text(TOLERATIONS).filter(|json| !json.is_empty()) {
        match Value::from_json(json.as_bytes()) {
            Ok(Value::Array(list)) => {
                tolerations::validate(&list, &path.child(TOLERATIONS), &mut errors)
            }
            Ok(_) => errors.push(FieldError::invalid(
                path,
                TOLERATIONS,
                "json: cannot unmarshal object into Go value of type []core.Toleration",
            )),
            Err(problem) => {
                errors.push(FieldError::invalid(path, TOLERATIONS, problem.to_string()));
            }
        }
    }
    if let Some(cost) = text(DELETION_COST)
        && (cost.parse::<i32>().is_err() || cost.starts_with('+') || odd_zeros(cost))
    {
        let detail = "must be a 32bit integer";
        errors.push(FieldError::invalid(&path.key(DELETION_COST), cost, detail));
    }
    if let Some(profile) = text(SECCOMP_POD) {
        errors.extend(seccomp(profile, &path.child(SECCOMP_POD)));
    }
    let names: Seen<&str> = all_containers(spec)
        .map(|(_, _, one)| one.str_at(&["name"]))
        .collect();
    for (key, value) in annotations
        .as_object()
        .into_iter()
        .flat_map(|all| all.iter())
    {
        let value = value.as_str().unwrap_or_default();
        if key.starts_with(SECCOMP_CONTAINER) {
            errors.extend(seccomp(value, &path.child(key)));
        }
        if let Some(name) = key.strip_prefix(APPARMOR_CONTAINER) {
            if !names.contains(&name) {
                errors.push(FieldError::invalid(
                    &path.key(key),
                    name,
                    "container not found",
                ));
            }
            let known = matches!(value, "" | "runtime/default" | "unconfined");
            if !known && !value.starts_with("localhost/") {
                let detail = format!("invalid AppArmor profile name: {}", quote(value));
                errors.push(FieldError::invalid(&path.key(key), value, detail));
            }
        }
    }
    errors
}

/// Checks what an update did to them.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("metadata").child("annotations");
    let at = ["metadata", "annotations"];
    let value = |pod: &Value, key: &str| pod.at(&[at[0], at[1], key]).cloned();
    let mut errors = Vec::new();
    let fixed = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        _ if key.starts_with(APPARMOR_CONTAINER) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, before) in old.fields_at(&at) {
        if let Some(words) = fixed(key)
            && value(new, key).as_ref() != Some(before)
        {
            let detail = format!("may not remove or update {words}");
            errors.push(FieldError::forbidden(&path.key(key), detail));
        }
    }
    for (key, _) in new.fields_at(&at) {
        if let Some(words) = fixed(key)
            && value(old, key).is_none()
        {
            let detail = format!("may not add {words}");
            errors.push(FieldError::forbidden(&path.key(key), detail));
        }
    }
    errors
}

/// Checks that profiles said twice are the same ones.
pub fn profiles_match(annotations: Option<&Value>, spec: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(annotations) = annotations.filter(|value| value.as_object().is_some()) else {
        return errors;
    };
    let text = |name: &str| annotations.get(name).and_then(Value::as_str);
    let at = ["securityContext", "seccompProfile"];
    if let (Some(field), Some(annotation)) = (spec.at(&at), text(SECCOMP_POD)) {
        let path = path.child(at[0]).child(at[1]);
        errors.extend(same_profile(field, annotation, "seccomp", &path));
    }
    for (list, index, container) in all_containers(spec) {
        let key = format!("{SECCOMP_CONTAINER}{}", container.str_at(&["name"]));
        if let (Some(field), Some(annotation)) = (container.at(&at), text(&key)) {
            let path = path.child(list).index(index).child(at[0]).child(at[1]);
            errors.extend(same_profile(field, annotation, "seccomp", &path));
        }
    }
    if spec.str_at(&["os", "name"]) == "windows" {
        return errors;
    }
    let at = ["securityContext", "appArmorProfile"];
    for (list, index, container) in all_containers(spec) {
        let key = format!("{APPARMOR_CONTAINER}{}", container.str_at(&["name"]));
        let field = container.at(&at).or(spec.at(&at));
        if let (Some(field), Some(annotation)) = (field, text(&key)) {
            let path = path.child(list).index(index).child(at[0]).child(at[1]);
            errors.extend(same_profile(field, annotation, "apparmor", &path));
        }
    }
    errors
}

fn same_profile(field: &Value, annotation: &str, kind: &str, path: &Path) -> Option<FieldError> {
    let types = format!("{kind} type in annotation and field must match");
    let profiles = format!("{kind} profile in annotation and field must match");
    let same = match field.str_at(&["type"]) {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || kind == "seccomp" && annotation == "docker/default"
        }
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(profile) if profile == field.str_at(&["localhostProfile"]) => true,
            Some(_) => {
                let at = path.child("localhostProfile");
                return Some(FieldError::forbidden(&at, profiles));
            }
            None => false,
        },
        _ => true,
    };
    (!same).then(|| FieldError::forbidden(&path.child("type"), types))
}

fn seccomp(profile: &str, path: &Path) -> Vec<FieldError> {
    if matches!(profile, "runtime/default" | "docker/default" | "unconfined") {
        return Vec::new();
    }
    match profile.strip_prefix("localhost/") {
        Some(file) => relative_path(file, path),
        None => vec![FieldError::invalid(
            path,
            profile,
            "must be a valid seccomp profile",
        )],
    }
}

/// A leading zero of a number that has more digits.
fn odd_zeros(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    digits.len() > 1 && digits.starts_with('0')
}

/// Gives containers the AppArmor profiles that only annotations name.
pub fn apply_profiles(pod: &mut Value) {
    if pod.str_at(&["spec", "os", "name"]) == "windows" {
        return;
    }
    let annotations = pod
        .at(&["metadata", "annotations"])
        .cloned()
        .unwrap_or_default();
    let whole = pod
        .at(&["spec", "securityContext", "appArmorProfile"])
        .cloned();
    let at = ["securityContext", "appArmorProfile"];
    for list in ["initContainers", "containers"] {
        for container in pod.list_at_mut(&["spec", list]) {
            let key = format!("{APPARMOR_CONTAINER}{}", container.str_at(&["name"]));
            let profile = annotations.get(&key).and_then(Value::as_str);
            let Some(profile) = profile.and_then(annotated_profile) else {
                continue;
            };
            if !container.has(&at) && whole.as_ref() != Some(&profile) {
                container.set(&at, profile);
            }
        }
    }
}

fn annotated_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(crate::document!({"type": "Unconfined"})),
        "runtime/default" => Some(crate::document!({"type": "RuntimeDefault"})),
        _ => {
            let profile = annotation.strip_prefix("localhost/")?;
            let valid = !profile.is_empty() && profile.trim() == profile && profile.len() <= 4095;
            valid.then(|| crate::document!({"type": "Localhost", "localhostProfile": profile}))
        }
    }
}
