//! Restarts of all containers of a pod, and the order in which containers end.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::json;

use crate::harness::{Node, ready};

fn restarts(pod: &Pod) -> Vec<i32> {
    let status = pod.status.as_ref();
    let statuses = status.and_then(|status| status.container_statuses.as_ref());
    let statuses = statuses.into_iter().flatten();
    statuses.map(|status| status.restart_count).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_containers_end_restarts_all_containers() {
    let node = Node::start().await;
    node.create(
        "team",
        json!({"restartPolicy": "Never",
            "initContainers": [{"name": "first", "image": "busybox"}],
            "containers": [
            {"name": "lead", "image": "busybox", "restartPolicy": "Never", "restartPolicyRules": [
                {"action": "RestartAllContainers",
                    "exitCodes": {"operator": "In", "values": [42]}}]},
            {"name": "other", "image": "busybox"}]}),
    )
    .await;
    for round in 0..2 {
        node.wait("team", |pod| {
            let status = pod.status.as_ref();
            let init = status.and_then(|status| status.init_container_statuses.as_ref());
            init.is_some_and(|init| {
                let running =
                    |state: &k8s_openapi::api::core::v1::ContainerState| state.running.is_some();
                init[0].restart_count == round && init[0].state.as_ref().is_some_and(running)
            })
        })
        .await;
        node.runtime.end("first", 0);
        let pod = node
            .wait("team", |pod| ready(pod) && restarts(pod) == [round, round])
            .await;
        let text = serde_json::to_string(&pod.status).expect("text");
        assert_eq!(
            text.contains("RestartingAllContainers"),
            round > 0,
            "{text}"
        );
        if round == 0 {
            node.runtime.end("lead", 42);
        }
    }
    let calls = node.runtime.calls();
    let removed: Vec<&String> = calls
        .iter()
        .filter(|call| call.starts_with("RemoveContainer"))
        .collect();
    assert_eq!(removed.len(), 3, "{calls:?}");
    assert_eq!(removed[2], "RemoveContainer lead", "the cause goes last");

    // Another code is the end.
    node.runtime.end("lead", 1);
    node.runtime.end("other", 0);
    node.wait("team", |pod| {
        pod.status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
            == Some("Failed")
    })
    .await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sidecars_end_last_to_first_after_the_rest() {
    let node = Node::start().await;
    let hook = json!({"preStop": {"exec": {"command": ["true"]}}});
    node.create(
        "rowed",
        json!({"terminationGracePeriodSeconds": 60,
            "initContainers": [
                {"name": "one", "image": "busybox", "restartPolicy": "Always", "lifecycle": hook},
                {"name": "two", "image": "busybox", "restartPolicy": "Always"}],
            "containers": [{"name": "app", "image": "busybox"}]}),
    )
    .await;
    node.wait("rowed", ready).await;
    let deletion = DeleteParams::default();
    node.pods()
        .delete("rowed", &deletion)
        .await
        .expect("deleted");
    node.wait_gone("rowed").await;
    let calls = node.runtime.calls();
    let stopped: Vec<&str> = calls
        .iter()
        .filter_map(|call| call.strip_prefix("StopContainer ")?.split(' ').next())
        .collect();
    assert_eq!(stopped, ["app", "two", "one"], "{calls:?}");
    assert!(calls.contains(&"ExecSync true".to_owned()), "{calls:?}");
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_container_gets_two_seconds_at_least() {
    let node = Node::start().await;
    node.create(
        "brief",
        json!({"terminationGracePeriodSeconds": 0,
            "containers": [{"name": "app", "image": "busybox",
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}}}]}),
    )
    .await;
    node.wait("brief", ready).await;
    let deletion = DeleteParams::default();
    node.pods()
        .delete("brief", &deletion)
        .await
        .expect("deleted");
    node.wait_gone("brief").await;
    let mut calls = node.runtime.calls();
    for _ in 0..crate::harness::ATTEMPTS {
        if calls.iter().any(|call| call.starts_with("StopContainer")) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        calls = node.runtime.calls();
    }
    assert!(
        calls.contains(&"StopContainer app 2".to_owned()),
        "{calls:?}"
    );
    assert!(calls.contains(&"ExecSync true".to_owned()), "{calls:?}");
    node.close().await;
}
