//! Whether the node has room: requests of this pod and the others against what can be allocated.
//! Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;

use super::Rejection;
use crate::{node::Capacity, resources};

/// How much of what is missing, in the resource's own unit (thousandths for cpu).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub resource: String,
    pub amount: i64,
}

const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

pub(super) fn check(pod: &Pod, others: &[&Arc<Pod>], capacity: &Capacity) -> Vec<Rejection> {
    let available: BTreeMap<&str, i64> = BTreeMap::from([
        ("cpu", capacity.allocatable_milli_cpu()),
        ("memory", capacity.allocatable_memory()),
        ("ephemeral-storage", capacity.allocatable_storage()),
    ]);
    let mut rejections = Vec::new();
    let count = others.len() as i64;
    if count + 1 > capacity.pods() {
        rejections.push(insufficient("pods", 1, count, capacity.pods()));
    }
    for resource in RESOURCES {
        let requested = resources::pod_request(pod, resource);
        if requested == 0 {
            continue;
        }
        let used: i64 = others
            .iter()
            .map(|other| resources::pod_request(other, resource))
            .sum();
        let limit = available[resource];
        if requested > limit - used {
            rejections.push(insufficient(resource, requested, used, limit));
        }
    }
    rejections
}

fn insufficient(resource: &str, requested: i64, used: i64, capacity: i64) -> Rejection {
    Rejection {
        reason: format!("OutOf{resource}"),
        message: format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        ),
        shortage: Some(Shortage {
            resource: resource.to_owned(),
            amount: requested - (capacity - used),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(memory: &str) -> Arc<Pod> {
        let pod = serde_json::json!({"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"memory": memory}}}]}});
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn the_number_of_pods_and_memory_are_counted() {
        let capacity = Capacity {
            milli_cpu: 1000,
            memory: 1 << 30,
            storage: 1 << 30,
            max_pods: 2,
            ..Capacity::default()
        };
        let (small, large) = (pod("1Mi"), pod("2Gi"));
        assert!(check(&small, &[&small], &capacity).is_empty());
        let full = check(&large, &[&small, &small], &capacity);
        let reasons: Vec<&str> = full.iter().map(|r| r.reason.as_str()).collect();
        assert_eq!(reasons, ["OutOfpods", "OutOfmemory"]);
    }
}
