//! Pods that the node does not take.

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::harness::{ATTEMPTS, Node, ready};

fn failed(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some("Failed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_pods_fail_with_a_reason() {
    let node = Node::start().await;
    node.create(
        "greedy",
        json!({"containers": [{"name": "main", "image": "busybox",
            "resources": {"requests": {"cpu": "4000"}}}]}),
    )
    .await;
    node.create(
        "tuned",
        json!({"containers": [{"name": "main", "image": "busybox"}],
            "securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
    )
    .await;
    let status = node.wait("greedy", failed).await.status.expect("a status");
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    let message = status.message.unwrap_or_default();
    assert!(
        message.starts_with(
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 4000000"
        ),
        "{message}"
    );
    let status = node.wait("tuned", failed).await.status.expect("a status");
    assert_eq!(status.reason.as_deref(), Some("SysctlForbidden"));
    assert_eq!(
        status.message.as_deref(),
        Some("Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted")
    );

    // The room is not taken by those that were refused.
    node.create(
        "modest",
        json!({"containers": [{"name": "main", "image": "busybox"}]}),
    )
    .await;
    node.wait("modest", ready).await;
    assert!(
        !node
            .runtime
            .calls()
            .iter()
            .any(|call| call.contains("greedy") || call.contains("tuned"))
    );
    let events: Api<Event> = Api::namespaced(node.admin.clone(), "default");
    let mut reasons: Vec<String> = Vec::new();
    for _ in 0..ATTEMPTS {
        // A busy machine answers later.
        let list = events.list(&ListParams::default()).await;
        let items = list.into_iter().flat_map(|list| list.items);
        reasons = items.filter_map(|event| event.reason).collect();
        if reasons.iter().any(|reason| reason == "SysctlForbidden") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(
        reasons.iter().any(|reason| reason == "SysctlForbidden"),
        "{reasons:?}"
    );
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_critical_pod_waits_until_its_victim_has_ended() {
    let configuration = serde_json::from_value(json!({"maxPods": 1}));
    let node = Node::start_with(configuration.expect("a configuration")).await;
    let simple = json!({"containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent"}],
        "terminationGracePeriodSeconds": 1});
    node.create("common", simple.clone()).await;
    node.wait("common", ready).await;
    let failing = ("StopContainer", "not now".to_owned());
    node.runtime.state().failing.extend([failing]);
    let mut critical = simple;
    critical["priorityClassName"] = json!("system-node-critical");
    node.create("critical", critical).await;
    node.until("tried twice", async || {
        node.runtime.count("StopContainer") >= 2
    })
    .await;
    assert_eq!(node.runtime.count("RunPodSandbox critical"), 0);
    node.runtime.state().failing.clear();
    node.wait("critical", ready).await;
    let common = node.wait("common", failed).await.status.expect("a status");
    assert_eq!(common.reason.as_deref(), Some("Preempting"));
    node.close().await;
}

/// A node with a pod `old` whose containers cannot be ended for now.
async fn node_with_lingering_pod(configuration: Value, old: Value) -> Node {
    let configuration = serde_json::from_value(configuration);
    let node = Node::start_with(configuration.expect("a configuration")).await;
    node.create("old", old).await;
    node.wait("old", ready).await;
    let failing = ("StopContainer", "not now".to_owned());
    node.runtime.state().failing.extend([failing]);
    node
}

/// Deletes a pod, whose object is gone at once.
async fn delete(node: &Node, name: &str, parameters: DeleteParams) {
    let deleted = node.pods().delete(name, &parameters).await;
    deleted.expect("the pod is deleted");
    let found = node.pods().get_opt(name).await.expect("an answer");
    assert!(found.is_none(), "{name} is still there");
}

/// The pod runs although a container of the one before it still does.
async fn runs_alongside_old(node: Node, name: &str) {
    let judged = |pod: &Pod| ready(pod) || failed(pod);
    let status = node.wait(name, judged).await.status.expect("a status");
    assert_eq!(status.phase.as_deref(), Some("Running"), "{status:?}");
    node.runtime.state().failing.clear();
    node.until("the old containers are gone", async || {
        node.runtime.state().sandboxes.len() == 1
    })
    .await;
    node.close().await;
}

/// A pod that asks for three quarters of this machine.
fn large_pod(extra: Value) -> Value {
    let cpus = std::thread::available_parallelism().expect("a number of CPUs");
    let mut spec = json!({"containers": [{"name": "main", "image": "busybox",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": format!("{}m", cpus.get() * 750)}}}]});
    for (key, value) in extra.as_object().expect("fields") {
        spec[key] = value.clone();
    }
    spec
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_deleted_by_force_releases_its_cpu_at_once() {
    let node = node_with_lingering_pod(json!({}), large_pod(json!({}))).await;
    delete(&node, "old", DeleteParams::default().grace_period(0)).await;
    node.create("new", large_pod(json!({}))).await;
    runs_alongside_old(node, "new").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_victim_of_preemption_without_grace_takes_nothing_from_the_preemptor() {
    let victim = large_pod(json!({"terminationGracePeriodSeconds": 0}));
    let node = node_with_lingering_pod(json!({}), victim).await;
    // As the scheduler does it: the victim is deleted, and the preemptor bound in its place.
    delete(&node, "old", DeleteParams::default()).await;
    let preemptor = large_pod(json!({"priorityClassName": "system-cluster-critical"}));
    node.create("preemptor", preemptor).await;
    runs_alongside_old(node, "preemptor").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_the_api_no_longer_has_take_no_place_of_others() {
    let simple = json!({"containers": [{"name": "main", "image": "busybox",
        "imagePullPolicy": "IfNotPresent"}]});
    let node = node_with_lingering_pod(json!({"maxPods": 3}), simple.clone()).await;
    for name in ["second", "third"] {
        node.create(name, simple.clone()).await;
        node.wait(name, ready).await;
    }
    for name in ["old", "second", "third"] {
        delete(&node, name, DeleteParams::default().grace_period(0)).await;
    }
    node.create("new", simple).await;
    runs_alongside_old(node, "new").await;
}
