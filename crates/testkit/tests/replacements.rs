//! Pods that fail as soon as they are there: their owner replaces them, but ever more slowly. The
//! test plays the node that rejects them.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod, ReplicationController, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::{Cluster, eventually};
use tokio::time::Instant;

const NODE: &str = "refusing";
/// Pauses of 1, 2, 4 … 256 s take 511 s.
const WATCHED: Duration = Duration::from_secs(600);
/// The first pod, its immediate replacement, and one after each of those pauses.
const EXPECTED: std::ops::RangeInclusive<usize> = 10..=12;

async fn cluster() -> Cluster {
    let cluster = Cluster::builder()
        .simulated(13)
        .controllers()
        .start()
        .await
        .expect("start");
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    eventually("the default account", async || {
        accounts.get_opt("default").await.expect("get")
    })
    .await;
    let nodes: Api<Node> = Api::all(cluster.client());
    let node = serde_json::from_value(json!({"metadata": {"name": NODE}})).expect("a node");
    nodes
        .create(&PostParams::default(), &node)
        .await
        .expect("create");
    heartbeat(&cluster).await;
    cluster
}

/// The node is ready: nobody takes its pods away.
async fn heartbeat(cluster: &Cluster) {
    let nodes: Api<Node> = Api::all(cluster.client());
    let now = cluster.environment().now().to_string();
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True",
        "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now}]}});
    nodes
        .patch_status(NODE, &PatchParams::default(), &Patch::Strategic(status))
        .await
        .expect("the node is told to be ready");
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.test/web"}]},
    })
}

/// Rejects every pod the moment it is there, as a kubelet without room does, for the time of
/// [`WATCHED`]. Returns the UIDs of all there were.
async fn reject_all(cluster: &Cluster) -> BTreeSet<Option<String>> {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let mut seen = BTreeSet::new();
    let began = Instant::now();
    let mut beat = Duration::ZERO;
    while began.elapsed() < WATCHED && seen.len() < 100 {
        for pod in pods.list(&ListParams::default()).await.expect("list") {
            let name = pod.metadata.name.clone().unwrap_or_default();
            if seen.insert(pod.metadata.uid) {
                let status = json!({"status": {"phase": "Failed", "reason": "OutOfcpu"}});
                let parameters = PatchParams::default();
                pods.patch_status(&name, &parameters, &Patch::Merge(status))
                    .await
                    .expect("the status is written");
            } else if pod.metadata.deletion_timestamp.is_some() {
                let at_once = DeleteParams::default().grace_period(0);
                // It may be gone by now.
                let _ = pods.delete(&name, &at_once).await;
            }
        }
        if (began.elapsed() - beat) >= Duration::from_secs(10) {
            beat = began.elapsed();
            heartbeat(cluster).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_replaces_rejected_pods_with_backoff() {
    let cluster = cluster().await;
    let set: ReplicaSet = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template()}}))
    .expect("a set");
    let sets: Api<ReplicaSet> = Api::default_namespaced(cluster.client());
    sets.create(&PostParams::default(), &set)
        .await
        .expect("create");
    let rejected = reject_all(&cluster).await;
    assert!(
        EXPECTED.contains(&rejected.len()),
        "{} pods",
        rejected.len()
    );

    // Another number of replicas is another wish: it is tried at once.
    let three = Patch::Merge(json!({"spec": {"replicas": 3}}));
    sets.patch("web", &PatchParams::default(), &three)
        .await
        .expect("patch");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    eventually("three new pods", async || {
        let list = pods.list(&ListParams::default()).await.expect("list");
        let new = list
            .iter()
            .filter(|pod| !rejected.contains(&pod.metadata.uid));
        (new.count() == 3).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_replication_controller_replaces_rejected_pods_with_backoff() {
    let cluster = cluster().await;
    let set: ReplicationController = serde_json::from_value(json!({"metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"app": "web"}, "template": template()}}))
    .expect("a controller");
    let sets: Api<ReplicationController> = Api::default_namespaced(cluster.client());
    sets.create(&PostParams::default(), &set)
        .await
        .expect("create");
    let rejected = reject_all(&cluster).await;
    assert!(
        EXPECTED.contains(&rejected.len()),
        "{} pods",
        rejected.len()
    );
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_replaces_rejected_pods_with_backoff() {
    let cluster = cluster().await;
    let set: StatefulSet = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 1, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
        "template": template()}}))
    .expect("a set");
    let sets: Api<StatefulSet> = Api::default_namespaced(cluster.client());
    sets.create(&PostParams::default(), &set)
        .await
        .expect("create");
    let rejected = reject_all(&cluster).await;
    assert!(
        EXPECTED.contains(&rejected.len()),
        "{} pods",
        rejected.len()
    );
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_replaces_rejected_pods_with_backoff() {
    let cluster = cluster().await;
    let set: DaemonSet = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": template()}}))
    .expect("a set");
    let sets: Api<DaemonSet> = Api::default_namespaced(cluster.client());
    sets.create(&PostParams::default(), &set)
        .await
        .expect("create");
    let rejected = reject_all(&cluster).await;
    assert!(
        EXPECTED.contains(&rejected.len()),
        "{} pods",
        rejected.len()
    );
}
