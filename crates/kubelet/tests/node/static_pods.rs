//! Pods of manifests on the node's disk, and what the API shows of them.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use crate::harness::{NODE, Node, ready};

const NAME: &str = "web-node-1";

fn write(node: &Node, image: &str) {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: {image}\n"
    );
    std::fs::create_dir_all(node.manifests()).expect("a directory");
    // Whole from the beginning: the kubelet reads it when it appears.
    let aside = node.directory.path().join("web.yaml");
    std::fs::write(&aside, text).expect("written");
    std::fs::rename(aside, node.manifests().join("web.yaml")).expect("moved");
}

fn image(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.containers.first()?.image.as_deref()
}

fn started(node: &Node) -> usize {
    let calls = node.runtime.calls();
    let is_start = |call: &&String| call.starts_with("StartContainer");
    calls.iter().filter(is_start).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_pod_is_mirrored_and_follows_its_manifest() {
    let mut node = Node::start().await;
    std::fs::create_dir_all(node.manifests()).expect("a directory");
    // The kubelet looks for a place that was missing only now and then.
    node.stop_kubelet().await;
    write(&node, "busybox:1");
    node.start_kubelet();
    let mirror = node.wait(NAME, ready).await;
    let annotations = mirror.metadata.annotations.clone().unwrap_or_default();
    let hash = &annotations["kubernetes.io/config.hash"];
    assert_eq!(&annotations["kubernetes.io/config.mirror"], hash);
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    let owners = mirror.metadata.owner_references.clone().unwrap_or_default();
    assert_eq!(
        (owners[0].kind.as_str(), owners[0].name.as_str()),
        ("Node", NODE)
    );
    assert_eq!(started(&node), 1);

    // Whoever deletes the mirror deletes nothing but that.
    let deleted = node.pods().delete(NAME, &DeleteParams::default()).await;
    deleted.expect("deleted");
    let uid = mirror.metadata.uid.clone();
    let again = move |pod: &Pod| pod.metadata.uid != uid && ready(pod);
    node.wait(NAME, again).await;
    assert_eq!(started(&node), 1);

    // A kubelet that starts again finds its pod running.
    node.stop_kubelet().await;
    node.start_kubelet();
    node.wait(NAME, ready).await;
    assert_eq!(started(&node), 1);

    write(&node, "busybox:2");
    node.wait(NAME, |pod| image(pod) == Some("busybox:2") && ready(pod))
        .await;
    assert_eq!(started(&node), 2);

    std::fs::remove_file(node.manifests().join("web.yaml")).expect("removed");
    node.wait_gone(NAME).await;
    node.until("removed twice", async || {
        let calls = node.runtime.calls();
        let removed = calls
            .iter()
            .filter(|call| call.starts_with("RemovePodSandbox"));
        removed.count() == 2
    })
    .await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_without_a_manifest_is_removed() {
    let mut node = Node::start().await;
    write(&node, "busybox:1");
    node.stop_kubelet().await;
    node.start_kubelet();
    node.wait(NAME, ready).await;
    node.stop_kubelet().await;
    std::fs::remove_file(node.manifests().join("web.yaml")).expect("removed");
    node.start_kubelet();
    node.wait_gone(NAME).await;
    node.close().await;
}
