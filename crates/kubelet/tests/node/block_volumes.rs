//! Volumes that are devices.

use std::path::Path;

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::json;

use crate::harness::{ATTEMPTS, NODE, Node, ready};

/// A local volume and a claim that is bound to it.
async fn bound(node: &Node, name: &str, path: &Path, mode: &str) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(node.admin.clone(), "default");
    let (parameters, patching) = (PostParams::default(), PatchParams::default());
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": mode, "storageClassName": "",
            "volumeName": name, "resources": {"requests": {"storage": "1Mi"}}},
    }))
    .expect("a claim");
    let created = claims.create(&parameters, &claim).await;
    let created = created.expect("the claim is made");
    let volumes: Api<PersistentVolume> = Api::all(node.admin.clone());
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": mode,
            "capacity": {"storage": "1Mi"}, "local": {"path": path},
            "claimRef": {"namespace": "default", "name": name, "uid": created.metadata.uid},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}]}}},
    }))
    .expect("a volume");
    let created = volumes.create(&parameters, &volume).await;
    created.expect("the volume is made");
    let status = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    let patched = claims.patch_status(name, &patching, &status).await;
    patched.expect("the claim is bound");
}

async fn event(node: &Node, reason: &str, words: &str) {
    let events: Api<Event> = Api::namespaced(node.admin.clone(), "default");
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let list = events.list(&ListParams::default()).await.expect("events");
        let found = list.items.into_iter();
        seen = found.map(|event| (event.reason, event.message)).collect();
        let wanted = (Some(reason.to_owned()), Some(words.to_owned()));
        if seen.contains(&wanted) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("no {reason} {words:?} in {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_volume_is_a_device_of_the_container() {
    let node = Node::start().await;
    let disk = node.directory.path().join("disk");
    mknod(
        &disk,
        SFlag::S_IFBLK,
        Mode::from_bits_truncate(0o600),
        makedev(7, 250),
    )
    .expect("a device");
    bound(&node, "disk", &disk, "Block").await;
    let pod = json!({
        "containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent",
            "volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]});
    let created = node.create("web", pod).await;
    node.wait("web", ready).await;
    let config = node.runtime.configs("main").pop().expect("a container");
    let device = config.devices.first().expect("a device");
    assert_eq!(device.container_path, "/dev/xvda");
    assert_eq!(device.permissions, "mrw");
    let uid = created.metadata.uid.expect("a UID");
    let link = node.directory.path().join("kubelet/pods").join(uid);
    let link = link.join("volumeDevices/kubernetes.io~local-volume/disk");
    assert_eq!(Path::new(&device.host_path), link);
    assert_eq!(std::fs::read_link(&link).expect("a link"), disk);
    assert!(
        !config
            .mounts
            .iter()
            .any(|mount| mount.host_path.contains("disk"))
    );

    let delete = DeleteParams::default();
    node.pods().delete("web", &delete).await.expect("deleted");
    node.wait_gone("web").await;
    assert!(link.symlink_metadata().is_err(), "the link is gone");
    assert!(disk.exists(), "the device is not");
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_not_used_against_its_mode() {
    let node = Node::start().await;
    let file = node.directory.path().join("file");
    std::fs::write(&file, "").expect("written");
    bound(&node, "flat", &file, "Block").await;
    bound(&node, "files", node.directory.path(), "Filesystem").await;
    let container = json!({"name": "main", "image": "busybox",
        "volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]});
    for claim in ["flat", "files"] {
        node.create(
            claim,
            json!({"containers": [container], "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}),
        )
        .await;
    }
    let words = format!(
        "MapVolume.MapBlockVolume failed for volume \"v\" : path \"{}\" is not a block device",
        file.display()
    );
    event(&node, "FailedMapVolume", &words).await;
    let words = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: volume v has volumeMode Filesystem, but is specified in volumeDevices";
    event(&node, "FailedMount", words).await;
    node.close().await;
}
