//! What others, outages and restarts leave wrong is put right again.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PostParams},
};
use serde_json::{Value, json};

use crate::harness::{Node, ready};

const HOUR: i64 = 3600 * 1_000_000;

fn probed(kind: &str, command: &str) -> Value {
    let probe = json!({"exec": {"command": [command]}, "periodSeconds": 1, "failureThreshold": 1});
    let mut container =
        json!({"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent"});
    container[kind] = probe;
    json!({"containers": [container], "terminationGracePeriodSeconds": 2})
}

fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.as_ref();
    let statuses = status.and_then(|status| status.container_statuses.as_ref());
    statuses.map_or(0, |all| all[0].restart_count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_others_overwrite_is_put_right() {
    let node = Node::start().await;
    std::fs::create_dir_all(node.manifests()).expect("made");
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: fixed}\nspec: {containers: [{name: main, image: busybox, imagePullPolicy: IfNotPresent}]}\n";
    std::fs::write(node.manifests().join("fixed.yaml"), manifest).expect("written");
    let simple = json!({"containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent"}]});
    node.create("steady", simple).await;
    let fixed = format!("fixed-{}", crate::harness::NODE);
    for name in ["steady", &fixed] {
        node.wait(name, ready).await;
        // As the node lifecycle controller does while it hears nothing of the node.
        let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let pods = node.pods();
        let patch = Patch::Strategic(unready);
        let patched = pods.patch_status(name, &Default::default(), &patch).await;
        let patched = patched.expect("patched");
        assert!(!ready(&patched));
        node.wait(name, ready).await;
    }
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_that_cannot_be_made_condemns_nobody() {
    let node = Node::start().await;
    let failing = ("ExecSync", "the runtime is away".to_owned());
    node.runtime.state().failing.extend([failing]);
    node.create("probed", probed("livenessProbe", "true")).await;
    node.wait("probed", ready).await;
    let tried = async |times| node.runtime.count("ExecSync") >= times;
    node.until("tried three times", async || tried(3).await)
        .await;
    node.runtime.state().failing.clear();
    let before = node.runtime.count("ExecSync");
    node.until("probed again", async || tried(before + 2).await)
        .await;
    assert_eq!(node.runtime.count("StopContainer"), 0);
    assert_eq!(restarts(&node.wait("probed", ready).await), 0);
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condemned_container_is_ended_once_the_runtime_can() {
    let node = Node::start().await;
    let failing = ("StopContainer", "not now".to_owned());
    node.runtime.state().failing.extend([failing]);
    node.create("sick", probed("livenessProbe", "false")).await;
    node.until("tried twice", async || {
        node.runtime.count("StopContainer") >= 2
    })
    .await;
    node.runtime.state().failing.clear();
    node.wait("sick", |pod| restarts(pod) >= 1).await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_kubelet_tells_of_a_container_that_is_no_longer_ready() {
    let mut node = Node::start().await;
    node.create("fading", probed("readinessProbe", "true"))
        .await;
    node.wait("fading", ready).await;
    node.stop_kubelet().await;
    node.runtime.state().probes_fail = true;
    node.start_kubelet();
    node.wait("fading", |pod| !ready(pod)).await;
    node.runtime.state().probes_fail = false;
    node.wait("fading", ready).await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_volume_without_its_source_keeps_no_token_from_being_renewed() {
    let node = Node::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(node.admin.clone(), "default");
    let map = json!({"metadata": {"name": "fleeting"}, "data": {"a": "1"}});
    let map: ConfigMap = serde_json::from_value(map).expect("a config map");
    let created = maps.create(&PostParams::default(), &map).await;
    created.expect("created");
    node.create(
        "renewed",
        json!({"containers": [{"name": "main", "image": "busybox", "volumeMounts": [
                {"name": "map", "mountPath": "/m"}, {"name": "token", "mountPath": "/t"}]}],
            "volumes": [{"name": "map", "configMap": {"name": "fleeting"}},
                {"name": "token", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]}}]}),
    )
    .await;
    node.wait("renewed", ready).await;
    let config = node.runtime.configs("main").pop().expect("a container");
    let place = |at: &str| {
        let mut mounts = config.mounts.iter();
        let mount = mounts.find(|mount| mount.container_path == at);
        mount.expect("a mount").host_path.clone()
    };
    let token = format!("{}/token", place("/t"));
    let first = std::fs::read_to_string(&token).expect("a token");
    let deletion = DeleteParams::default();
    maps.delete("fleeting", &deletion).await.expect("deleted");
    node.move_clock(HOUR);
    // Somebody has to wake the pod: time alone moves only when it is looked at.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"woken": "yes"}}}));
    let pods = node.pods();
    let patched = pods.patch("renewed", &Default::default(), &patch).await;
    patched.expect("patched");
    node.until("renewed", async || {
        std::fs::read_to_string(&token).is_ok_and(|text| text != first)
    })
    .await;
    // What was there of the other is kept.
    let kept = std::fs::read_to_string(format!("{}/a", place("/m")));
    assert_eq!(kept.expect("the file"), "1");
    node.close().await;
}
