//! Which volume suits which claim, and which node which volume. Pure.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSIStorageCapacity, StorageClass},
};

use crate::{plugins::node_affinity::term_matches, selecting::selector_of};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// The class a claim asks for; empty for none.
pub fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    let annotations = claim.metadata.annotations.as_ref();
    let named = annotations.and_then(|all| all.get(CLASS_ANNOTATION));
    let spec = claim.spec.as_ref();
    named
        .or_else(|| spec?.storage_class_name.as_ref())
        .map_or("", String::as_str)
}

pub fn volume_class(volume: &PersistentVolume) -> &str {
    let annotations = volume.metadata.annotations.as_ref();
    let named = annotations.and_then(|all| all.get(CLASS_ANNOTATION));
    let spec = volume.spec.as_ref();
    named
        .or_else(|| spec?.storage_class_name.as_ref())
        .map_or("", String::as_str)
}

/// Whether the volume names this claim.
pub fn is_meant_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let spec = volume.spec.as_ref();
    let reference = spec.and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && match reference.uid.as_deref() {
                None | Some("") => true,
                uid => uid == claim.metadata.uid.as_deref(),
            }
    })
}

/// What a volume must fulfil even if it names the claim.
pub fn suits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(spec), Some(wanted)) = (volume.spec.as_ref(), claim.spec.as_ref()) else {
        return false;
    };
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let attributes = |class: &Option<String>| class.clone().unwrap_or_default();
    (spec.claim_ref.is_none() || is_meant_for(volume, claim))
        && volume.metadata.deletion_timestamp.is_none()
        && volume_class(volume) == claim_class(claim)
        && capacity(volume) >= request(claim)
        && mode(&spec.volume_mode) == mode(&wanted.volume_mode)
        && attributes(&spec.volume_attributes_class_name)
            == attributes(&wanted.volume_attributes_class_name)
}

/// What a volume must fulfil besides if it names no claim.
pub fn is_free_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(spec), Some(wanted)) = (volume.spec.as_ref(), claim.spec.as_ref()) else {
        return false;
    };
    let status = volume.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let labels = volume.metadata.labels.as_ref();
    let offered = spec.access_modes.as_deref().unwrap_or_default();
    phase == Some("Available")
        && wanted.selector.as_ref().is_none_or(|selector| {
            selector_of(Some(selector)).matches(|name| labels?.get(name).map(String::as_str))
        })
        && wanted
            .access_modes
            .iter()
            .flatten()
            .all(|mode| offered.contains(mode))
}

/// Whether pods on the node can use the volume.
pub fn is_usable_on(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| {
        let mut terms = required.node_selector_terms.iter();
        terms.any(|term| term_matches(term, node))
    })
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
    amount.is_some_and(|amount| amount >= request(claim))
        && capacity.node_topology.is_some()
        && selector_of(capacity.node_topology.as_ref())
            .matches(|name| labels?.get(name).map(String::as_str))
}

pub fn capacity(volume: &PersistentVolume) -> Quantity {
    let spec = volume.spec.as_ref();
    let capacity = spec.and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    quantity(capacity.map(|text| text.0.as_str()))
}

pub fn request(claim: &PersistentVolumeClaim) -> Quantity {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let request = resources.and_then(|resources| resources.requests.as_ref()?.get("storage"));
    quantity(request.map(|text| text.0.as_str()))
}

fn quantity(text: Option<&str>) -> Quantity {
    let parsed = text.and_then(|text| Quantity::parse(text).ok());
    parsed.unwrap_or_default()
}
