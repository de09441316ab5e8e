//! Whether the node has room: requests of this pod and the others against what can be allocated.
//! Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};

use super::Rejection;
use crate::{capacity::Capacity, resources};

/// How much of what is missing, in the resource's own unit (thousandths for cpu).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub resource: String,
    pub amount: i64,
}

const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

pub(super) fn check(
    pod: &Pod,
    others: &[&Arc<Pod>],
    capacity: &Capacity,
    node: Option<&Node>,
) -> Vec<Rejection> {
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
    rejections.extend(check_extended(pod, others, node));
    rejections
}

/// Resources that others count on this node (devices, huge pages): as the Node's status has them.
/// Those it does not know may be the cluster's and are not looked at.
fn check_extended(pod: &Pod, others: &[&Arc<Pod>], node: Option<&Node>) -> Vec<Rejection> {
    let allocatable = node.and_then(|node| node.status.as_ref()?.allocatable.as_ref());
    resources::requested_names(pod)
        .into_iter()
        .filter(|name| name.contains('/') || name.starts_with("hugepages-"))
        .filter_map(|name| {
            let limit = allocatable?.get(&name).and_then(resources::whole)?;
            let requested = resources::pod_request(pod, &name);
            let used: i64 = others
                .iter()
                .map(|other| resources::pod_request(other, &name))
                .sum();
            (requested > 0 && requested > limit - used)
                .then(|| insufficient(&name, requested, used, limit))
        })
        .collect()
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
        assert!(check(&small, &[&small], &capacity, None).is_empty());
        let full = check(&large, &[&small, &small], &capacity, None);
        let reasons: Vec<&str> = full.iter().map(|r| r.reason.as_str()).collect();
        assert_eq!(reasons, ["OutOfpods", "OutOfmemory"]);
    }

    #[test]
    fn requests_of_extended_resources_are_counted_if_the_node_has_them() {
        let pod = |count: &str| {
            let pod = serde_json::json!({"spec": {"containers": [{"name": "c",
                "resources": {"requests": {"example.com/boat": count, "other.example/x": "9"}}}]}});
            Arc::new(serde_json::from_value::<Pod>(pod).expect("a pod"))
        };
        let node: Node = serde_json::from_value(
            serde_json::json!({"status": {"allocatable": {"example.com/boat": "2"}}}),
        )
        .expect("a node");
        let capacity = Capacity::default();
        assert!(check(&pod("1"), &[&pod("1")], &capacity, Some(&node)).is_empty());
        let refused = check(&pod("2"), &[&pod("1")], &capacity, Some(&node));
        assert_eq!(
            refused[0].message,
            "Node didn't have enough resource: example.com/boat, requested: 2, used: 1, capacity: 2"
        );
        assert_eq!(refused[0].reason, "OutOfexample.com/boat");
    }
}
