//! What the timeline shows of pods that do not come up: where they stand, each attempt, its error
//! and the wait for the next one.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::harness::{ATTEMPTS, Node, ready};

/// Waits until the pod's timeline, as users see it, has all of these.
async fn shows(node: &Node, pod: &str, wanted: &[&str]) -> String {
    let mut text = String::new();
    for _ in 0..ATTEMPTS {
        if let Some(timeline) = node.timelines.find("default", pod) {
            text = ::trace::render(&timeline);
            if wanted.iter().all(|wanted| text.contains(wanted)) {
                return text;
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the timeline of {pod} never has {wanted:?}:\n{text}");
}

fn container(extra: Value) -> Value {
    let mut container = json!({"name": "main", "image": "busybox",
        "imagePullPolicy": "IfNotPresent"});
    for (key, value) in extra.as_object().expect("fields") {
        container[key] = value.clone();
    }
    json!({"containers": [container]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_pull_is_shown_with_its_retry() {
    let node = Node::start().await;
    node.create("typo", container(json!({"image": "absent:1"})))
        .await;
    let head = "is at hop 10 (containers): EnsureImage main, attempt 1: ErrImagePull: ";
    let text = shows(
        &node,
        "typo",
        &[head, "not found; tried again after 10.00 s"],
    )
    .await;
    assert!(!text.contains("running"), "{text}");
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_secrets_and_config_maps_are_shown_as_failed_attempts() {
    let node = Node::start().await;
    let mut spec = container(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}));
    spec["volumes"] = json!([{"name": "v", "secret": {"secretName": "late"}}]);
    node.create("mounts", spec).await;
    let missing = "MountVolume.SetUp failed for volume \"v\" : secret \"late\" not found";
    let second = format!("volumes, attempt 2: {missing}; tried again after ");
    let text = shows(&node, "mounts", &["is at hop 10", missing, &second]).await;
    assert!(!text.contains("running"), "{text}");

    let reads = json!({"envFrom": [{"configMapRef": {"name": "later"}}]});
    node.create("reads", container(reads)).await;
    let head = "is at hop 10 (containers): CreateContainer main, attempt 1: \
        CreateContainerConfigError: configmap \"later\" not found; tried again after 10.00 s";
    shows(&node, "reads", &[head]).await;

    // Both come: nothing of what they hold is shown.
    let secret: Secret = serde_json::from_value(
        json!({"metadata": {"name": "late"}, "stringData": {"password": "hunter2"}}),
    )
    .expect("a secret");
    let secrets: Api<Secret> = Api::namespaced(node.admin.clone(), "default");
    let created = secrets.create(&PostParams::default(), &secret).await;
    created.expect("the secret is created");
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "later"}, "data": {"KEY": "value"}}))
            .expect("a config map");
    let maps: Api<ConfigMap> = Api::namespaced(node.admin.clone(), "default");
    let created = maps.create(&PostParams::default(), &map).await;
    created.expect("the config map is created");
    for name in ["mounts", "reads"] {
        node.wait(name, ready).await;
        let text = shows(&node, name, &["running after"]).await;
        assert!(!text.contains("stands at"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_cannot_be_started_is_shown_as_failed_attempt() {
    let node = Node::start().await;
    let failing = ("StartContainer", "exec: \"nope\": not found".to_owned());
    node.runtime.state().failing.extend([failing]);
    node.create("typo", container(json!({"command": ["nope"]})))
        .await;
    let error = "RunContainerError: exec: \"nope\": not found";
    // The first one is tried again at once, the second waits.
    let first = format!("✗ StartContainer main, attempt 1: {error}");
    let second = format!("StartContainer main, attempt 2: {error}; tried again after ");
    let head = format!("is at hop 10 (containers): {second}");
    let text = shows(&node, "typo", &[&first, &head]).await;
    assert!(!text.contains("running"), "nothing ever ran: {text}");
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashing_container_is_shown_with_its_retries() {
    let node = Node::start().await;
    node.create("crash", container(json!({}))).await;
    node.wait("crash", ready).await;
    node.runtime.end("main", 3);
    node.until("started again", async || {
        node.runtime.count("StartContainer main") == 2
    })
    .await;
    node.wait("crash", ready).await;
    node.runtime.end("main", 3);
    let first = "✗ Run main, attempt 1: exit code 3";
    let head = "is at hop 10 (containers): Run main, attempt 2: exit code 3";
    shows(&node, "crash", &[first, head, "; tried again after "]).await;
    node.close().await;
}
