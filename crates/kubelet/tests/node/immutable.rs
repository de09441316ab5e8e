//! ConfigMaps that never change are read once.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::harness::{Node, ready};

async fn put(maps: &Api<ConfigMap>, name: &str, text: &str, immutable: bool) {
    let map: ConfigMap = serde_json::from_value(
        json!({"metadata": {"name": name}, "data": {"key": text}, "immutable": immutable}),
    )
    .expect("a map");
    let made = maps.create(&PostParams::default(), &map).await;
    made.expect("the map is made");
}

async fn start(node: &Node, pod: &str) {
    let from = |name: &str| json!({"configMapKeyRef": {"name": name, "key": "key"}});
    node.create(
        pod,
        json!({"containers": [{"name": pod, "image": "busybox", "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "FIXED", "valueFrom": from("fixed")},
                {"name": "LOOSE", "valueFrom": from("loose")}]}]}),
    )
    .await;
    node.wait(pod, ready).await;
}

fn variable(node: &Node, pod: &str, key: &str) -> String {
    let config = node.runtime.configs(pod).pop().expect("a container");
    let found = config.envs.into_iter().find(|one| one.key == key);
    String::from_utf8(found.expect("the variable").value).expect("text")
}

/// As with upstream, a namesake shows only when no pod holds the first one any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn immutable_objects_are_not_watched() {
    let node = Node::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(node.admin.clone(), "default");
    put(&maps, "fixed", "old", true).await;
    put(&maps, "loose", "old", false).await;
    start(&node, "first").await;
    for name in ["fixed", "loose"] {
        let deleted = maps.delete(name, &DeleteParams::default()).await;
        deleted.expect("the map is deleted");
        put(&maps, name, "new", name == "fixed").await;
    }
    // The watch that goes on has brought the new one as soon as a pod shows it.
    let mut round = 0;
    let pod = loop {
        let pod = format!("second-{round}");
        start(&node, &pod).await;
        if variable(&node, &pod, "LOOSE") == "new" {
            break pod;
        }
        round += 1;
        assert!(round < 100, "the new map never came");
    };
    assert_eq!(variable(&node, &pod, "FIXED"), "old");

    for held in (0..=round)
        .map(|round| format!("second-{round}"))
        .chain(["first".to_owned()])
    {
        let deleted = node
            .pods()
            .delete(&held, &DeleteParams::default().grace_period(0))
            .await;
        deleted.expect("deleted");
        node.wait_gone(&held).await;
    }
    // A worker takes a moment longer than its object, and until then it holds the map.
    for round in 0.. {
        let pod = format!("third-{round}");
        start(&node, &pod).await;
        let fixed = variable(&node, &pod, "FIXED");
        if fixed == "new" {
            break;
        }
        assert!(round < 100, "the old map stayed");
        let deleted = node
            .pods()
            .delete(&pod, &DeleteParams::default().grace_period(0))
            .await;
        deleted.expect("deleted");
        node.wait_gone(&pod).await;
        tokio::time::sleep(std::time::Duration::from_millis(20 * round)).await;
    }
    node.close().await;
}
