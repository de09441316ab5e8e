//! Validation of updates of a Pod's status.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, immutable, names};
use crate::repeats::Seen;
use crate::strategy::checks::invalid_number;
use crate::strategy::pod::{annotations, validate};

const STATUSES: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];
const NOT_BACK: &str = "may not be transitioned to non-terminated state";

/// Carries over the generations that the writer does not know of.
pub fn prepare(new: &mut Value, old: &Value) {
    let number = |value: &Value, path: &[&str]| value.i64_at(path).unwrap_or(0);
    let at = ["status", "observedGeneration"];
    if number(new, &at) == 0 && number(old, &at) != 0 {
        new.set(&at, number(old, &at));
    }
    let at = ["observedGeneration"];
    // The conditions of each type in their order; each is used once.
    let mut before: BTreeMap<&str, VecDeque<i64>> = BTreeMap::new();
    for condition in old.list_at(&["status", "conditions"]) {
        let of_type = before.entry(condition.str_at(&["type"])).or_default();
        of_type.push_back(number(condition, &at));
    }
    for condition in new.list_at_mut(&["status", "conditions"]) {
        let kind = condition.str_at(&["type"]);
        let Some(generation) = before.get_mut(kind).and_then(VecDeque::pop_front) else {
            continue;
        };
        if number(condition, &at) == 0 && generation != 0 {
            condition.set(&at, generation);
        }
    }
}

/// Checks an update of a Pod's status.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("status");
    let mut errors = annotations::validate_update(new, old);
    conditions(new, &path.child("conditions"), &mut errors);
    nominated(new, old, &path.child("nominatedNodeName"), &mut errors);
    let generation = new.i64_at(&["status", "observedGeneration"]).unwrap_or(0);
    if generation < 0 {
        let at = path.child("observedGeneration");
        let detail = "must be a non-negative integer";
        errors.push(FieldError::invalid(&at, generation, detail));
    }
    let at = ["status", "qosClass"];
    errors.extend(immutable(new.at(&at), old.at(&at), &path.child("qosClass")));
    for (list, containers) in STATUSES {
        transitions(new, old, list, containers, &path.child(list), &mut errors);
    }
    claims(new, &path.child("resourceClaimStatuses"), &mut errors);
    addresses(new, "podIPs", &path.child("podIPs"), &mut errors);
    host_addresses(new, &path.child("hostIPs"), &mut errors);
    for (list, _) in STATUSES {
        users(new, list, &path.child(list), &mut errors);
    }
    for (list, containers) in STATUSES {
        health(new, list, containers, &path.child(list), &mut errors);
    }
    errors
}

fn conditions(new: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for (index, condition) in new.list_at(&["status", "conditions"]).iter().enumerate() {
        let at = path.index(index);
        let generation = condition.i64_at(&["observedGeneration"]).unwrap_or(0);
        if generation < 0 {
            let at = at.child("observedGeneration");
            let detail = "must be a non-negative integer";
            errors.push(FieldError::invalid(&at, generation, detail));
        }
        let kind = condition.str_at(&["type"]);
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            let wrong = names::qualified_name(kind);
            errors.extend(all_invalid(&at.child("Type"), kind, wrong));
        }
    }
}

fn nominated(new: &Value, old: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = ["status", "nominatedNodeName"];
    let name = new.str_at(&at);
    if name.is_empty() || name == old.str_at(&at) {
        return;
    }
    errors.extend(all_invalid(path, name, names::dns_subdomain(name)));
    if !old.str_at(&["spec", "nodeName"]).is_empty() {
        let detail = "may not be set on pods that are already bound to a node";
        errors.push(FieldError::forbidden(path, detail));
    }
}

/// A container that has ended for good does not come back.
fn transitions(
    new: &Value,
    old: &Value,
    list: &str,
    containers: &str,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let spec = old.get("spec").unwrap_or(&Value::Null);
    if containers != "ephemeralContainers" && all_may_restart(spec) {
        return;
    }
    let running = new.list_at(&["status", list]).iter();
    let running = running.filter(|status| !status.has(&["state", "terminated"]));
    let running: Seen<&str> = running.map(|status| status.str_at(&["name"])).collect();
    let mut by_name: BTreeMap<&str, &Value> = BTreeMap::new();
    for container in spec.list_at(&[containers]) {
        by_name
            .entry(container.str_at(&["name"]))
            .or_insert(container);
    }
    for (index, before) in old.list_at(&["status", list]).iter().enumerate() {
        let Some(terminated) = before.at(&["state", "terminated"]) else {
            continue;
        };
        let name = before.str_at(&["name"]);
        if !running.contains(&name) {
            continue;
        }
        let code = terminated.i64_at(&["exitCode"]).unwrap_or(0);
        let container = by_name.get(name);
        let allowed = containers != "ephemeralContainers"
            && container.is_some_and(|container| may_restart(container, spec, code));
        if !allowed {
            let at = path.index(index).child("state");
            errors.push(FieldError::forbidden(&at, NOT_BACK));
        }
    }
}

