//! Validation of updates of a Pod, and the binding to a node.

use std::collections::BTreeMap;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::repeats::Seen;
use crate::resource::generic;
use crate::strategy::pod::{annotations, containers, security, tolerations, validate};

const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks an update of a Pod's spec.
pub fn spec(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = validate::pod(new);
    if old.has(&["spec", "securityContext", "seLinuxChangePolicy"]) {
        security::allow_all_change_policies(new, &mut errors);
    }
    errors.extend(annotations::validate_update(new, old));
    for list in ["containers", "initContainers"] {
        if new.list_at(&["spec", list]).len() != old.list_at(&["spec", list]).len() {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(&path.child(list), detail));
            return errors;
        }
        for (index, container) in new.list_at(&["spec", list]).iter().enumerate() {
            let at = path.child(list).index(index);
            if container.str_at(&["image"]).is_empty() {
                errors.push(FieldError::required(&at.child("image"), ""));
            }
            containers::own_image(container, &at, &mut errors);
        }
    }
    if !active_deadline(new, old, &path, &mut errors) {
        return errors;
    }
    only_added_tolerations(new, old, &path.child("tolerations"), &mut errors);
    only_removed_gates(new, old, &path.child("schedulingGates"), &mut errors);

    // The mutable fields are copied from the old Pod. Every remaining difference is an error.
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
        generic::keep_field(&mut rest, old_spec, &[name]);
    }
    let grace = ["terminationGracePeriodSeconds"];
    if old_spec.i64_at(&grace).is_some_and(|seconds| seconds < 0) && rest.i64_at(&grace) == Some(1)
    {
        rest.set(&grace, old_spec.i64_at(&grace).unwrap_or(0));
    }
    if !old_spec.list_at(&["schedulingGates"]).is_empty() {
        gated(&mut rest, old_spec, &path, &mut errors);
    }
    if rest != *old_spec {
        let lines = differences(old_spec, &rest);
        let detail = format!("pod updates may not change fields other than {CHANGEABLE}\n{lines}");
        errors.push(FieldError::forbidden(&path, detail));
    }
    errors
}

/// While a Pod waits for its gates, it may be asked for more of its node.
fn gated(rest: &mut Value, old: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let mut kept = old.fields_at(&["nodeSelector"]);
    if kept.any(|(key, value)| rest.at(&["nodeSelector", key]) != Some(value)) {
        let value = rest.get("nodeSelector").cloned().unwrap_or_default();
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid(
            &path.child("nodeSelector"),
            value,
            detail,
        ));
    }
    generic::keep_field(rest, old, &["nodeSelector"]);
    let at = ["affinity", "nodeAffinity"];
    if rest.at(&at) == old.at(&at) {
        return;
    }
    node_affinity(rest, old, &path.child(at[0]).child(at[1]), errors);
    let others = rest
        .fields_at(&["affinity"])
        .filter(|(name, _)| *name != at[1]);
    match (old.at(&at).cloned(), others.count()) {
        (Some(value), _) => rest.set(&at, value),
        (None, 0) if !old.has(&["affinity"]) => drop(rest.remove(&["affinity"])),
        (None, _) => drop(rest.remove(&at)),
    }
}

fn node_affinity(new: &Value, old: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let at = ["affinity", "nodeAffinity", required, "nodeSelectorTerms"];
    let (old_terms, new_terms) = (old.list_at(&at), new.list_at(&at));
    let path = path.child(required).child("nodeSelectorTerms");
    if old_terms.is_empty() {
        return;
    }
    if old_terms.len() != new_terms.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let value = new.at(&at).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&path, value, detail));
        return;
    }
    let lists = ["matchExpressions", "matchFields"];
    for (index, (old, new)) in old_terms.iter().zip(new_terms).enumerate() {
        let empty = |term: &Value| lists.iter().all(|list| term.list_at(&[list]).is_empty());
        let added_only = lists
            .iter()
            .all(|list| new.list_at(&[list]).starts_with(old.list_at(&[list])));
        if !added_only || empty(old) && !empty(new) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(
                &path.index(index),
                shown_term(new),
                detail,
            ));
        }
    }
}

