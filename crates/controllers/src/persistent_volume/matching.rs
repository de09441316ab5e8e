//! Which volume suits which claim. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use semantics::volume::{
    access_modes, capacity, claim_class, has_wanted_access_modes, has_wanted_attributes,
    has_wanted_mode, is_bound_to, is_selected_by, request, volume_class,
};

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
            && has_wanted_mode(volume, claim)
            && has_wanted_attributes(volume, claim)
            && has_wanted_access_modes(volume, claim)
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
                && is_selected_by(volume, claim)
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
    } else if !has_wanted_attributes(volume, claim) {
        "volumeAttributesClassName does not match"
    } else if !has_wanted_mode(volume, claim) {
        "incompatible volumeMode"
    } else if !has_wanted_access_modes(volume, claim) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(problem.to_string())
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
    fn the_reserved_volume_is_chosen_or_else_the_smallest_that_fits() {
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
