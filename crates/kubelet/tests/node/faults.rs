//! What goes wrong around a kubelet: it stays calm, the pods go on, and all is well afterwards.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node as NodeObject, Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

use crate::harness::{ATTEMPTS, NODE, Node, ready, waits_for};

const DAY: i64 = 24 * 3600 * 1_000_000;

fn one(container: &str) -> serde_json::Value {
    json!({"containers": [{"name": container, "image": "busybox", "imagePullPolicy": "IfNotPresent"}],
        "terminationGracePeriodSeconds": 1})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runtime_goes_and_comes_back() {
    let mut node = Node::start().await;
    node.create("steady", one("steady")).await;
    node.create("unlucky", one("unlucky")).await;
    node.wait("steady", ready).await;
    node.wait("unlucky", ready).await;
    node.stop_runtime();
    node_is(&node, "False", "container runtime status check failed").await;
    // Neither pod is blamed for it; one ends while nobody looks, another comes and waits.
    assert!(ready(&node.wait("steady", |_| true).await));
    node.runtime.end("unlucky", 3);
    node.create("late", one("late")).await;
    node.start_runtime();
    node_is(&node, "True", "kubelet is posting ready status").await;
    node.wait("late", ready).await;
    let unlucky = node.wait("unlucky", |pod| restarts(pod) == 1).await;
    let status = &unlucky.status.expect("a status").container_statuses;
    let last = status.as_ref().expect("statuses")[0].last_state.clone();
    let ended = last.and_then(|last| last.terminated).expect("its end");
    assert_eq!(ended.exit_code, 3);
    assert_eq!(restarts(&node.wait("steady", ready).await), 0);
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_is_down_is_asked_again() {
    let node = Node::start().await;
    let message = "failed to do request: dial tcp: connection refused";
    let failing = ("PullImage", message.to_owned());
    node.runtime.state().failing.extend([failing]);
    let mut pod = one("main");
    pod["containers"][0]["image"] = json!("far-away:1");
    node.create("waiting", pod).await;
    for reason in ["ErrImagePull", "ImagePullBackOff"] {
        let waiting = node
            .wait("waiting", |pod| waits_for(pod).as_deref() == Some(reason))
            .await;
        let text = serde_json::to_string(&waiting.status).expect("text");
        assert!(text.contains(message), "{text}");
    }
    node.create("other", one("other")).await;
    node.wait("other", ready).await;
    node.runtime.state().failing.clear();
    node.wait("waiting", ready).await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_without_an_address_waits_for_one() {
    let node = Node::start().await;
    let message = "plugin type=\"coracle-cni\" failed (add): no free address in 10.244.0.0/24";
    let failing = ("RunPodSandbox", message.to_owned());
    node.create("before", one("before")).await;
    node.wait("before", ready).await;
    node.runtime.state().failing.extend([failing]);
    node.create("waiting", one("waiting")).await;
    let event = event(&node, "FailedCreatePodSandBox").await;
    let said = event.message.unwrap_or_default();
    assert!(said.starts_with("Failed to create pod sandbox: "), "{said}");
    assert!(said.contains(message), "{said}");
    // The event may come before the first status.
    node.wait("waiting", |pod| {
        waits_for(pod).as_deref() == Some("ContainerCreating")
    })
    .await;
    assert!(ready(&node.wait("before", |_| true).await));
    node.runtime.state().failing.clear();
    node.wait("waiting", ready).await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_go_on_after_the_clock_is_set() {
    let node = Node::start().await;
    for (round, jump) in [-DAY, 2 * DAY].into_iter().enumerate() {
        let name = format!("looping-{round}");
        node.create(&name, one(&name)).await;
        node.wait(&name, ready).await;
        node.runtime.end(&name, 1);
        node.wait(&name, |pod| restarts(pod) == 1 && ready(pod))
            .await;
        node.runtime.end(&name, 1);
        // On a slow machine it may have waited long enough already, and runs again.
        node.wait(&name, |pod| {
            waits_for(pod).as_deref() == Some("CrashLoopBackOff") || restarts(pod) == 2
        })
        .await;
        node.move_clock(jump);
        // It waited for ten seconds, not for a day.
        node.wait(&name, |pod| restarts(pod) == 2 && ready(pod))
            .await;
        node.create(&format!("new-{round}"), one(&format!("new-{round}")))
            .await;
        node.wait(&format!("new-{round}"), ready).await;
        node_is(&node, "True", "kubelet is posting ready status").await;
        let delete = DeleteParams::default();
        node.pods().delete(&name, &delete).await.expect("deleted");
        node.wait_gone(&name).await;
    }
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_crashing_pods_leave_room_for_others() {
    let node = Node::start().await;
    let names: Vec<String> = (0..100).map(|number| format!("crash-{number}")).collect();
    for name in &names {
        node.create(name, one(name)).await;
    }
    for crash in 0..2 {
        for name in &names {
            node.wait(name, |pod| restarts(pod) == crash && ready(pod))
                .await;
            node.runtime.end(name, 1);
        }
    }
    for name in &names {
        // On a slow machine some have waited long enough already, and run again.
        let crashing = |pod: &Pod| waits_for(pod).as_deref() == Some("CrashLoopBackOff");
        let pod = node
            .wait(name, |pod| crashing(pod) || restarts(pod) == 2)
            .await;
        let text = serde_json::to_string(&pod.status).expect("text");
        let words = format!("back-off 10s restarting failed container={name} pod={name}_default(");
        assert!(!crashing(&pod) || text.contains(&words), "{text}");
    }
    let starts = node.runtime.calls();
    let starts = starts
        .iter()
        .filter(|call| call.starts_with("StartContainer"));
    assert!(
        starts.count() <= 3 * names.len(),
        "no container is restarted at once for ever"
    );
    node.create("healthy", one("healthy")).await;
    node.wait("healthy", ready).await;
    let delete = DeleteParams::default();
    let all = ListParams::default();
    node.pods()
        .delete_collection(&delete, &all)
        .await
        .expect("deleted");
    for name in &names {
        node.wait_gone(name).await;
    }
    node.wait_gone("healthy").await;
    leaves_nothing(&node).await;
    node.close().await;
}

/// `KUBELET_KILLS`: how many kills; each is one step later in the life of a pod than the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubelet_killed_at_any_step_goes_on_from_there() {
    let kills = std::env::var("KUBELET_KILLS").ok();
    let kills: usize = kills.map_or(14, |text| text.parse().expect("a number"));
    let mut node = Node::start().await;
    let mut round = 0;
    let mut killed = 0;
    // How far into a pod's life the next kill comes.
    let mut step = 0;
    while killed < kills {
        let name = format!("pod-{round}");
        round += 1;
        let spec = json!({
            "initContainers": [{"name": "first", "image": "busybox", "imagePullPolicy": "IfNotPresent"}],
            "containers": [
                {"name": "main", "image": "busybox", "imagePullPolicy": "Always"},
                {"name": "beside", "image": "busybox", "imagePullPolicy": "IfNotPresent"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 1});
        let begin = node.runtime.calls().len();
        node.create(&name, spec).await;
        let mut deleted = false;
        let mut done = false;
        for _ in 0..ATTEMPTS {
            let calls = node.runtime.calls();
            if !done && calls.len() >= begin + step {
                node.kill_kubelet().await;
                node.start_kubelet();
                killed += 1;
                done = true;
            }
            // Once or twice: a kubelet that is killed during the start may create the container again.
            if runs(&node, "first") {
                node.runtime.end("first", 0);
            }
            match node.pods().get_opt(&name).await {
                Ok(None) => break,
                Ok(Some(pod)) if ready(&pod) && !deleted => {
                    // A container that was created and not started is created again, and counts.
                    assert!(restarts(&pod) <= 1, "{:?}", node.runtime.calls());
                    let delete = DeleteParams::default();
                    deleted = node.pods().delete(&name, &delete).await.is_ok();
                }
                // A busy machine answers later.
                Ok(Some(_)) | Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        node.wait_gone(&name).await;
        leaves_nothing(&node).await;
        let steps = node.runtime.calls().len() - begin;
        // After the last step comes the first again.
        step = match done && step < steps {
            true => step + 1,
            false => 0,
        };
    }
    node.close().await;
}

fn runs(node: &Node, container: &str) -> bool {
    let state = node.runtime.state();
    state.containers.values().any(|(config, status, _)| {
        let name = config.metadata.as_ref().map(|data| data.name.as_str());
        name == Some(container) && status.state == cri::v1::ContainerState::ContainerRunning as i32
    })
}

fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.as_ref();
    let statuses = status.and_then(|status| status.container_statuses.as_ref());
    statuses.map_or(0, |all| {
        all.iter().map(|one| one.restart_count).max().unwrap_or(0)
    })
}

/// Nothing of any pod is in the runtime or on the disk.
async fn leaves_nothing(node: &Node) {
    let mut left = String::new();
    for _ in 0..ATTEMPTS {
        let sandboxes: Vec<String> = node.runtime.state().sandboxes.keys().cloned().collect();
        let containers = node.runtime.state().containers.len();
        let directory = node.directory.path().join("kubelet/pods");
        let on_disk = std::fs::read_dir(directory).map_or(0, Iterator::count);
        if sandboxes.is_empty() && containers == 0 && on_disk == 0 {
            return;
        }
        left = format!("{sandboxes:?}, {containers} containers, {on_disk} directories");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("left behind: {left}; calls: {:?}", node.runtime.calls());
}

async fn node_is(node: &Node, status: &str, message: &str) {
    let nodes: Api<NodeObject> = Api::all(node.admin.clone());
    let mut last = None;
    for _ in 0..ATTEMPTS {
        // A busy machine answers later.
        let found = nodes.get_opt(NODE).await.ok().flatten();
        let conditions = found.and_then(|node| node.status?.conditions);
        last = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == "Ready");
        let said = last.as_ref().and_then(|last| last.message.as_deref());
        if last.as_ref().is_some_and(|last| last.status == status)
            && said.is_some_and(|said| said.contains(message))
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the node says {last:?}");
}

async fn event(node: &Node, reason: &str) -> Event {
    let events: Api<Event> = Api::namespaced(node.admin.clone(), "default");
    for _ in 0..ATTEMPTS {
        let list = events.list(&ListParams::default()).await;
        let mut items = list.into_iter().flat_map(|list| list.items);
        if let Some(found) = items.find(|event| event.reason.as_deref() == Some(reason)) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no event {reason}");
}
