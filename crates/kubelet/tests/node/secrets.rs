//! Volumes that must not reach a disk: the memory that pods share for them, of which none can take
//! another one's part.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::PostParams};
use nix::mount::{MsFlags, mount};
use serde_json::{Value, json};

use crate::harness::{Node, ready};

/// A node for at most ten pods, whose volumes share eight MiB of memory.
async fn node_with_little_memory() -> Node {
    let configuration = serde_json::from_value(json!({"maxPods": 10}));
    let mut node = Node::start_with(configuration.expect("a configuration")).await;
    node.stop_kubelet().await;
    let root = node.directory.path().join("secrets");
    std::fs::create_dir(&root).expect("a directory");
    // It goes with the node's directory.
    let size = Some("size=8m,mode=711");
    mount(Some("tmpfs"), &root, Some("tmpfs"), MsFlags::empty(), size).expect("a tmpfs");
    node.secret_root = Some(root);
    node.start_kubelet();
    node
}

async fn create_secret(node: &Node, name: &str, bytes: usize) {
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": name}, "stringData": {"key": "x".repeat(bytes)},
    }))
    .expect("a secret");
    let secrets: Api<Secret> = Api::namespaced(node.admin.clone(), "default");
    let created = secrets.create(&PostParams::default(), &secret).await;
    created.expect("the secret is created");
}

/// A pod that mounts the Secret so many times.
fn pod(secret: &str, times: usize) -> Value {
    let names = || (0..times).map(|number| format!("v{number}"));
    let volumes: Vec<Value> = names()
        .map(|name| json!({"name": name, "secret": {"secretName": secret}}))
        .collect();
    let mounts: Vec<Value> = names()
        .map(|name| json!({"name": name, "mountPath": format!("/{name}")}))
        .collect();
    json!({"terminationGracePeriodSeconds": 1, "volumes": volumes,
        "containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent",
            "volumeMounts": mounts}]})
}

/// Where the volumes of the pod lie that was started last.
fn places(node: &Node) -> Vec<PathBuf> {
    let config = node.runtime.configs("main").pop().expect("a container");
    let mounts = config.mounts.into_iter();
    mounts
        .filter(|mount| mount.container_path.starts_with("/v"))
        .map(|mount| PathBuf::from(mount.host_path))
        .collect()
}

fn mounts_below(directory: &Path) -> usize {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .filter(|point| Path::new(point).starts_with(directory))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_pods_secrets_leave_room_for_those_of_others() {
    let node = node_with_little_memory().await;
    let shared = node.secret_root.clone().expect("shared memory");
    let own = node.directory.path().join("kubelet/pods");
    create_secret(&node, "large", 900 << 10).await;
    create_secret(&node, "small", 100).await;

    // More than fits into the memory that pods share.
    let greedy = node.create("greedy", pod("large", 12)).await;
    node.wait("greedy", ready).await;
    let found = places(&node);
    assert_eq!(found.len(), 12);
    for place in &found {
        assert!(place.starts_with(&own), "{}", place.display());
        let key = std::fs::read(place.join("key")).expect("the key");
        assert_eq!(key.len(), 900 << 10);
    }
    assert_eq!(mounts_below(&own), 12);

    node.create("modest", pod("small", 2)).await;
    node.wait("modest", ready).await;
    assert_eq!(mounts_below(&own), 12, "small volumes cost no mount");
    assert_eq!(mounts_below(&shared), 1);

    // Nothing of it stays.
    let uid = greedy.metadata.uid.expect("a UID");
    let deleted = node.pods().delete("greedy", &Default::default()).await;
    deleted.expect("the pod is deleted");
    node.wait_gone("greedy").await;
    node.until("the volumes are gone", async || {
        !own.join(&uid).exists() && mounts_below(&own) == 0
    })
    .await;
    node.close().await;
}
