//! Pods in a quota: their number, requests and limits while they are not finished.

use std::collections::{BTreeMap, BTreeSet};

use super::number;
use crate::document::Value;
use crate::resources::{Amounts, Counted, List, add, amounts, of_pod};

/// Amounts of pods that have fixed names.
const NAMES: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];

/// Amounts that every container must give when a quota has them.
const DEMANDED: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];

pub(super) fn counts(name: &str) -> bool {
    NAMES.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
        || is_extended(name)
}

/// `requests.` of a resource that is not Kubernetes' own.
fn is_extended(name: &str) -> bool {
    let Some(resource) = name.strip_prefix("requests.") else {
        return false;
    };
    // The whole name is judged: `requests.example.com/gpu` has a domain of its own.
    resource.starts_with("deviceclass.resource.kubernetes.io/")
        || resource.contains('/') && !name.contains("kubernetes.io/")
}

pub(super) fn usage(pod: &Value, now: jiff::Timestamp) -> Amounts {
    let mut usage = Amounts::from([("count/pods".to_string(), number(1))]);
    if !is_over(pod, now) {
        let of = |list: List| of_pod(pod, list, Counted::ContainerStatus);
        let usages = by_quota_name(&of(List::Requests), &of(List::Limits));
        add(&mut usage, &usages);
    }
    usage
}

/// Whether the pod no longer uses anything: it has ended, or its node has not answered for its
/// grace period twice over.
fn is_over(pod: &Value, now: jiff::Timestamp) -> bool {
    if matches!(pod.str_at(&["status", "phase"]), "Failed" | "Succeeded") {
        return true;
    }
    let stamp = pod.str_at(&["metadata", "deletionTimestamp"]).parse();
    let grace = pod.i64_at(&["metadata", "deletionGracePeriodSeconds"]);
    let (Ok(stamp), Some(grace)) = (stamp, grace) else {
        return false;
    };
    let stamp: jiff::Timestamp = stamp;
    let end = stamp.checked_add(jiff::SignedDuration::from_secs(grace));
    end.is_ok_and(|end| now > end)
}

fn by_quota_name(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::from([("pods".to_string(), number(1))]);
    for (name, amount) in requests {
        let own = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if own || name.starts_with("hugepages-") {
            usage.insert(name.clone(), *amount);
        }
        if own || name.starts_with("hugepages-") || name.contains('/') {
            usage.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), *amount);
        }
    }
    usage
}

pub(super) fn missing(required: &[&str], pod: &Value) -> Option<String> {
    if pod.has(&["spec", "resources", "requests"]) || pod.has(&["spec", "resources", "limits"]) {
        return None;
    }
    let demanded: BTreeSet<&str> = DEMANDED
        .into_iter()
        .filter(|name| required.contains(name))
        .collect();
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for list in ["containers", "initContainers"] {
        for container in pod.list_at(&["spec", list]) {
            let given = by_quota_name(
                &amounts(container, &["resources", "requests"]),
                &amounts(container, &["resources", "limits"]),
            );
            for name in demanded.iter().filter(|name| !given.contains_key(**name)) {
                let containers = missing.entry(name).or_default();
                containers.insert(container.str_at(&["name"]));
            }
        }
    }
    if missing.is_empty() {
        return None;
    }
    let told: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| {
            let containers: Vec<&str> = containers.into_iter().collect();
            format!("{name} for: {}", containers.join(","))
        })
        .collect();
    Some(format!("must specify {}", told.join("; ")))
}
