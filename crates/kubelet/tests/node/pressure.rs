//! A node whose disk is full, on a small file system of its own: images go, then pods, and then it
//! is well again. And pods that hold more than they may.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::{Event, Node as NodeObject, Pod};
use kube::{Api, api::ListParams};
use nix::mount::{MsFlags, mount};
use serde_json::json;

use crate::harness::{ATTEMPTS, NODE, Node, ready};

const MIB: usize = 1 << 20;

/// A node whose pods and images lie on a disk of 64 MiB, half of which must stay free.
async fn small_node() -> Node {
    let text = |text: &str| text.to_owned();
    let mut node = Node::start_with(kubelet::Configuration {
        eviction_hard: BTreeMap::from([(text("nodefs.available"), text("32Mi"))]),
        eviction_pressure_transition_period: text("1s"),
        image_minimum_gc_age: text("1ns"),
        node_status_update_frequency: text("1s"),
        ..kubelet::Configuration::default()
    })
    .await;
    node.stop_kubelet().await;
    let root = node.directory.path().join("kubelet");
    std::fs::create_dir_all(&root).expect("a directory");
    // It goes with the node's directory.
    mount(
        Some("tmpfs"),
        &root,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("size=64m"),
    )
    .expect("a small disk");
    node.start_kubelet();
    node
}

fn spec(size_limit: Option<&str>) -> serde_json::Value {
    let mut volume = json!({"name": "scratch", "emptyDir": {}});
    if let Some(limit) = size_limit {
        volume["emptyDir"]["sizeLimit"] = json!(limit);
    }
    json!({
        "terminationGracePeriodSeconds": 1,
        "volumes": [volume],
        "containers": [{"name": "main", "image": "busybox:latest",
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}],
    })
}

/// Where the pod's only volume is.
fn scratch(node: &Node, uid: &str) -> PathBuf {
    let pods = node.directory.path().join("kubelet/pods");
    pods.join(uid)
        .join("volumes/kubernetes.io~empty-dir/scratch")
}

fn fill(path: &std::path::Path, bytes: usize) {
    std::fs::write(path, vec![1; bytes]).expect("written");
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().expect("a UID")
}

fn evicted(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    (status.phase.as_deref(), status.reason.as_deref()) == (Some("Failed"), Some("Evicted"))
}

fn is_disruption(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.unwrap_or_default().into_iter();
    conditions.any(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")
}

/// Waits for an event of this reason about an object of this name.
async fn event(node: &Node, name: &str, reason: &str) -> Event {
    let api: Api<Event> = Api::namespaced(node.admin.clone(), "default");
    for _ in 0..ATTEMPTS / 10 {
        let found = api.list(&ListParams::default()).await;
        let mut events = found.map(|list| list.items).unwrap_or_default().into_iter();
        let wanted = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some(reason)
        };
        if let Some(event) = events.find(wanted) {
            return event;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no event {reason} about {name}");
}

async fn wait_for_pressure(node: &Node, wanted: &str) {
    let api: Api<NodeObject> = Api::all(node.admin.clone());
    let mut last = None;
    for _ in 0..ATTEMPTS / 10 {
        if let Ok(object) = api.get(NODE).await {
            let conditions = object.status.and_then(|status| status.conditions);
            let mut conditions = conditions.unwrap_or_default().into_iter();
            let found = conditions.find(|condition| condition.type_ == "DiskPressure");
            last = found.map(|condition| condition.status);
            if last.as_deref() == Some(wanted) {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("DiskPressure did not become {wanted} but {last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_removes_images_then_evicts_pods_until_there_is_room() {
    let node = small_node().await;
    node.create("steady", spec(None)).await;
    node.create("hog", spec(None)).await;
    node.wait("steady", ready).await;
    let hog = node.wait("hog", ready).await;

    // Images that nothing uses are enough.
    let layers = node.directory.path().join("kubelet/layers");
    fill(&layers, 40 * MIB);
    {
        let mut state = node.runtime.state();
        state.images.insert("unused:latest".to_owned());
        state
            .image_files
            .insert("unused:latest".to_owned(), layers.clone());
    }
    event(&node, NODE, "NodeHasDiskPressure").await;
    event(&node, NODE, "EvictionThresholdMet").await;
    wait_for_pressure(&node, "False").await;
    assert!(!layers.exists());
    let removed: Vec<String> = node
        .runtime
        .calls()
        .into_iter()
        .filter(|call| call.starts_with("RemoveImage"))
        .collect();
    assert_eq!(removed, ["RemoveImage unused:latest"]);
    assert!(
        ready(&node.wait("hog", |_| true).await),
        "no pod was evicted"
    );

    // Now it is a pod that fills the disk, and no image can help.
    fill(&scratch(&node, uid(&hog)).join("ballast"), 40 * MIB);
    let gone = node.wait("hog", evicted).await;
    assert!(is_disruption(&gone));
    let message = gone.status.and_then(|status| status.message);
    let message = message.unwrap_or_default();
    assert!(
        message.starts_with(
            "The node was low on resource: ephemeral-storage. Threshold quantity: 32Mi, available: "
        ),
        "{message}"
    );
    let evicted = event(&node, "hog", "Evicted").await;
    assert_eq!(evicted.count, Some(1));
    let annotations = evicted.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations["starved_resource"], "ephemeral-storage");

    // What it held is given back though the object is still there, and others may come.
    let volume = scratch(&node, uid(&hog));
    for _ in 0..ATTEMPTS {
        if !volume.exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!volume.exists());
    let mut admitted = false;
    for number in 0..ATTEMPTS / 50 {
        // Refused while the node still says that it is short.
        let name = format!("late-{number}");
        node.create(&name, spec(None)).await;
        let is_judged = |pod: &Pod| {
            let phase = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            ready(pod) || phase == Some("Failed")
        };
        admitted = ready(&node.wait(&name, is_judged).await);
        if admitted {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(admitted, "the node did not recover");
    wait_for_pressure(&node, "False").await;
    assert!(ready(&node.wait("steady", |_| true).await));
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_over_its_limit_is_evicted_unless_it_is_critical() {
    let mut node = small_node().await;
    node.stop_kubelet().await;
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "keeper"},
        "spec": spec(Some("1Mi"))});
    std::fs::create_dir_all(node.manifests()).expect("a directory");
    std::fs::write(node.manifests().join("keeper.json"), manifest.to_string()).expect("written");
    node.start_kubelet();
    let keeper = node.wait("keeper-node-1", ready).await;
    let annotations = keeper.metadata.annotations.unwrap_or_default();
    let own = &annotations["kubernetes.io/config.hash"];
    fill(&scratch(&node, own).join("ballast"), 2 * MIB);

    // Two after each other: the second is judged in a later round.
    for name in ["first", "second"] {
        node.create(name, spec(Some("1Mi"))).await;
        let pod = node.wait(name, ready).await;
        fill(&scratch(&node, uid(&pod)).join("ballast"), 2 * MIB);
        let gone = node.wait(name, evicted).await;
        assert!(!is_disruption(&gone), "it is its own doing");
        assert_eq!(
            gone.status.and_then(|status| status.message).as_deref(),
            Some("Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\". ")
        );
        assert_eq!(event(&node, name, "Evicted").await.count, Some(1));
    }
    let keeper = node.wait("keeper-node-1", |_| true).await;
    assert!(ready(&keeper), "{keeper:?}");
    node.close().await;
}
