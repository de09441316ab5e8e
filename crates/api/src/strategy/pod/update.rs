//! What an update may change in a Pod, and the binding to a node.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::immutable;
use crate::strategy::pod::validate;

const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks an update of a Pod's spec.
pub fn spec(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    for list in ["containers", "initContainers"] {
        if new.list_at(&["spec", list]).len() != old.list_at(&["spec", list]).len() {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(&path.child(list), detail));
            return errors;
        }
        for (index, container) in new.list_at(&["spec", list]).iter().enumerate() {
            let image = container.str_at(&["image"]);
            let at = path.child(list).index(index).child("image");
            if image.is_empty() {
                errors.push(FieldError::required(&at, ""));
            } else if image.trim() != image {
                let detail = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(&at, image, detail));
            }
        }
    }
    active_deadline(new, old, &path, &mut errors);
    only_added_tolerations(new, old, &path.child("tolerations"), &mut errors);
    only_removed_gates(new, old, &path.child("schedulingGates"), &mut errors);

    // What may change is taken from the old Pod; whatever differs then may not.
    let empty = Value::object();
    let old_spec = old.get("spec").unwrap_or(&empty);
    let mut rest = new.get("spec").unwrap_or(&empty).clone();
    for list in ["containers", "initContainers"] {
        let old_list = old_spec.list_at(&[list]);
        for (container, old) in std::iter::zip(rest.list_at_mut(&[list]), old_list) {
            container.set(&["image"], old.str_at(&["image"]));
        }
    }
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        match old_spec.get(name) {
            Some(value) => rest.set(&[name], value.clone()),
            None => drop(rest.remove(&[name])),
        }
    }
    let grace = ["terminationGracePeriodSeconds"];
    if old_spec.i64_at(&grace).is_some_and(|seconds| seconds < 0) && rest.i64_at(&grace) == Some(1)
    {
        rest.set(&grace, old_spec.i64_at(&grace).unwrap_or(0));
    }
    if rest != *old_spec {
        let mut lines = String::new();
        difference(Some(old_spec), Some(&rest), "", &mut lines);
        let detail = format!("pod updates may not change fields other than {CHANGEABLE}\n{lines}");
        errors.push(FieldError::forbidden(&path, detail));
    }
    errors
}

/// Checks an update of a Pod's status.
pub fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("status");
    let at = ["status", "qosClass"];
    let mut errors: Vec<FieldError> = immutable(new.at(&at), old.at(&at), &path.child("qosClass"))
        .into_iter()
        .collect();
    for (list, single) in [("podIPs", "podIP"), ("hostIPs", "hostIP")] {
        for (index, entry) in new.list_at(&["status", list]).iter().enumerate() {
            let at = path.child(list).index(index);
            errors.extend(validate::address(entry.str_at(&["ip"]), &at));
        }
        let text = new.str_at(&["status", single]);
        if !text.is_empty() && new.list_at(&["status", list]).is_empty() {
            errors.extend(validate::address(text, &path.child(single)));
        }
    }
    errors
}

/// Checks a `v1.Binding` for a Pod.
pub fn validate_binding(binding: &Value) -> Vec<FieldError> {
    let path = Path::new("target");
    let mut errors = Vec::new();
    let kind = binding.str_at(&["target", "kind"]);
    if !matches!(kind, "" | "Node") {
        let at = path.child("kind");
        errors.push(FieldError::not_supported(&at, kind, &["Node", "<empty>"]));
    }
    if binding.str_at(&["target", "name"]).is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    errors
}

/// Binds a Pod to the node that a binding names, or says why it cannot be (a conflict).
pub fn bind(pod: &mut Value, binding: &Value, now: jiff::Timestamp) -> Result<(), String> {
    let name = pod.str_at(&["metadata", "name"]).to_string();
    if pod.has(&["metadata", "deletionTimestamp"]) {
        return Err(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    let node = pod.str_at(&["spec", "nodeName"]);
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node {node:?}"));
    }
    if !pod.list_at(&["spec", "schedulingGates"]).is_empty() {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod.set(&["spec", "nodeName"], binding.str_at(&["target", "name"]));
    pod.remove(&["status", "nominatedNodeName"]);
    for map in ["annotations", "labels"] {
        for (key, value) in binding.fields_at(&["metadata", map]) {
            pod.set(&["metadata", map, key], value.clone());
        }
    }
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = crate::document!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time,
    });
    let conditions = pod.list_at_mut(&["status", "conditions"]);
    match conditions
        .iter_mut()
        .find(|one| one.str_at(&["type"]) == "PodScheduled")
    {
        Some(current) if current.str_at(&["status"]) == "True" => {}
        Some(current) => *current = condition,
        None => {
            let mut all = pod.list_at(&["status", "conditions"]).to_vec();
            all.push(condition);
            pod.set(&["status", "conditions"], all);
        }
    }
    Ok(())
}

fn active_deadline(new: &Value, old: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = ["spec", "activeDeadlineSeconds"];
    let path = path.child("activeDeadlineSeconds");
    match (new.i64_at(&at), old.i64_at(&at)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
            errors.push(FieldError::invalid(&path, new, detail));
        }
        (Some(new), Some(old)) if new > old => {
            let detail = "must be less than or equal to previous value";
            errors.push(FieldError::invalid(&path, new, detail));
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(&path, Value::Null, detail));
        }
        _ => {}
    }
}

fn only_added_tolerations(new: &Value, old: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let tolerations = new.list_at(&["spec", "tolerations"]);
    let without_seconds = |toleration: &Value| {
        let mut stripped = toleration.clone();
        stripped.remove(&["tolerationSeconds"]);
        stripped
    };
    for old in old.list_at(&["spec", "tolerations"]) {
        let kept = |new: &Value| without_seconds(new) == without_seconds(old);
        if !tolerations.iter().any(kept) {
            let detail = "existing toleration can not be modified except its tolerationSeconds";
            errors.push(FieldError::forbidden(path, detail));
            return;
        }
    }
    validate::tolerations(tolerations, path, errors);
}

fn only_removed_gates(new: &Value, old: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let old_gates = old.list_at(&["spec", "schedulingGates"]);
    for (index, gate) in new.list_at(&["spec", "schedulingGates"]).iter().enumerate() {
        if !old_gates.contains(gate) {
            let detail = "only deletion is allowed, but found new scheduling gate";
            let name = gate.str_at(&["name"]);
            let detail = format!("{detail} '{name}'");
            errors.push(FieldError::forbidden(
                &path.index(index).child("name"),
                detail,
            ));
        }
    }
}

/// Lists the paths that differ, one line each for what was and what would be.
fn difference(old: Option<&Value>, new: Option<&Value>, path: &str, lines: &mut String) {
    match (old, new) {
        (old, new) if old == new => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let mut names: Vec<&str> = old.iter().chain(new.iter()).map(|(name, _)| name).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                difference(
                    old.get(name),
                    new.get(name),
                    &format!("{path}.{name}"),
                    lines,
                );
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                let at = format!("{path}[{index}]");
                difference(old.get(index), new.get(index), &at, lines);
            }
        }
        (old, new) => {
            for (sign, value) in [('-', old), ('+', new)] {
                if let Some(value) = value {
                    lines.push_str(&format!(
                        "{sign} {}: {value}\n",
                        path.trim_start_matches('.')
                    ));
                }
            }
        }
    }
}
