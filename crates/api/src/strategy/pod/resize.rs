//! The subresources that change one part of a Pod's spec: `resize`, the CPU and memory of its
//! containers, and `ephemeralcontainers`, which may be added.

use crate::document::Value;
use crate::field::{FieldError, Path, quote};
use crate::resource::generic;
use crate::strategy::pod::{annotations, qos, update, validate};

const RESIZED: [&str; 2] = ["resources", "resizePolicy"];
const LISTS: [&str; 2] = ["containers", "initContainers"];

/// Restores everything except the resources from the old Pod.
pub fn prepare(new: &mut Value, old: &Value) {
    let same_length =
        |list: &&str| new.list_at(&["spec", list]).len() == old.list_at(&["spec", list]).len();
    if !LISTS.iter().all(same_length) {
        return;
    }
    let mut spec = old.get("spec").cloned().unwrap_or_default();
    generic::keep_field(
        &mut spec,
        new.get("spec").unwrap_or(&Value::Null),
        &["resources"],
    );
    for list in LISTS {
        let containers = new.list_at(&["spec", list]);
        let renamed = |(old, new): (&Value, &Value)| old.get("name") != new.get("name");
        if spec.list_at(&[list]).iter().zip(containers).any(renamed) {
            spec.set(&[list], containers.to_vec());
            continue;
        }
        for (kept, container) in spec.list_at_mut(&[list]).iter_mut().zip(containers) {
            for field in RESIZED {
                generic::keep_field(kept, container, &[field]);
            }
        }
    }
    new.set(&["spec"], spec);
    keep_the_rest(new, old);
}

/// Restores everything except the ephemeral containers from the old Pod.
pub fn prepare_ephemeral(new: &mut Value, old: &Value) {
    let mut spec = old.get("spec").cloned().unwrap_or_default();
    let sent = new.get("spec").unwrap_or(&Value::Null);
    generic::keep_field(&mut spec, sent, &["ephemeralContainers"]);
    new.set(&["spec"], spec);
    keep_the_rest(new, old);
}

fn keep_the_rest(new: &mut Value, old: &Value) {
    generic::keep_field(new, old, &["status"]);
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "generation",
    ] {
        generic::keep_field(new, old, &["metadata", field]);
    }
}

/// Checks new ephemeral containers.
pub fn validate_ephemeral(new: &Value, old: &Value) -> Vec<FieldError> {
    if old.has(&["metadata", "annotations", annotations::MIRROR]) {
        let detail = "static pods do not support ephemeral containers";
        return vec![FieldError::forbidden(&Path::new(""), detail)];
    }
    let mut errors = validate::pod(new);
    let path = Path::new("spec").child("ephemeralContainers");
    let at = ["spec", "ephemeralContainers"];
    for before in old.list_at(&at) {
        let name = before.str_at(&["name"]);
        let after = new.list_at(&at).iter();
        let after = after.into_iter().rfind(|one| one.str_at(&["name"]) == name);
        match after {
            None => {
                let detail = format!(
                    "existing ephemeral containers {} may not be removed\n",
                    quote(name)
                );
                errors.push(FieldError::forbidden(&path, detail));
            }
            Some(after) if after != before => {
                let detail = format!(
                    "existing ephemeral containers {} may not be changed\n{}",
                    quote(name),
                    update::differences(before, after)
                );
                errors.push(FieldError::forbidden(&path, detail));
            }
            Some(_) => {}
        }
    }
    errors
}

/// Checks new resources.
pub fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let nothing = Path::new("");
    if old.has(&["metadata", "annotations", annotations::MIRROR]) {
        return vec![FieldError::forbidden(
            &nothing,
            "static pods cannot be resized",
        )];
    }
    if old.str_at(&["spec", "os", "name"]) == "windows" {
        return vec![FieldError::forbidden(
            &nothing,
            "windows pods cannot be resized",
        )];
    }
    let path = Path::new("spec");
    let mut errors = validate::pod(new);
    let class = match old.str_at(&["status", "qosClass"]) {
        "" => qos::class(old),
        class => class,
    };
    if class != qos::class(new) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        let value = new.str_at(&["status", "qosClass"]);
        errors.push(FieldError::invalid(&path, value, detail));
    }
    let statuses = old.list_at(&["status", "containerStatuses"]).iter();
    let mut running = statuses.filter(|status| status.has(&["state", "running"]));
    if running
        .next()
        .is_some_and(|status| !status.has(&["resources"]))
    {
        let detail = "Pod running on node without support for resize";
        errors.push(FieldError::forbidden(&path, detail));
    }
    let mut rest = new.get("spec").cloned().unwrap_or_default();
    let empty = Value::object();
    let old_spec = old.get("spec").unwrap_or(&empty);
    whole(&mut rest, old_spec, &path, &mut errors);
    let ordering = order(new, old, &path);
    if !ordering.is_empty() {
        errors.extend(ordering);
        return errors;
    }
    for list in ["initContainers", "containers"] {
        let before = old_spec.list_at(&[list]);
        let after = new.list_at(&["spec", list]);
        for (index, (before, after)) in before.iter().zip(after).enumerate() {
            let at = path.child(list).index(index).child("resources");
            for (name, words) in [
                ("requests", "resource requests"),
                ("limits", "resource limits"),
            ] {
                if removed(before, after, &["resources", name]) {
                    let detail = format!("{words} cannot be removed");
                    errors.push(FieldError::forbidden(&at.child(name), detail));
                }
            }
        }
    }
    one_by_one(&mut rest, old_spec, &path, &mut errors);
    if errors.is_empty() && rest != *old_spec {
        let detail = "only cpu and memory resources are mutable";
        errors.push(FieldError::forbidden(&path, detail));
    }
    errors
}