/// Whether some container may have all of them restarted.
fn all_may_restart(spec: &Value) -> bool {
    ["containers", "initContainers"].iter().any(|list| {
        let containers = spec.list_at(&[list]).iter();
        let mut rules = containers.flat_map(|container| container.list_at(&["restartPolicyRules"]));
        rules.any(|rule| rule.str_at(&["action"]) == "RestartAllContainers")
    })
}

fn may_restart(container: &Value, spec: &Value, code: i64) -> bool {
    for rule in container.list_at(&["restartPolicyRules"]) {
        let values = rule.list_at(&["exitCodes", "values"]);
        let listed = values.iter().any(|value| value.as_i64() == Some(code));
        let hit = match rule.str_at(&["exitCodes", "operator"]) {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        if hit {
            return rule.str_at(&["action"]) == "Restart";
        }
    }
    let policy = match container.str_at(&["restartPolicy"]) {
        "" => spec.str_at(&["restartPolicy"]),
        own => own,
    };
    match policy {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

fn claims(new: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let known = new.list_at(&["spec", "resourceClaims"]).iter();
    let known: Seen<&str> = known.map(|claim| claim.str_at(&["name"])).collect();
    let mut seen = Seen::new();
    let statuses = new.list_at(&["status", "resourceClaimStatuses"]);
    for (index, status) in statuses.iter().enumerate() {
        let at = path.index(index);
        let name = status.str_at(&["name"]);
        if !known.contains(&name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.push(FieldError::invalid(&at.child("name"), name, detail));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
        if let Some(claim) = status.get("resourceClaimName").and_then(Value::as_str) {
            let wrong = names::dns_subdomain(claim);
            errors.extend(all_invalid(&at.child("resourceClaimName"), claim, wrong));
        }
    }
}

fn addresses(new: &Value, list: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let entries = new.list_at(&["status", list]);
    let texts: Vec<&str> = entries.iter().map(|entry| entry.str_at(&["ip"])).collect();
    for (index, text) in texts.iter().enumerate() {
        errors.extend(validate::address(text, &path.index(index)));
    }
    if texts.len() > 1 {
        let parsed: Vec<Option<IpAddr>> = texts.iter().map(|text| text.parse().ok()).collect();
        let has = |six: bool| {
            parsed
                .iter()
                .flatten()
                .any(|address| address.is_ipv6() == six)
        };
        if !(has(true) && has(false)) || texts.len() > 2 {
            let detail = "may specify no more than one IP for each IP family";
            errors.push(FieldError::invalid(path, entries.to_vec(), detail));
        }
    }
}

fn host_addresses(new: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(first) = new.list_at(&["status", "hostIPs"]).first() else {
        return;
    };
    let first = first.str_at(&["ip"]);
    if first != new.str_at(&["status", "hostIP"]) {
        let at = path.index(0).child("ip");
        errors.push(FieldError::invalid(&at, first, "must be equal to `hostIP`"));
    }
    addresses(new, "hostIPs", path, errors);
}

fn users(new: &Value, list: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let windows = new.str_at(&["spec", "os", "name"]) == "windows";
    for (index, status) in new.list_at(&["status", list]).iter().enumerate() {
        let Some(user) = status
            .at(&["user", "linux"])
            .filter(|value| !value.is_null())
        else {
            continue;
        };
        let at = path.index(index).child("user").child("linux");
        if windows {
            errors.push(FieldError::forbidden(
                &at,
                "cannot be set for a windows pod",
            ));
            continue;
        }
        let check = |number: i64, at: &Path| {
            let wrong = names::in_range(number, 0, i32::MAX.into());
            invalid_number(at, number, wrong)
        };
        for name in ["uid", "gid"] {
            let number = user.i64_at(&[name]).unwrap_or(0);
            errors.extend(check(number, &at.child(name)));
        }
        for (index, group) in user.list_at(&["supplementalGroups"]).iter().enumerate() {
            let at = at.child("supplementalGroups").index(index);
            errors.extend(check(group.as_i64().unwrap_or(0), &at));
        }
    }
}

/// `allocatedResourcesStatus` speaks of what the container asks for.
fn health(new: &Value, list: &str, containers: &str, path: &Path, errors: &mut Vec<FieldError>) {
    for (index, status) in new.list_at(&["status", list]).iter().enumerate() {
        let resources = status.list_at(&["allocatedResourcesStatus"]);
        let at = path.index(index).child("allocatedResourcesStatus");
        if resources.is_empty() {
            continue;
        }
        if containers == "ephemeralContainers" {
            let detail = "must not be specified in container status";
            errors.push(FieldError::forbidden(&at, detail));
            continue;
        }
        for (index, resource) in resources.iter().enumerate() {
            let mut seen = Seen::new();
            for (place, entry) in resource.list_at(&["resources"]).iter().enumerate() {
                let at = at.index(index).child("resources").index(place);
                let id = entry.str_at(&["resourceID"]);
                if !seen.insert(id) {
                    errors.push(FieldError::duplicate(&at.child("resourceID"), id));
                }
                let health = entry.str_at(&["health"]);
                let supported = ["Healthy", "Unhealthy", "Unknown"];
                if !supported.contains(&health) {
                    let at = at.child("health");
                    errors.push(FieldError::not_supported(&at, health, &supported));
                }
            }
        }
    }
}
