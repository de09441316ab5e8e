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
async fn a_status_that_others_overwrite_is_written_again() {
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
async fn a_probe_that_cannot_be_made_kills_no_container() {
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
async fn an_unhealthy_container_is_killed_once_the_runtime_can() {
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
async fn a_new_kubelet_reports_a_container_that_is_no_longer_ready() {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leftovers_of_pods_are_listed_until_that_succeeds() {
    let mut node = Node::start().await;
    let simple = json!({"containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent"}]});
    let pod = node.create("orphan", simple).await;
    node.wait("orphan", ready).await;
    node.stop_kubelet().await;
    let forced = DeleteParams::default().grace_period(0);
    let pods = node.pods();
    pods.delete("orphan", &forced).await.expect("deleted");
    // As a kubelet leaves them that is killed at the last moment.
    let uid = "5b5a8d9e-0000-4000-8000-000000000001";
    let logs = node.directory.path().join("logs");
    let stray = logs.join(format!("default_stray_{uid}"));
    std::fs::create_dir_all(&stray).expect("made");
    let hierarchy = match std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        true => "/sys/fs/cgroup",
        false => "/sys/fs/cgroup/memory",
    };
    let root = node.cgroup_root.trim_start_matches('/');
    let group = std::path::Path::new(hierarchy).join(root);
    let group = group.join(format!("kubepods/pod{uid}"));
    std::fs::create_dir_all(&group).expect("made");
    let failing = ("ListPodSandbox", "not now".to_owned());
    node.runtime.state().failing.extend([failing]);
    node.start_kubelet();
    node.until("listed in vain", async || {
        node.runtime.state().failed.contains_key("ListPodSandbox")
    })
    .await;
    node.runtime.state().failing.clear();
    let uid = pod.metadata.uid.expect("a uid");
    let own = logs.join(format!("default_orphan_{uid}"));
    node.until("all gone", async || {
        let sandboxes = node.runtime.state().sandboxes.len();
        sandboxes == 0 && !stray.exists() && !own.exists() && !group.exists()
    })
    .await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_hook_hangs_can_be_deleted() {
    let node = Node::start().await;
    node.create(
        "hanging",
        json!({"containers": [{"name": "main", "image": "busybox",
            "lifecycle": {"postStart": {"exec": {"command": ["hang"]}}}}],
            "terminationGracePeriodSeconds": 3}),
    )
    .await;
    node.until("hooked", async || node.runtime.count("ExecSync hang") == 1)
        .await;
    let pods = node.pods();
    let deletion = DeleteParams::default();
    pods.delete("hanging", &deletion).await.expect("deleted");
    node.wait_gone("hanging").await;
    assert_eq!(node.runtime.count("StopContainer main 3"), 1);
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_whose_rotation_failed_is_found_again() {
    let configuration: kubelet::Configuration = serde_json::from_value(
        json!({"containerLogMaxSize": "1Ki", "containerLogMonitorInterval": "3s"}),
    )
    .expect("a configuration");
    let node = Node::start_with(configuration).await;
    let simple = json!({"containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent"}]});
    node.create("talkative", simple).await;
    node.wait("talkative", ready).await;
    let path = {
        let state = node.runtime.state();
        let (_, status, _) = state.containers.values().next().expect("a container");
        std::path::PathBuf::from(&status.log_path)
    };
    let failing = ("ReopenContainerLog", "not now".to_owned());
    node.runtime.state().failing.extend([failing]);
    std::fs::write(&path, "x".repeat(2048)).expect("written");
    node.until("tried in vain", async || {
        node.runtime
            .state()
            .failed
            .contains_key("ReopenContainerLog")
    })
    .await;
    // It is where it was, and is put aside as soon as that can be.
    let length = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |data| data.len());
    node.until("put back", async || length(&path) == 2048).await;
    node.runtime.state().failing.clear();
    node.until("reopened", async || path.exists() && length(&path) == 0)
        .await;
    // As a kubelet leaves it that is killed between the two steps.
    let done = node.runtime.state().reopened;
    std::fs::remove_file(&path).expect("removed");
    node.until("opened", async || {
        node.runtime.state().reopened > done && path.exists()
    })
    .await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_belongs_to_the_node_as_it_is_now() {
    let configuration: kubelet::Configuration = serde_json::from_value(
        json!({"nodeLeaseDurationSeconds": 4, "nodeStatusUpdateFrequency": "1s",
            "nodeStatusReportFrequency": "1s"}),
    )
    .expect("a configuration");
    let node = Node::start_with(configuration).await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(node.admin.clone());
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(node.admin.clone(), "kube-node-lease");
    let name = crate::harness::NODE;
    let owner = async || {
        let lease = leases.get_opt(name).await.ok().flatten()?;
        Some(lease.metadata.owner_references?.first()?.uid.clone())
    };
    let own = async || nodes.get_opt(name).await.ok().flatten()?.metadata.uid;
    let same = async || owner().await.is_some() && owner().await == own().await;
    node.until("owned", same).await;
    let first = own().await;
    nodes
        .delete(name, &DeleteParams::default())
        .await
        .expect("deleted");
    node.until("owned by the new Node", async || {
        own().await != first && same().await
    })
    .await;
    node.close().await;
}
