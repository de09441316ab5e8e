//! Whether a volume is in use. Pure.

use k8s_openapi::api::core::v1::PersistentVolume;

/// Whether a claim is bound to the volume.
pub fn is_in_use(volume: &PersistentVolume) -> bool {
    let status = volume.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some("Bound")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bound_volume_is_in_use() {
        for (phase, expected) in [("Bound", true), ("Available", false), ("Released", false)] {
            let volume: PersistentVolume =
                serde_json::from_value(serde_json::json!({"status": {"phase": phase}})).unwrap();
            assert_eq!(is_in_use(&volume), expected, "{phase}");
        }
        assert!(!is_in_use(&PersistentVolume::default()));
    }
}
