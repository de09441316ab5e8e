//! Pods from their binding to their end.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Node as NodeObject, Secret};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use crate::harness::{ATTEMPTS, NODE, Node, ready, waits_for};

fn simple() -> serde_json::Value {
    json!({"containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent"}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_registers_and_is_ready() {
    let node = Node::start().await;
    let nodes: Api<NodeObject> = Api::all(node.admin.clone());
    let mut found = None;
    for _ in 0..ATTEMPTS {
        // A busy machine answers later.
        let read = nodes.get_opt(NODE).await.ok().flatten();
        found = read.filter(|node| {
            let status = node.status.as_ref();
            let mut conditions = status
                .into_iter()
                .flat_map(|s| s.conditions.iter().flatten());
            conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
        });
        if found.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let status = found.expect("a ready node").status.expect("a status");
    assert!(status.capacity.expect("capacity").contains_key("memory"));
    let endpoint = status
        .daemon_endpoints
        .and_then(|e| e.kubelet_endpoint)
        .expect("an endpoint");
    assert_eq!(endpoint.port, i32::from(node.kubelet_port));
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_runs_and_is_deleted() {
    let node = Node::start().await;
    let secrets: Api<Secret> = Api::namespaced(node.admin.clone(), "default");
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "s"}, "stringData": {"key": "value"}}))
            .expect("a secret");
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .expect("created");
    let pod = node
        .create(
            "web",
            json!({
                "initContainers": [{"name": "setup", "image": "busybox"}],
                "containers": [{"name": "main", "image": "busybox", "args": ["$(WHO)"],
                    "env": [{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/k", "subPath": "key"}],
                    "resources": {"limits": {"memory": "64Mi"}}}],
                "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
                "terminationGracePeriodSeconds": 7,
            }),
        )
        .await;
    node.wait("web", |_| {
        node.runtime
            .calls()
            .iter()
            .any(|call| call == "StartContainer setup")
    })
    .await;
    node.runtime.end("setup", 0);
    let pod_now = node.wait("web", ready).await;
    let status = pod_now.status.expect("a status");
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.pod_ip.as_deref(), Some("127.0.0.1"));
    let container = &status.container_statuses.expect("statuses")[0];
    assert!(
        container
            .container_id
            .as_deref()
            .is_some_and(|id| id.starts_with("scripted://"))
    );

    let config = node.runtime.configs("main").pop().expect("a container");
    assert_eq!(config.args, ["web"]);
    let mount = config
        .mounts
        .iter()
        .find(|mount| mount.container_path == "/v")
        .expect("a mount");
    let read = std::fs::read_to_string(format!("{}/key", mount.host_path));
    assert_eq!(read.expect("the secret is mounted"), "value");
    let sub = config
        .mounts
        .iter()
        .find(|mount| mount.container_path == "/k")
        .expect("a mount");
    assert_eq!(
        std::fs::read_to_string(&sub.host_path).expect("the file is bound"),
        "value"
    );

    node.pods()
        .delete("web", &DeleteParams::default())
        .await
        .expect("deleted");
    node.wait_gone("web").await;
    let last = "RemovePodSandbox web".to_owned();
    node.until("removed", async || node.runtime.calls().contains(&last))
        .await;
    let calls = node.runtime.calls();
    let end = [
        "StopContainer main 7",
        "StopPodSandbox web",
        "RemovePodSandbox web",
    ];
    assert_eq!(calls[calls.len() - 3..], end);
    let uid = pod.metadata.uid.expect("a uid");
    let directory = node.directory.path().join("kubelet/pods").join(uid);
    node.until("without a directory", async || !directory.exists())
        .await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_ends_is_restarted_once_at_once_then_later() {
    let node = Node::start().await;
    node.create("web", simple()).await;
    node.wait("web", ready).await;
    node.runtime.end("main", 1);
    let restarted = |count: i32| {
        move |pod: &k8s_openapi::api::core::v1::Pod| {
            let status = pod.status.as_ref();
            let statuses = status.and_then(|status| status.container_statuses.as_ref());
            ready(pod) && statuses.is_some_and(|all| all[0].restart_count == count)
        }
    };
    node.wait("web", restarted(1)).await;
    node.runtime.end("main", 1);
    // On a slow machine it may have waited long enough already, and runs again.
    let pod = node
        .wait("web", |pod| {
            waits_for(pod).as_deref() == Some("CrashLoopBackOff") || restarted(2)(pod)
        })
        .await;
    let statuses = pod
        .status
        .and_then(|status| status.container_statuses)
        .expect("statuses");
    if let Some(waiting) = statuses[0].state.clone().and_then(|state| state.waiting) {
        let message = waiting.message.expect("a message");
        let words = "back-off 10s restarting failed container=main pod=web_default(";
        assert!(message.starts_with(words), "{message}");
    }
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_kubelet_finds_everything_again() {
    let mut node = Node::start().await;
    node.create("stays", simple()).await;
    node.create("goes", simple()).await;
    node.wait("stays", ready).await;
    node.wait("goes", ready).await;
    node.stop_kubelet().await;
    let parameters = DeleteParams::default().grace_period(0);
    node.pods()
        .delete("goes", &parameters)
        .await
        .expect("deleted");
    let before = node.runtime.calls().len();
    node.start_kubelet();
    for _ in 0..ATTEMPTS {
        if node
            .runtime
            .calls()
            .contains(&"RemovePodSandbox goes".to_owned())
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        node.runtime.calls()[before..],
        [
            "StopContainer main 2",
            "StopPodSandbox goes",
            "RemovePodSandbox goes"
        ],
        "the orphan is ended, and nothing is started"
    );
    assert!(ready(&node.wait("stays", |_| true).await));
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_config_map_is_waited_for() {
    let node = Node::start().await;
    node.create(
        "waits",
        json!({"containers": [{"name": "main", "image": "busybox",
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "configMap": {"name": "later"}}]}),
    )
    .await;
    let events: Api<Event> = Api::namespaced(node.admin.clone(), "default");
    let mut messages = Vec::new();
    for _ in 0..ATTEMPTS {
        // A busy machine answers later.
        let all = events.list(&ListParams::default()).await;
        messages = all
            .into_iter()
            .flat_map(|list| list.items)
            .filter(|event| event.reason.as_deref() == Some("FailedMount"))
            .filter_map(|event| event.message)
            .collect();
        if !messages.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        messages.first().map(String::as_str),
        Some("MountVolume.SetUp failed for volume \"v\" : configmap \"later\" not found")
    );
    let config_maps: Api<ConfigMap> = Api::namespaced(node.admin.clone(), "default");
    let config_map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "later"}, "data": {"a": "1"}}))
            .expect("a config map");
    config_maps
        .create(&PostParams::default(), &config_map)
        .await
        .expect("created");
    node.wait("waits", ready).await;

    // And what is mounted follows the object.
    let config = node.runtime.configs("main").pop().expect("a container");
    let mount = config
        .mounts
        .iter()
        .find(|mount| mount.container_path == "/v")
        .expect("a mount");
    let patch = json!({"data": {"a": "2"}});
    config_maps
        .patch(
            "later",
            &Default::default(),
            &kube::api::Patch::Merge(patch),
        )
        .await
        .expect("patched");
    let file = format!("{}/a", mount.host_path);
    for _ in 0..ATTEMPTS {
        if std::fs::read_to_string(&file).is_ok_and(|text| text == "2") {
            node.close().await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the volume did not follow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pull_policies_and_their_failures() {
    let node = Node::start().await;
    let with = |image: &str, policy: &str| json!({"containers": [{"name": "main", "image": image, "imagePullPolicy": policy}]});
    node.create("never", with("absent-1", "Never")).await;
    node.create("pull", with("absent-2", "IfNotPresent")).await;
    node.create("always", with("busybox", "Always")).await;
    let pod = node
        .wait("never", |pod| {
            waits_for(pod).as_deref() == Some("ErrImageNeverPull")
        })
        .await;
    assert_eq!(
        pod.status.and_then(|status| status.phase).as_deref(),
        Some("Pending")
    );
    node.wait("pull", |pod| {
        waits_for(pod).as_deref() == Some("ErrImagePull")
    })
    .await;
    node.wait("always", ready).await;
    assert!(
        node.runtime
            .calls()
            .contains(&"PullImage busybox:latest".to_owned())
    );
    // A pod that waits for a pull can be deleted at once.
    node.pods()
        .delete("pull", &DeleteParams::default())
        .await
        .expect("deleted");
    node.wait_gone("pull").await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_decide_readiness_and_restarts() {
    let node = Node::start().await;
    // Two pods: one that is restarted again and again is not ready for long.
    node.create(
        "good",
        json!({"containers": [{"name": "good", "image": "busybox",
            "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1,
                "timeoutSeconds": 30}}]}),
    )
    .await;
    node.create(
        "bad",
        json!({"containers": [{"name": "bad", "image": "busybox",
            "livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1,
                "timeoutSeconds": 30, "failureThreshold": 1}}],
            "terminationGracePeriodSeconds": 3}),
    )
    .await;
    node.wait("good", ready).await;
    assert!(node.runtime.calls().contains(&"ExecSync true".to_owned()));
    node.wait("bad", |_| {
        node.runtime
            .calls()
            .contains(&"StopContainer bad 3".to_owned())
    })
    .await;
    node.wait("bad", |pod| {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.as_ref());
        statuses.is_some_and(|all| all[0].restart_count >= 1)
    })
    .await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_runs_to_its_end_succeeds() {
    let node = Node::start().await;
    let mut spec = simple();
    spec["restartPolicy"] = json!("Never");
    node.create("job", spec).await;
    node.wait("job", ready).await;
    node.runtime.end("main", 0);
    let over = |pod: &k8s_openapi::api::core::v1::Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        phase.as_deref() == Some("Succeeded")
    };
    node.wait("job", over).await;
    for _ in 0..ATTEMPTS {
        if node
            .runtime
            .calls()
            .contains(&"StopPodSandbox job".to_owned())
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let count = |name: &str| {
        let calls = node.runtime.calls();
        calls.iter().filter(|call| call.starts_with(name)).count()
    };
    assert_eq!((count("StartContainer"), count("StopPodSandbox")), (1, 1));
    node.close().await;
}
