//! The three lists of containers in a pod's spec.

use crate::document::Value;

/// Every container with the name of its list and its index in it, in upstream's order.
pub fn all_containers(spec: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.into_iter().flat_map(move |list| {
        let containers = spec.list_at(&[list]).iter().enumerate();
        containers.map(move |(index, container)| (list, index, container))
    })
}
