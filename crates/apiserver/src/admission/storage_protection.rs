//! StorageObjectInUseProtection: volumes, claims and attributes classes go only when nobody uses
//! them; a controller takes the finalizer away then.

use super::{Admitted, Operation};

pub(super) fn admit(admitted: &mut Admitted<'_>) {
    if admitted.operation != Operation::Create || !admitted.subresource.is_empty() {
        return;
    }
    let finalizer = match (&*admitted.resource.group, &*admitted.resource.kind) {
        ("", "PersistentVolume") => "kubernetes.io/pv-protection",
        ("", "PersistentVolumeClaim") => "kubernetes.io/pvc-protection",
        ("storage.k8s.io", "VolumeAttributesClass") => "kubernetes.io/vac-protection",
        _ => return,
    };
    let path = ["metadata", "finalizers"];
    let mut finalizers = admitted.object.list_at(&path).to_vec();
    if !finalizers
        .iter()
        .any(|name| name.as_str() == Some(finalizer))
    {
        finalizers.push(finalizer.into());
        admitted.object.set(&path, finalizers);
    }
}
