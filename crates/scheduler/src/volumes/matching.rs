//! Which volume suits which claim, and which node which volume. Pure.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSIStorageCapacity, StorageClass},
};
use semantics::{label_selector, volume};

/// Whether a volume meets what every volume of the claim must, also one that is reserved for it.
pub fn suits(candidate: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(spec) = &candidate.spec else {
        return false;
    };
    claim.spec.is_some()
        && (spec.claim_ref.is_none() || volume::is_bound_to(candidate, claim))
        && candidate.metadata.deletion_timestamp.is_none()
        && volume::volume_class(candidate) == volume::claim_class(claim)
        && volume::capacity(candidate) >= volume::request(claim)
        && volume::has_wanted_mode(candidate, claim)
        && volume::has_wanted_attributes(candidate, claim)
}

/// Whether a volume that is not reserved for a claim may be bound to this one.
pub fn is_free_for(candidate: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let status = candidate.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    phase == Some("Available")
        && volume::is_selected_by(candidate, claim)
        && volume::has_wanted_access_modes(candidate, claim)
}

/// Whether volumes of the class can be made for the node.
pub fn is_allowed_on(class: &StorageClass, node: &Node) -> bool {
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    terms.is_empty()
        || terms.iter().any(|term| {
            let expressions = term.match_label_expressions.as_deref().unwrap_or_default();
            !expressions.is_empty()
                && expressions.iter().all(|expression| {
                    let value = labels.get(&expression.key);
                    value.is_some_and(|value| expression.values.contains(value))
                })
        })
}

/// Whether a volume of the claim's size can be made for the node with this room.
pub fn has_room(capacity: &CSIStorageCapacity, claim: &PersistentVolumeClaim, node: &Node) -> bool {
    let amount = capacity.maximum_volume_size.as_ref();
    let amount = amount.or(capacity.capacity.as_ref());
    let amount = amount.and_then(|amount| Quantity::parse(&amount.0).ok());
    let labels = node.metadata.labels.as_ref();
    let topology = capacity.node_topology.as_ref();
    amount.is_some_and(|amount| amount >= volume::request(claim))
        && label_selector::parse(topology).matches(|name| labels?.get(name).map(String::as_str))
}
