//! Which volume suits which claim. Pure.

use std::sync::Arc;

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::meta;

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// The class a claim asks for; empty for none.
pub fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    annotation(&claim.metadata, CLASS_ANNOTATION)
        .or_else(|| claim.spec.as_ref()?.storage_class_name.as_deref())
        .unwrap_or_default()
}

/// Whether a claim says anything about a class, be it that it wants none.
pub fn names_class(claim: &PersistentVolumeClaim) -> bool {
    let spec = claim.spec.as_ref();
    annotation(&claim.metadata, CLASS_ANNOTATION).is_some()
        || spec.is_some_and(|spec| spec.storage_class_name.is_some())
}

pub fn volume_class(volume: &PersistentVolume) -> &str {
    annotation(&volume.metadata, CLASS_ANNOTATION)
        .or_else(|| volume.spec.as_ref()?.storage_class_name.as_deref())
        .unwrap_or_default()
}

/// Whether a volume is, or was before the claim existed, meant for this claim.
pub fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && match reference.uid.as_deref() {
                None | Some("") => true,
                uid => uid == claim.metadata.uid.as_deref(),
            }
    })
}

/// The volume made for the claim, else the smallest one that will do and has the fewest access
/// modes to spare. A claim that waits for its first consumer only gets one made for it.
pub fn best_match<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [Arc<PersistentVolume>],
    delayed: bool,
) -> Option<&'a Arc<PersistentVolume>> {
    let usable = |volume: &&Arc<PersistentVolume>| {
        let free = volume
            .spec
            .as_ref()
            .is_none_or(|spec| spec.claim_ref.is_none());
        (free || is_bound_to(volume, claim))
            && volume.metadata.deletion_timestamp.is_none()
            && capacity(volume) >= request(claim)
            && mode(volume) == claim_mode(claim)
            && attributes(volume) == claim_attributes(claim)
            && has_access_modes(volume, claim)
    };
    let made_for_it = volumes
        .iter()
        .filter(usable)
        .find(|volume| is_bound_to(volume, claim));
    if made_for_it.is_some() || delayed {
        return made_for_it;
    }
    volumes
        .iter()
        .filter(usable)
        .filter(|volume| {
            let status = volume.status.as_ref();
            status.and_then(|status| status.phase.as_deref()) == Some("Available")
                && volume_class(volume) == claim_class(claim)
                && selector_matches(claim, volume)
        })
        .min_by_key(|volume| (access_modes(volume).len(), capacity(volume)))
}

/// Why a volume that the claim names does not do.
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if volume.metadata.deletion_timestamp.is_some() {
        return Some(format!("the volume is marked for deletion {name:?}"));
    }
    let problem = if capacity(volume) < request(claim) {
        "requested PV is too small"
    } else if volume_class(volume) != claim_class(claim) {
        "storageClassName does not match"
    } else if attributes(volume) != claim_attributes(claim) {
        "volumeAttributesClassName does not match"
    } else if mode(volume) != claim_mode(claim) {
        "incompatible volumeMode"
    } else if !has_access_modes(volume, claim) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(problem.to_string())
}

pub fn mode(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.volume_mode.as_deref())
        .unwrap_or("Filesystem")
}

pub fn claim_mode(claim: &PersistentVolumeClaim) -> &str {
    let spec = claim.spec.as_ref();
    spec.and_then(|spec| spec.volume_mode.as_deref())
        .unwrap_or("Filesystem")
}

pub fn annotation<'a>(
    meta: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    name: &str,
) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

fn capacity(volume: &PersistentVolume) -> Quantity {
    let text = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    quantity(text.map(|text| text.0.as_str()))
}

fn request(claim: &PersistentVolumeClaim) -> Quantity {
    let text = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
    quantity(text.map(|text| text.0.as_str()))
}

fn quantity(text: Option<&str>) -> Quantity {
    text.and_then(|text| Quantity::parse(text).ok())
        .unwrap_or_else(|| Quantity::from_milli(0))
}

fn attributes(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.volume_attributes_class_name.as_deref())
        .unwrap_or_default()
}

