//! Fields of features that are disabled in v1.36: dropped from new objects, kept where they exist.

use crate::document::Value;
use crate::strategy::pod::container_lists::all_containers;

/// Drops these fields from a pod spec unless the old one had them.
pub fn drop_closed(spec: &mut Value, old: Option<&Value>) {
    let old_has = |has: fn(&Value) -> bool| old.is_some_and(has);
    if !old_has(has_stop_signal) {
        for list in ["containers", "initContainers"] {
            for container in spec.list_at_mut(&[list]) {
                container.remove(&["lifecycle", "stopSignal"]);
            }
        }
    }
    for kind in ["clusterTrustBundle", "podCertificate"] {
        if old.is_some_and(|old| has_projection(old, kind)) {
            continue;
        }
        for volume in spec.list_at_mut(&["volumes"]) {
            for source in volume.list_at_mut(&["projected", "sources"]) {
                source.remove(&[kind]);
            }
        }
    }
    if !old_has(|old| old.has(&["schedulingGroup"])) {
        spec.remove(&["schedulingGroup"]);
    }
}

fn has_stop_signal(spec: &Value) -> bool {
    all_containers(spec).any(|(_, _, container)| container.has(&["lifecycle", "stopSignal"]))
}

fn has_projection(spec: &Value, kind: &str) -> bool {
    let volumes = spec.list_at(&["volumes"]).iter();
    let mut sources = volumes.flat_map(|volume| volume.list_at(&["projected", "sources"]));
    sources.any(|source| source.has(&[kind]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projections_of_disabled_features_are_dropped_from_new_pods_and_kept_in_old_ones() {
        let spec = crate::document!({"volumes": [{"name": "a", "projected": {"sources": [
            {"clusterTrustBundle": {"name": "b", "path": "c"}},
            {"podCertificate": {"signerName": "d", "keyType": "ED25519"}},
            {"configMap": {"name": "e"}},
        ]}}]});
        let mut new = spec.clone();
        drop_closed(&mut new, None);
        assert!(!has_projection(&new, "clusterTrustBundle"));
        assert!(!has_projection(&new, "podCertificate"));
        assert!(has_projection(&new, "configMap"));
        let mut updated = spec.clone();
        drop_closed(&mut updated, Some(&spec));
        assert_eq!(updated, spec);
    }
}
