//! The volume that a claim gets from a node's own disk. Pure.

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
    VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use thiserror::Error;

use super::{DIRECTORY_ANNOTATION, FINALIZER, PROVISIONER};
use crate::meta;
use crate::persistent_volume::plan::{PROVISIONED_BY, SELECTED_NODE};

pub const HOST_NAME: &str = "kubernetes.io/hostname";
/// Where volumes go on nodes that are not ours and so offer no directory.
const ELSEWHERE: &str = "/var/lib/coracle-local-path";

/// Whether it is this provisioner's turn.
pub fn is_asked(claim: &PersistentVolumeClaim) -> bool {
    let asked = meta::annotation(&claim.metadata, crate::persistent_volume::plan::PROVISIONER);
    let named = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.as_deref());
    asked == Some(PROVISIONER)
        && named.unwrap_or_default().is_empty()
        && claim.metadata.deletion_timestamp.is_none()
}

pub fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    meta::annotation(&claim.metadata, SELECTED_NODE).filter(|node| !node.is_empty())
}

pub fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default())
}

/// Why a claim cannot have a volume on a node.
#[derive(Debug, Error)]
pub enum ProvisioningError {
    #[error("only volumes with a file system can be provisioned")]
    Mode,
    #[error("a volume on one node cannot be {0}")]
    AccessMode(String),
    #[error("claim.Spec.Selector is not supported for dynamic provisioning")]
    Selector,
    #[error("node {0:?} has no label {label}", label = HOST_NAME)]
    NoHostName(String),
}

/// The volume for a claim on a node.
pub fn volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: &Node,
) -> Result<PersistentVolume, ProvisioningError> {
    let spec = claim.spec.clone().unwrap_or_default();
    if semantics::volume::claim_mode(claim) != "Filesystem" {
        return Err(ProvisioningError::Mode);
    }
    let modes = spec.access_modes.clone().unwrap_or_default();
    if let Some(mode) = modes
        .iter()
        .find(|mode| !matches!(mode.as_str(), "ReadWriteOnce" | "ReadWriteOncePod"))
    {
        return Err(ProvisioningError::AccessMode(mode.clone()));
    }
    if spec.selector.is_some() {
        return Err(ProvisioningError::Selector);
    }
    let labels = node.metadata.labels.as_ref();
    let host_name = labels.and_then(|labels| labels.get(HOST_NAME));
    let Some(host_name) = host_name else {
        let name = node.metadata.name.clone().unwrap_or_default();
        return Err(ProvisioningError::NoHostName(name));
    };
    let offered = meta::annotation(&node.metadata, DIRECTORY_ANNOTATION);
    let name = volume_name(claim);
    let request = spec
        .resources
        .and_then(|resources| resources.requests?.remove("storage"));
    Ok(PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            annotations: Some([(PROVISIONED_BY.to_string(), PROVISIONER.to_string())].into()),
            // Our nodes remove the directory before the volume may go.
            finalizers: offered.map(|_| vec![FINALIZER.to_string()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(modes),
            capacity: request.map(|request| [("storage".to_string(), request)].into()),
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".to_string()),
                kind: Some("PersistentVolumeClaim".to_string()),
                namespace: claim.metadata.namespace.clone(),
                name: claim.metadata.name.clone(),
                uid: claim.metadata.uid.clone(),
                ..ObjectReference::default()
            }),
            host_path: Some(HostPathVolumeSource {
                path: format!("{}/{name}", offered.unwrap_or(ELSEWHERE)),
                type_: Some("DirectoryOrCreate".to_string()),
            }),
            mount_options: class.mount_options.clone(),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector {
                    node_selector_terms: vec![NodeSelectorTerm {
                        match_expressions: Some(vec![NodeSelectorRequirement {
                            key: HOST_NAME.to_string(),
                            operator: "In".to_string(),
                            values: Some(vec![host_name.clone()]),
                        }]),
                        ..NodeSelectorTerm::default()
                    }],
                }),
            }),
            persistent_volume_reclaim_policy: class
                .reclaim_policy
                .clone()
                .or_else(|| Some("Delete".to_string())),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: Some("Filesystem".to_string()),
            ..PersistentVolumeSpec::default()
        }),
        ..PersistentVolume::default()
    })
}

