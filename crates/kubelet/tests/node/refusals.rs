//! Pods that the node does not take.

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Api, api::ListParams};
use serde_json::json;

use crate::harness::{ATTEMPTS, Node, ready};

fn failed(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some("Failed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_node_cannot_run_fails_with_a_reason() {
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