/// Checks the pod-level resources.
fn whole(rest: &mut Value, old: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let count = |spec: &Value| {
        let lists = ["requests", "limits"].iter();
        lists
            .map(|list| spec.fields_at(&["resources", list]).count())
            .sum::<usize>()
    };
    if count(rest) + count(old) == 0 {
        return;
    }
    let at = path.child("resources");
    if old.has(&["resources"]) && !rest.has(&["resources"]) {
        let detail = "pod-level resources cannot be removed";
        errors.push(FieldError::forbidden(&at, detail));
        return;
    }
    for list in ["requests", "limits"] {
        if removed(old, rest, &["resources", list]) {
            let detail = format!("pod-level resource {list} cannot be removed");
            errors.push(FieldError::forbidden(&at.child(list), detail));
        }
    }
    keep_sizes(rest, old);
    if !old.has(&["resources"]) && count(rest) == 0 {
        rest.remove(&["resources"]);
    }
    if rest.get("resources") != old.get("resources") {
        let detail = "only cpu and memory resources are mutable at pod-level";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn one_by_one(rest: &mut Value, old: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for list in LISTS {
        let before = old.list_at(&[list]);
        for (index, (after, before)) in rest.list_at_mut(&[list]).iter_mut().zip(before).enumerate()
        {
            let changed = after != before;
            let policies = after.get("resizePolicy").cloned();
            keep_sizes(after, before);
            let (at, detail) = match list {
                "containers" => (path.clone(), "only cpu and memory resources are mutable"),
                _ => (
                    path.child(list).index(index),
                    "only cpu and memory resources for init or sidecar containers are mutable",
                ),
            };
            if after != before {
                errors.push(FieldError::forbidden(&at, detail));
            }
            let sidecar = after.str_at(&["restartPolicy"]) == "Always";
            if list == "initContainers" && changed && !sidecar {
                let policies = policies.as_ref().and_then(Value::as_array);
                for policy in policies.into_iter().flatten() {
                    if policy.str_at(&["restartPolicy"]) == "RestartContainer" {
                        let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                        errors.push(FieldError::forbidden(&at, detail));
                    }
                }
            }
        }
    }
}

/// Restores CPU and memory.
fn keep_sizes(new: &mut Value, old: &Value) {
    for list in ["limits", "requests"] {
        for name in ["cpu", "memory"] {
            let at = ["resources", list, name];
            match old.at(&at) {
                Some(value) => new.set(&at, value.clone()),
                None => drop(new.remove(&at)),
            }
        }
        let at = ["resources", list];
        if old.at(&at).is_none() && new.fields_at(&at).count() == 0 {
            new.remove(&at);
        }
    }
}

fn removed(before: &Value, after: &Value, path: &[&str]) -> bool {
    let mut names = before.fields_at(path).map(|(name, _)| name);
    names.any(|name| !after.has(&[path, &[name]].concat()))
}

fn order(new: &Value, old: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in LISTS {
        let (before, after) = (old.list_at(&["spec", list]), new.list_at(&["spec", list]));
        if before.len() != after.len() {
            let detail = format!("{list} may not be added or removed on resize");
            errors.push(FieldError::forbidden(&path.child(list), detail));
            continue;
        }
        for (index, (before, after)) in before.iter().zip(after).enumerate() {
            if before.get("name") != after.get("name") {
                let at = path.child(list).index(index).child("name");
                let detail = format!("{list} may not be renamed or reordered on resize");
                errors.push(FieldError::forbidden(&at, detail));
            }
        }
    }
    errors
}