/// What becomes of a volume of ours.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    Keep,
    /// It is released, and its policy is Delete.
    Delete,
    /// Its node has left the cluster, so that no kubelet will remove the directory.
    Forget,
}

/// `node_exists` says whether a node with that host name is in the cluster.
pub fn fate(volume: &PersistentVolume, node_exists: impl Fn(&str) -> bool) -> Fate {
    if meta::annotation(&volume.metadata, PROVISIONED_BY) != Some(PROVISIONER) {
        return Fate::Keep;
    }
    if volume.metadata.deletion_timestamp.is_some() {
        let held = volume
            .metadata
            .finalizers
            .iter()
            .flatten()
            .any(|finalizer| finalizer == FINALIZER);
        return match held && !host_name(volume).is_some_and(node_exists) {
            true => Fate::Forget,
            false => Fate::Keep,
        };
    }
    let phase = volume
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let policy = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    match phase == Some("Released") && policy == Some("Delete") {
        true => Fate::Delete,
        false => Fate::Keep,
    }
}

/// The host name of the node that a volume of ours is on.
pub fn host_name(volume: &PersistentVolume) -> Option<&str> {
    let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?;
    let term = affinity.required.as_ref()?.node_selector_terms.first()?;
    let requirement = term.match_expressions.as_ref()?.first()?;
    requirement.values.as_ref()?.first().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(spec: serde_json::Value) -> PersistentVolumeClaim {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "data", "namespace": "default", "uid": "u-1"}, "spec": spec,
        }))
        .unwrap()
    }

    fn class() -> StorageClass {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "local-path"}, "provisioner": PROVISIONER,
        }))
        .unwrap()
    }

    fn node(annotations: serde_json::Value) -> Node {
        serde_json::from_value(serde_json::json!({"metadata": {
            "name": "n", "labels": {HOST_NAME: "host"}, "annotations": annotations}}))
        .unwrap()
    }

    #[test]
    fn a_volume_is_in_the_directory_of_its_node_only() {
        let claim = claim(serde_json::json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}));
        let ours = node(serde_json::json!({DIRECTORY_ANNOTATION: "/data/local-path"}));
        let made = volume(&claim, &class(), &ours).unwrap();
        let spec = made.spec.as_ref().unwrap();
        assert_eq!(
            spec.host_path.as_ref().unwrap().path,
            "/data/local-path/pvc-u-1"
        );
        assert_eq!(host_name(&made), Some("host"));
        assert_eq!(made.metadata.finalizers, Some(vec![FINALIZER.to_string()]));
        let foreign = volume(&claim, &class(), &node(serde_json::json!({}))).unwrap();
        assert_eq!(foreign.metadata.finalizers, None);
    }

    #[test]
    fn claims_that_one_node_cannot_provide_are_rejected() {
        let node = node(serde_json::json!({}));
        let check = |spec: serde_json::Value| volume(&claim(spec), &class(), &node).is_err();
        assert!(check(serde_json::json!({"accessModes": ["ReadWriteMany"]})));
        assert!(check(serde_json::json!({"volumeMode": "Block"})));
        assert!(check(serde_json::json!({"selector": {}})));
        assert!(!check(
            serde_json::json!({"accessModes": ["ReadWriteOncePod"]})
        ));
    }

    #[test]
    fn released_volumes_are_deleted_also_those_of_lost_nodes() {
        let claim = claim(serde_json::json!({"accessModes": ["ReadWriteOnce"]}));
        let ours = node(serde_json::json!({DIRECTORY_ANNOTATION: "/data"}));
        let mut made = volume(&claim, &class(), &ours).unwrap();
        assert_eq!(fate(&made, |_| true), Fate::Keep);
        made.status.get_or_insert_default().phase = Some("Released".into());
        assert_eq!(fate(&made, |_| true), Fate::Delete);
        made.metadata.deletion_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH),
        );
        assert_eq!(fate(&made, |host| host == "host"), Fate::Keep);
        assert_eq!(fate(&made, |_| false), Fate::Forget);
        let mut kept = volume(&claim, &class(), &ours).unwrap();
        kept.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Retain".into());
        kept.status.get_or_insert_default().phase = Some("Released".into());
        assert_eq!(fate(&kept, |_| true), Fate::Keep);
    }
}
