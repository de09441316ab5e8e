//! Images that take a Secret: who may use them once they are there.

use k8s_openapi::api::core::v1::{Event, Secret};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::json;

use crate::harness::{ATTEMPTS, Node, ready, waits_for};

fn pod(secrets: &[&str]) -> serde_json::Value {
    let secrets: Vec<_> = secrets.iter().map(|name| json!({"name": name})).collect();
    json!({"imagePullSecrets": secrets, "containers": [
        {"name": "main", "image": "reg.example/private:1", "imagePullPolicy": "IfNotPresent"}]})
}

fn pulls(node: &Node) -> usize {
    let calls = node.runtime.calls();
    let pulls = calls.iter().filter(|call| call.starts_with("PullImage"));
    pulls.count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_pulled_with_a_secret_needs_it() {
    let mut node = Node::start().await;
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "key"}, "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson":
            r#"{"auths":{"reg.example":{"username":"me","password":"pw"}}}"#},
    }))
    .expect("a secret");
    let secrets: Api<Secret> = Api::namespaced(node.admin.clone(), "default");
    let created = secrets.create(&PostParams::default(), &secret).await;
    created.expect("the secret is created");

    node.create("owner", pod(&["key"])).await;
    node.wait("owner", ready).await;
    assert_eq!(pulls(&node), 1);
    // A new kubelet still knows.
    node.kill_kubelet().await;
    node.start_kubelet();
    node.create("friend", pod(&["key"])).await;
    node.wait("friend", ready).await;
    assert_eq!(pulls(&node), 1, "the same secret opens it");

    node.create("stranger", pod(&["lost"])).await;
    let waiting = node
        .wait("stranger", |pod| {
            waits_for(pod).as_deref() == Some("ErrImagePull")
        })
        .await;
    let text = serde_json::to_string(&waiting.status).expect("text");
    assert!(text.contains("\"pull access denied\""), "{text}");
    let events: Api<Event> = Api::namespaced(node.admin.clone(), "default");
    let words = "Unable to retrieve some image pull secrets (lost); attempting to pull the image may not succeed.";
    for attempt in 0.. {
        // A busy machine answers later.
        let list = events.list(&ListParams::default()).await;
        let items = list.into_iter().flat_map(|list| list.items);
        let mut messages = items.filter_map(|event| event.message);
        if messages.any(|message| message == words) {
            break;
        }
        assert!(attempt < ATTEMPTS, "the lost secret was not reported");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    node.close().await;
}
