//! Which VolumeAttributesClasses a claim or a volume uses. Pure.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

/// The classes a claim asks for, has, or is on its way to.
pub fn of_claim(claim: &PersistentVolumeClaim) -> Vec<String> {
    let wanted = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_attributes_class_name.clone());
    let status = claim.status.as_ref();
    let current = status.and_then(|status| status.current_volume_attributes_class_name.clone());
    let target = status
        .and_then(|status| status.modify_volume_status.as_ref())
        .and_then(|modification| modification.target_volume_attributes_class_name.clone());
    let all = [wanted, current, target].into_iter().flatten();
    all.filter(|name| !name.is_empty()).collect()
}

/// The class a volume has.
pub fn of_volume(volume: &PersistentVolume) -> Vec<String> {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.volume_attributes_class_name.clone())
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_uses_the_class_it_wants_the_one_it_has_and_the_one_it_is_changed_to() {
        let claim: PersistentVolumeClaim = serde_json::from_value(serde_json::json!({
            "spec": {"volumeAttributesClassName": "gold"},
            "status": {"currentVolumeAttributesClassName": "silver",
                "modifyVolumeStatus": {"status": "InProgress",
                    "targetVolumeAttributesClassName": "bronze"}},
        }))
        .unwrap();
        assert_eq!(of_claim(&claim), ["gold", "silver", "bronze"]);
        let plain: PersistentVolumeClaim = serde_json::from_value(serde_json::json!({
            "spec": {"volumeAttributesClassName": ""}}))
        .unwrap();
        assert!(of_claim(&plain).is_empty());
        let volume: PersistentVolume = serde_json::from_value(serde_json::json!({
            "spec": {"volumeAttributesClassName": "gold"}}))
        .unwrap();
        assert_eq!(of_volume(&volume), ["gold"]);
    }
}