/// A term as upstream's errors show it: its internal type, with Go's names and nulls.
fn shown_term(term: &Value) -> Value {
    let mut made = Value::object();
    for (shown, list) in [
        ("MatchExpressions", "matchExpressions"),
        ("MatchFields", "matchFields"),
    ] {
        let rules = term.list_at(&[list]).iter().map(|rule| {
            let mut made = Value::object();
            for (shown, name) in [
                ("Key", "key"),
                ("Operator", "operator"),
                ("Values", "values"),
            ] {
                made.set(&[shown], rule.get(name).cloned().unwrap_or_default());
            }
            made
        });
        let rules: Vec<Value> = rules.collect();
        match rules.is_empty() {
            true => made.set(&[shown], Value::Null),
            false => made.set(&[shown], rules),
        }
    }
    made
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

/// A pod that cannot be bound, in upstream's words. The API server reports it as a conflict.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    #[error("pod {0} is being deleted, cannot be assigned to a host")]
    BeingDeleted(String),
    #[error("pod {pod} is already assigned to node {node:?}")]
    AlreadyAssigned { pod: String, node: String },
    #[error("pod {0} has non-empty .spec.schedulingGates")]
    Gated(String),
}

/// Binds a Pod to the node of a binding.
pub fn bind(pod: &mut Value, binding: &Value, now: jiff::Timestamp) -> Result<(), BindError> {
    let name = pod.str_at(&["metadata", "name"]).to_string();
    if pod.has(&["metadata", "deletionTimestamp"]) {
        return Err(BindError::BeingDeleted(name));
    }
    let node = pod.str_at(&["spec", "nodeName"]);
    if !node.is_empty() {
        let node = node.to_string();
        return Err(BindError::AlreadyAssigned { pod: name, node });
    }
    if !pod.list_at(&["spec", "schedulingGates"]).is_empty() {
        return Err(BindError::Gated(name));
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

/// Whether the rest of the update should be validated.
fn active_deadline(new: &Value, old: &Value, path: &Path, errors: &mut Vec<FieldError>) -> bool {
    let at = ["spec", "activeDeadlineSeconds"];
    let path = path.child("activeDeadlineSeconds");
    let (new, old) = (new.i64_at(&at), old.i64_at(&at));
    let (detail, go_on) = match (new, old) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => (
            format!("must be between 0 and {}, inclusive", i32::MAX),
            false,
        ),
        (Some(new), Some(old)) if new > old => (
            "must be less than or equal to previous value".to_string(),
            false,
        ),
        (None, Some(_)) => (
            "must not update from a positive integer to nil value".to_string(),
            true,
        ),
        _ => return true,
    };
    let value = new.map_or(Value::Null, Value::Integer);
    errors.push(FieldError::invalid(&path, value, detail));
    go_on
}

fn only_added_tolerations(new: &Value, old: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let tolerations = new.list_at(&["spec", "tolerations"]);
    let without_seconds = |toleration: &Value| {
        let mut stripped = toleration.clone();
        stripped.remove(&["tolerationSeconds"]);
        stripped
    };
    let text = |toleration: &Value| without_seconds(toleration).to_string();
    let kept: Seen<String> = tolerations.iter().map(text).collect();
    for old in old.list_at(&["spec", "tolerations"]) {
        if !kept.contains(&text(old)) {
            let detail = "existing toleration can not be modified except its tolerationSeconds";
            errors.push(FieldError::forbidden(path, detail));
            return;
        }
    }
    tolerations::validate(tolerations, path, errors);
}

fn only_removed_gates(new: &Value, old: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let name_of = |gate| Value::str_at(gate, &["name"]);
    let known = old.list_at(&["spec", "schedulingGates"]);
    let known: Seen<&str> = known.iter().map(name_of).collect();
    let gates = new.list_at(&["spec", "schedulingGates"]);
    let places = gates.iter().map(name_of).enumerate();
    let last: BTreeMap<&str, usize> = places.map(|(index, name)| (name, index)).collect();
    for (index, gate) in gates.iter().enumerate() {
        let name = gate.str_at(&["name"]);
        if !known.contains(&name) && last.get(name) == Some(&index) {
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{name}'");
            let at = path.index(index).child("name");
            errors.push(FieldError::forbidden(&at, detail));
        }
    }
}

/// The paths that differ, one line each for what was and what would be.
pub fn differences(old: &Value, new: &Value) -> String {
    let mut lines = String::new();
    difference(Some(old), Some(new), "", &mut lines);
    lines
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
