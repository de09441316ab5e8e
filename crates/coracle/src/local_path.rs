//! The node's side of local-path volumes: publishes the directory of this node's volumes, creates a
//! directory for each volume, and removes it when the volume is deleted.
//!
//! Only `<directory>/<volume name>` is ever touched, and only for volumes that this cluster's
//! provisioner created for this directory. It is not part of the kubelet, which mounts what is
//! there.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use client::{Change, Informers};
use controllers::local_path::{DIRECTORY_ANNOTATION, FINALIZER, PROVISIONER, host_name};
use environment::Environment;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::Api;
use kube::api::{Patch, PatchParams};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const RETRY_AFTER: Duration = Duration::from_secs(10);

pub struct LocalPath {
    /// A client with the node's identity, for its Node object.
    pub node_client: kube::Client,
    /// A client with an identity that may remove the finalizer of volumes.
    pub volume_client: kube::Client,
    pub node_name: String,
    pub directory: PathBuf,
    pub environment: Environment,
}

impl LocalPath {
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        let announced = self.publish_directory();
        let served = self.serve();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            _ = futures::future::join(announced, served) => {}
        }
        Ok(())
    }

    /// Writes the directory to an annotation of this Node whenever it is missing.
    async fn publish_directory(&self) {
        let informers = Informers::new(self.node_client.clone(), self.environment.clone());
        let nodes = informers.with_selector::<Node>(&format!("metadata.name={}", self.node_name));
        let mut changes = nodes.subscribe();
        let directory = self.directory.to_string_lossy().into_owned();
        loop {
            let node = match changes.next().await {
                Change::Added(node) | Change::Modified { new: node, .. } => node,
                _ => continue,
            };
            let annotations = node.metadata.annotations.as_ref();
            let published =
                annotations.and_then(|annotations| annotations.get(DIRECTORY_ANNOTATION));
            if published == Some(&directory) {
                continue;
            }
            let patch = serde_json::json!({"metadata": {"annotations": {
                DIRECTORY_ANNOTATION: directory,
            }}});
            let nodes: Api<Node> = Api::all(self.node_client.clone());
            let patch = Patch::Merge(patch);
            let name = &self.node_name;
            // The next heartbeat of the node repeats a failed write.
            if let Err(error) = nodes.patch(name, &PatchParams::default(), &patch).await {
                warn!(%error, "Cannot write the directory of local-path volumes to the Node");
            }
        }
    }

    async fn serve(&self) {
        let informers = Informers::new(self.volume_client.clone(), self.environment.clone());
        let volumes = informers.of::<PersistentVolume>();
        let mut changes = volumes.subscribe();
        loop {
            let volume = match changes.next().await {
                Change::Added(volume) | Change::Modified { new: volume, .. } => volume,
                _ => continue,
            };
            while let Err(error) = self.reconcile(&volume).await {
                warn!(
                    volume = volume.metadata.name,
                    "Cannot create or remove a local-path volume; will try again: {}",
                    environment::chain(error.as_ref())
                );
                tokio::time::sleep(RETRY_AFTER).await;
                let name = volume.metadata.name.as_deref().unwrap_or_default();
                let newest = volumes.get("", name);
                if newest.is_none_or(|newest| newest != volume) {
                    break;
                }
            }
        }
    }

    async fn reconcile(&self, volume: &PersistentVolume) -> Result<()> {
        let Some(directory) = directory_of(volume, &self.directory, &self.node_name) else {
            return Ok(());
        };
        if volume.metadata.deletion_timestamp.is_none() {
            tokio::task::spawn_blocking(move || make(&directory)).await??;
            return Ok(());
        }
        let finalizers = volume.metadata.finalizers.clone().unwrap_or_default();
        // As long as it has other finalizers, the volume may be in use.
        if finalizers != [FINALIZER] {
            return Ok(());
        }
        if is_retained(volume) {
            info!(
                path = %directory.display(),
                "The directory of a deleted local-path volume stays: its reclaim policy is Retain"
            );
        } else {
            tokio::task::spawn_blocking(move || remove(&directory)).await??;
        }
        let patch = serde_json::json!({"metadata": {
            "uid": volume.metadata.uid,
            "resourceVersion": volume.metadata.resource_version,
            "finalizers": null,
        }});
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let volumes: Api<PersistentVolume> = Api::all(self.volume_client.clone());
        let patched = volumes
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        match patched {
            Err(error) if !client::retry::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// The directory of a volume on this node. Nodes with the same layout have directories of the same
/// name, so that the volume's node affinity decides. The host name label of a node is its name.
fn directory_of(volume: &PersistentVolume, root: &Path, node: &str) -> Option<PathBuf> {
    let name = volume.metadata.name.as_deref()?;
    host_name(volume).filter(|host| *host == node)?;
    let made_by = volume.metadata.annotations.as_ref()?.get(PROVISIONED_BY)?;
    let path = &volume.spec.as_ref()?.host_path.as_ref()?.path;
    let plain = name.starts_with("pvc-")
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let expected = root.join(name);
    (made_by == PROVISIONER && plain && Path::new(path) == expected).then_some(expected)
}

fn is_retained(volume: &PersistentVolume) -> bool {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) != Some("Delete")
}

/// Creates the directory. Any user of a pod may write to its volume, as with an emptyDir.
fn make(directory: &Path) -> io::Result<()> {
    match std::fs::create_dir(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // The kubelet may have created it already. One that is in use keeps its permissions.
            if std::fs::read_dir(directory)?.next().is_some() {
                return Ok(());
            }
        }
        Err(error) => return Err(error),
    }
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777))
}

