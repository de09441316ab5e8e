//! The PersistentVolumeClaims that a pod uses.
//!
//! Upstream decides in `VolumeClaimName` (`k8s.io/component-helpers/storage/ephemeral`): a generic
//! ephemeral volume uses a claim that is named after the pod and the volume.

use k8s_openapi::api::core::v1::Pod;

/// A claim that a pod uses, in the pod's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    pub name: String,
    /// It is made for this pod alone, from a template in the pod.
    pub is_ephemeral: bool,
}

/// The claims behind the pod's volumes, in their order.
pub fn pod_claims(pod: &Pod) -> impl Iterator<Item = PodClaim> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| {
        if let Some(source) = &volume.persistent_volume_claim {
            return Some(PodClaim {
                name: source.claim_name.clone(),
                is_ephemeral: false,
            });
        }
        volume.ephemeral.as_ref()?;
        Some(PodClaim {
            name: format!("{pod_name}-{}", volume.name),
            is_ephemeral: true,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_and_ephemeral_claims_are_used() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web"},
            "spec": {"containers": [], "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "db"}},
                {"name": "cache", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
        }))
        .expect("a pod");
        let claims: Vec<_> = pod_claims(&pod)
            .map(|claim| (claim.name, claim.is_ephemeral))
            .collect();
        let expected = [("db".to_owned(), false), ("web-cache".to_owned(), true)];
        assert_eq!(claims, expected);
    }
}