fn claim_attributes(claim: &PersistentVolumeClaim) -> &str {
    let spec = claim.spec.as_ref();
    spec.and_then(|spec| spec.volume_attributes_class_name.as_deref())
        .unwrap_or_default()
}

fn access_modes(volume: &PersistentVolume) -> &[String] {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.access_modes.as_deref())
        .unwrap_or_default()
}

fn has_access_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let wanted = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.access_modes.as_ref());
    wanted
        .into_iter()
        .flatten()
        .all(|mode| access_modes(volume).contains(mode))
}

fn selector_matches(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_none_or(|selector| {
        let labels = volume.metadata.labels.clone().unwrap_or_default();
        // An empty selector takes any volume.
        *selector == LabelSelector::default() || meta::selects(selector, &labels)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(spec: serde_json::Value) -> PersistentVolumeClaim {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "data", "namespace": "default", "uid": "c"}, "spec": spec,
        }))
        .unwrap()
    }

    fn volume(
        name: &str,
        size: &str,
        modes: &[&str],
        extra: serde_json::Value,
    ) -> Arc<PersistentVolume> {
        let mut spec = serde_json::json!({"capacity": {"storage": size}, "accessModes": modes});
        for (key, value) in extra.as_object().unwrap() {
            spec[key] = value.clone();
        }
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "labels": {"disk": name}}, "spec": spec,
                "status": {"phase": "Available"},
            }))
            .unwrap(),
        )
    }

    fn found(
        claim: &PersistentVolumeClaim,
        volumes: &[Arc<PersistentVolume>],
        delayed: bool,
    ) -> Option<String> {
        best_match(claim, volumes, delayed)?.metadata.name.clone()
    }

    #[test]
    fn the_smallest_that_suits_wins_and_the_one_made_for_it_before_all() {
        let none = serde_json::json!({});
        let wanted = claim(serde_json::json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}));
        let mut volumes = vec![
            volume("small", "512Mi", &["ReadWriteOnce"], none.clone()),
            volume(
                "many",
                "1Gi",
                &["ReadWriteOnce", "ReadOnlyMany"],
                none.clone(),
            ),
            volume("big", "5Gi", &["ReadWriteOnce"], none.clone()),
            volume("right", "2Gi", &["ReadWriteOnce"], none.clone()),
            volume(
                "classy",
                "1Gi",
                &["ReadWriteOnce"],
                serde_json::json!({"storageClassName": "x"}),
            ),
            volume(
                "block",
                "1Gi",
                &["ReadWriteOnce"],
                serde_json::json!({"volumeMode": "Block"}),
            ),
        ];
        assert_eq!(found(&wanted, &volumes, false).as_deref(), Some("right"));
        assert_eq!(found(&wanted, &volumes, true), None);
        let reserved = serde_json::json!({"claimRef": {"name": "data", "namespace": "default"}});
        volumes.push(volume("reserved", "9Gi", &["ReadWriteOnce"], reserved));
        assert_eq!(found(&wanted, &volumes, false).as_deref(), Some("reserved"));
        assert_eq!(found(&wanted, &volumes, true).as_deref(), Some("reserved"));
        let picky = claim(serde_json::json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "selector": {"matchLabels": {"disk": "big"}}}));
        assert_eq!(found(&picky, &volumes[..6], false).as_deref(), Some("big"));
    }

    #[test]
    fn a_named_volume_must_suit_too() {
        let wanted = claim(serde_json::json!({
            "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}));
        let check =
            |size: &str, modes: &[&str], extra: serde_json::Value, expected: Option<&str>| {
                let volume = volume("v", size, modes, extra);
                assert_eq!(mismatch(&volume, &wanted).as_deref(), expected);
            };
        let none = serde_json::json!({});
        check("1Gi", &["ReadWriteMany"], none.clone(), None);
        check(
            "1Mi",
            &["ReadWriteMany"],
            none.clone(),
            Some("requested PV is too small"),
        );
        check(
            "1Gi",
            &["ReadWriteOnce"],
            none,
            Some("incompatible accessMode"),
        );
        let class = serde_json::json!({"storageClassName": "x"});
        check(
            "1Gi",
            &["ReadWriteMany"],
            class,
            Some("storageClassName does not match"),
        );
    }
}
