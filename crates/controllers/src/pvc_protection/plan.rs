//! Whether a pod uses a claim. Pure.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use semantics::pod_claim::pod_claims;

use crate::meta;

/// Pods without a node do not count: no kubelet will start one whose claim is being deleted. Nor do
/// pods that are over count for the claims that go with them: deleted in the foreground, such a pod
/// waits for its claim.
pub fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if meta::node_name(pod).is_empty() || !pod_claims(pod).any(|claim| claim.name == name) {
        return false;
    }
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    let sources = volumes.into_iter().flatten();
    let mut sources = sources.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    if sources.any(|source| source.claim_name == name) {
        return true;
    }
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let is_over = pod.metadata.deletion_timestamp.is_some()
        && pod.metadata.deletion_grace_period_seconds == Some(0);
    !is_over && semantics::owner::is_controlled_by(&claim.metadata, uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, owner: &str) -> PersistentVolumeClaim {
        serde_json::from_value(serde_json::json!({"metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": owner, "controller": true}]}}))
        .unwrap()
    }

    #[test]
    fn only_placed_pods_use_a_claim_named_or_ephemeral() {
        let pod = |node: &str, grace: Option<i64>| -> Pod {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "web", "uid": "u", "deletionGracePeriodSeconds": grace,
                    "deletionTimestamp": grace.map(|_| "2026-01-01T00:00:00Z")},
                "spec": {"nodeName": node, "containers": [], "volumes": [
                    {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
            }))
            .unwrap()
        };
        let (data, scratch) = (claim("data", "other"), claim("web-scratch", "u"));
        assert!(uses(&pod("n", None), &data));
        assert!(uses(&pod("n", None), &scratch));
        assert!(!uses(&pod("n", None), &claim("web-scratch", "other")));
        assert!(!uses(&pod("n", None), &claim("other", "u")));
        assert!(!uses(&pod("", None), &data));
        assert!(uses(&pod("n", Some(30)), &scratch));
        assert!(!uses(&pod("n", Some(0)), &scratch));
        assert!(uses(&pod("n", Some(0)), &data));
    }
}
