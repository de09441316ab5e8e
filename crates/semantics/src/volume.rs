//! Storage classes, sizes and modes of volumes and claims, and which of them belong together.
//!
//! Upstream decides in package `volume` (`k8s.io/component-helpers/storage/volume`:
//! `GetPersistentVolumeClaimClass`, `GetPersistentVolumeClass`, `IsVolumeBoundToClaim`,
//! `CheckVolumeModeMismatches`, `CheckAccessModes`, `CheckNodeAffinity`).

use api::quantity::Quantity;
use k8s_openapi::{
    api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{label_selector, node_selector};

/// The annotation that named the class before the field did; where it is, it goes first.
pub const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// The class that a claim asks for; empty for none.
pub fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    stated_class(claim).unwrap_or_default()
}

/// The class that a claim asks for, `None` if it says nothing about classes.
pub fn stated_class(claim: &PersistentVolumeClaim) -> Option<&str> {
    let field = || claim.spec.as_ref()?.storage_class_name.as_deref();
    class_annotation(&claim.metadata).or_else(field)
}

/// The class of a volume; empty for none.
pub fn volume_class(volume: &PersistentVolume) -> &str {
    let field = || volume.spec.as_ref()?.storage_class_name.as_deref();
    class_annotation(&volume.metadata)
        .or_else(field)
        .unwrap_or_default()
}

/// Whether the volume refers to this claim; without a uid it was reserved before the claim existed.
pub fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
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

/// The size of a volume; zero if it has none.
pub fn capacity(volume: &PersistentVolume) -> Quantity {
    let capacity = || {
        let list = volume.spec.as_ref()?.capacity.as_ref()?;
        Quantity::parse(&list.get("storage")?.0).ok()
    };
    capacity().unwrap_or_default()
}

/// The size that a claim asks for; zero if it asks for none.
pub fn request(claim: &PersistentVolumeClaim) -> Quantity {
    let request = || {
        let resources = claim.spec.as_ref()?.resources.as_ref()?;
        Quantity::parse(&resources.requests.as_ref()?.get("storage")?.0).ok()
    };
    request().unwrap_or_default()
}

/// Whether the claim asks for a file system or for a block device.
pub fn claim_mode(claim: &PersistentVolumeClaim) -> &str {
    let spec = claim.spec.as_ref();
    spec.and_then(|spec| spec.volume_mode.as_deref())
        .unwrap_or("Filesystem")
}

/// Whether both are file systems, or both are block devices.
pub fn has_wanted_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let offered = volume.spec.as_ref();
    let offered = offered.and_then(|spec| spec.volume_mode.as_deref());
    offered.unwrap_or("Filesystem") == claim_mode(claim)
}

/// Whether both name the same VolumeAttributesClass, or none.
pub fn has_wanted_attributes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let offered = volume.spec.as_ref();
    let offered = offered.and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let wanted = claim.spec.as_ref();
    let wanted = wanted.and_then(|spec| spec.volume_attributes_class_name.as_deref());
    offered.unwrap_or_default() == wanted.unwrap_or_default()
}

/// The access modes that the volume offers.
pub fn access_modes(volume: &PersistentVolume) -> &[String] {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.access_modes.as_deref())
        .unwrap_or_default()
}

/// Whether the volume offers all access modes that the claim asks for.
pub fn has_wanted_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let spec = claim.spec.as_ref();
    let wanted = spec.and_then(|spec| spec.access_modes.as_ref());
    let offered = access_modes(volume);
    wanted
        .into_iter()
        .flatten()
        .all(|mode| offered.contains(mode))
}

/// Whether the claim's selector, if it has one, matches the labels of the volume.
pub fn is_selected_by(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_none_or(|selector| match &volume.metadata.labels {
        Some(labels) => label_selector::matches(selector, labels),
        None => label_selector::matches(selector, &Default::default()),
    })
}

/// Whether pods on the node can use the volume, by the labels of the node.
pub fn is_usable_on(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| {
        node_selector::matches_labels(required, node.metadata.labels.as_ref())
    })
}

fn class_annotation(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(CLASS_ANNOTATION).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(spec: Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "data", "namespace": "ns", "uid": "c"}, "spec": spec,
        }))
        .expect("a claim")
    }

    fn volume(spec: Value) -> PersistentVolume {
        serde_json::from_value(json!({"metadata": {"labels": {"disk": "ssd"}}, "spec": spec}))
            .expect("a volume")
    }

    #[test]
    fn the_annotation_goes_before_the_field() {
        let mut claim = claim(json!({"storageClassName": "new"}));
        assert_eq!(claim_class(&claim), "new");
        claim.metadata.annotations = Some([(CLASS_ANNOTATION.to_owned(), String::new())].into());
        assert_eq!((claim_class(&claim), stated_class(&claim)), ("", Some("")));
        let mut volume = volume(json!({"storageClassName": "new"}));
        volume.metadata.annotations =
            Some([(CLASS_ANNOTATION.to_owned(), "old".to_owned())].into());
        assert_eq!(volume_class(&volume), "old");
        assert_eq!(stated_class(&PersistentVolumeClaim::default()), None);
    }

    #[test]
    fn a_volume_is_bound_by_name_and_uid() {
        let claim = claim(json!({}));
        let bound = |name: &str, uid: Option<&str>| {
            let reference = json!({"name": name, "namespace": "ns", "uid": uid});
            is_bound_to(&volume(json!({"claimRef": reference})), &claim)
        };
        assert!(bound("data", Some("c")));
        assert!(bound("data", None));
        assert!(bound("data", Some("")));
        assert!(!bound("data", Some("d")));
        assert!(!bound("other", None));
        assert!(!is_bound_to(&volume(json!({})), &claim));
    }

    #[test]
    fn modes_sizes_and_selectors_are_compared() {
        let plain = volume(json!({"capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}));
        let wanting = |spec: Value| claim(spec);
        assert!(has_wanted_mode(
            &plain,
            &wanting(json!({"volumeMode": "Filesystem"}))
        ));
        assert!(!has_wanted_mode(
            &plain,
            &wanting(json!({"volumeMode": "Block"}))
        ));
        let modes = |modes: &[&str]| {
            has_wanted_access_modes(&plain, &wanting(json!({"accessModes": modes})))
        };
        assert!(modes(&[]) && modes(&["ReadOnlyMany"]));
        assert!(!modes(&["ReadOnlyMany", "ReadWriteMany"]));
        let attributes = wanting(json!({"volumeAttributesClassName": "gold"}));
        assert!(!has_wanted_attributes(&plain, &attributes));
        assert!(has_wanted_attributes(
            &plain,
            &wanting(json!({"volumeAttributesClassName": ""}))
        ));
        let asking = wanting(json!({"resources": {"requests": {"storage": "1024Mi"}}}));
        assert_eq!(capacity(&plain), request(&asking));
        for (selector, expected) in [
            (Value::Null, true),
            (json!({}), true),
            (json!({"matchLabels": {"disk": "ssd"}}), true),
            (json!({"matchLabels": {"disk": "hdd"}}), false),
        ] {
            let claim = wanting(json!({"selector": selector}));
            assert_eq!(is_selected_by(&plain, &claim), expected, "{selector}");
        }
    }

    #[test]
    fn node_affinity_of_a_volume_looks_at_labels() {
        let affine = volume(json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}}));
        let node = |zone: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"zone": zone}}}))
                .expect("a node")
        };
        assert!(is_usable_on(&affine, &node("a")));
        assert!(!is_usable_on(&affine, &node("b")));
        assert!(is_usable_on(&volume(json!({})), &node("b")));
    }
}
