//! The claims that the ephemeral volumes of a pod need. Pure.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;

/// The generic ephemeral volumes of the pod.
pub fn ephemeral(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    volumes
        .into_iter()
        .flatten()
        .filter(|volume| volume.ephemeral.is_some())
}

/// Whether the claim was made for the pod.
pub fn is_owned(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    semantics::owner::is_controlled_by(&claim.metadata, uid)
}

/// The claim of an ephemeral volume.
pub fn claim(pod: &Pod, volume: &Volume) -> PersistentVolumeClaim {
    let template = volume
        .ephemeral
        .as_ref()
        .and_then(|ephemeral| ephemeral.volume_claim_template.clone());
    let metadata = template
        .as_ref()
        .and_then(|template| template.metadata.clone())
        .unwrap_or_default();
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(format!(
                "{}-{}",
                pod.metadata.name.as_deref().unwrap_or_default(),
                volume.name
            )),
            namespace: pod.metadata.namespace.clone(),
            labels: metadata.labels,
            annotations: metadata.annotations,
            owner_references: Some(vec![meta::owner_reference(pod)]),
            ..ObjectMeta::default()
        },
        spec: template.map(|template| template.spec),
        ..PersistentVolumeClaim::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_named_after_pod_and_volume_and_belongs_to_the_pod() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "x", "uid": "p"},
            "spec": {"containers": [], "volumes": [
                {"name": "plain", "emptyDir": {}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"storageClassName": "fast"}}}}]},
        }))
        .unwrap();
        let volumes: Vec<&Volume> = ephemeral(&pod).collect();
        assert_eq!(volumes.len(), 1);
        let claim = claim(&pod, volumes[0]);
        assert_eq!(claim.metadata.name.as_deref(), Some("web-scratch"));
        assert_eq!(claim.metadata.labels.as_ref().unwrap()["a"], "b");
        assert!(is_owned(&claim, &pod));
    }
}