/// Renames the directory before it is removed, so that a crash leaves no half of it under its name.
fn remove(directory: &Path) -> io::Result<()> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let aside = directory.with_file_name(format!(".removing-{name}"));
    if let Err(error) = std::fs::rename(directory, &aside)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    match std::fs::remove_dir_all(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str, path: &str, by: &str) -> PersistentVolume {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: by}},
            "spec": {
                "hostPath": {"path": path}, "persistentVolumeReclaimPolicy": "Delete",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]},
                ]}]}},
            },
        }))
        .unwrap()
    }

    #[test]
    fn only_volumes_of_the_provisioner_on_this_node_have_a_directory() {
        let root = Path::new("/data/local-path");
        let ours = |name: &str, path: &str, by: &str| {
            directory_of(&volume(name, path, by), root, "n1").is_some()
        };
        let own = volume("pvc-1", "/data/local-path/pvc-1", PROVISIONER);
        assert!(directory_of(&own, root, "n2").is_none());
        assert!(ours("pvc-1", "/data/local-path/pvc-1", PROVISIONER));
        assert!(!ours("pvc-1", "/data/local-path/pvc-1", "other"));
        assert!(!ours("pvc-1", "/data/local-path/pvc-2", PROVISIONER));
        assert!(!ours("pvc-1", "/etc", PROVISIONER));
        assert!(!ours("..", "/data/local-path/..", PROVISIONER));
        assert!(!ours(
            "pvc-/../..",
            "/data/local-path/pvc-/../..",
            PROVISIONER
        ));
        assert!(!ours("mine", "/data/local-path/mine", PROVISIONER));
    }

    #[test]
    fn volume_directories_are_writable_by_all_and_removed_completely() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("pvc-1");
        make(&directory).unwrap();
        make(&directory).unwrap();
        let mode = std::fs::metadata(&directory).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o777);
        let outside = root.path().join("outside");
        std::fs::write(&outside, "kept").unwrap();
        std::os::unix::fs::symlink(&outside, directory.join("link")).unwrap();
        std::fs::create_dir(directory.join("sub")).unwrap();
        remove(&directory).unwrap();
        remove(&directory).unwrap();
        assert!(!directory.exists() && outside.exists());
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
