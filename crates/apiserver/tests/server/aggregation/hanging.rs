//! An extension API server that accepts connections and never answers: nobody else waits for it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use api::Value;

use super::extension::{API_SERVICE, Extension, GROUP, ROOT};
use super::{AGGREGATED, World, available, until};
use crate::custom_harness::{WIDGETS, establish, widgets};

/// Less than the server waits for an extension API server.
const AT_ONCE: Duration = Duration::from_secs(4);

fn freshness(document: &Value, group: &str) -> String {
    let mut items = document.list_at(&["items"]).iter();
    let item = items.find(|item| item.str_at(&["metadata", "name"]) == group);
    let versions = item.map_or(&[][..], |item| item.list_at(&["versions"]));
    let version = versions.first();
    version.map_or_else(String::new, |version| {
        version.str_at(&["freshness"]).to_string()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_is_answered_at_once_while_an_extension_server_hangs() {
    let world = World::start().await;
    let admin = world.cluster.admin();
    establish(&admin, &widgets()).await;
    let extension = Extension::start(&world.front_proxy, "api.wardle.svc").await;
    extension.state.hangs.store(true, Ordering::SeqCst);
    extension
        .register(&admin, &world.loopback, "10.9.0.1")
        .await;
    // It has a connection, and with it a request that it does not answer.
    while extension.state.connections.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let aggregated = admin.clone().with_header("accept", AGGREGATED);
    let asked = ["/api", "/apis", "/openapi/v2", "/openapi/v3", WIDGETS];
    let all = async {
        let clients = [&admin, &aggregated];
        let requests = clients.into_iter().flat_map(|client| {
            asked
                .into_iter()
                .cycle()
                .take(50)
                .map(move |path| async move { (path, client.get(path).await) })
        });
        futures::future::join_all(requests).await
    };
    let answers = tokio::time::timeout(AT_ONCE, all).await;
    let answers = answers.expect("discovery waits for the server that hangs");
    for (path, answer) in answers {
        // WIDGETS has no form of discovery.
        let is_list = path == WIDGETS && answer.code == 406;
        assert!(answer.code == 200 || is_list, "{path}: {}", answer.code);
    }
    let document = aggregated.get("/apis").await.expect(200);
    assert_eq!(freshness(&document, "example.com"), "Current");
    assert_ne!(freshness(&document, GROUP), "Current");
    let groups = admin.get("/apis").await.expect(200);
    let mut groups = groups.list_at(&["groups"]).iter();
    assert!(groups.any(|group| group.str_at(&["name"]) == "example.com"));
    // It is said to be unavailable, and its own paths are refused without asking it.
    let message = available(&admin, API_SERVICE, "False", "FailedDiscoveryCheck").await;
    assert!(message.contains("10.9.0.1:8443"), "{message}");
    let path = format!("{ROOT}/flunders");
    let refused = admin.get(&path);
    let refused = tokio::time::timeout(AT_ONCE, refused).await.unwrap();
    assert_eq!(refused.code, 503);
    // It is found again when it answers.
    extension.state.hangs.store(false, Ordering::SeqCst);
    available(&admin, API_SERVICE, "True", "Passed").await;
    until(&aggregated, "/apis", |document| {
        freshness(document, GROUP) == "Current"
    })
    .await;
}
