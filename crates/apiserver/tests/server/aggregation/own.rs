//! The APIServices of what the server serves itself, and the metrics that others may take over.

use std::sync::atomic::Ordering;

use api::Value;

use super::extension::Extension;
use super::{API_SERVICES, World, available};
use crate::custom_harness::{DEFINITIONS, definition, establish};
use crate::harness::Cluster;

const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

#[tokio::test]
async fn every_group_version_that_is_served_here_has_its_api_service() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let list = admin.get(API_SERVICES).await.expect(200);
    let served: Vec<String> = list
        .list_at(&["items"])
        .iter()
        .map(|object| object.str_at(&["metadata", "name"]).to_string())
        .collect();
    for name in ["v1.", "v1.apps", "v2.autoscaling", "v1beta1.metrics.k8s.io"] {
        assert!(
            served.iter().any(|known| known == name),
            "{name}: {served:?}"
        );
    }
    assert!(
        !served
            .iter()
            .any(|name| name == "v1.apiregistration.k8s.io")
    );
    let apps = admin
        .get(&format!("{API_SERVICES}/v1.apps"))
        .await
        .expect(200);
    assert_eq!(apps.str_at(&["metadata", "labels", AUTOMANAGED]), "onstart");
    let expected = api::document!({
        "group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15,
    });
    assert_eq!(apps.get("spec"), Some(&expected));
    let condition = &apps.list_at(&["status", "conditions"])[0];
    assert_eq!(condition.str_at(&["reason"]), "Local");
    let ready = admin.get("/readyz/autoregister-completion").await;
    assert_eq!(ready.code, 200);
}

#[tokio::test(start_paused = true)]
async fn the_api_service_of_a_custom_kind_comes_and_goes_with_its_definition() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let name = "v1.example.com";
    let mut events = admin
        .watch(&format!(
            "{API_SERVICES}?watch=1&fieldSelector=metadata.name={name}"
        ))
        .await;
    establish(&admin, &definition("example.com", "gadgets", "Gadget")).await;
    let (kind, object) = events.next().await.unwrap();
    assert_eq!(kind, "ADDED");
    assert_eq!(object.str_at(&["metadata", "labels", AUTOMANAGED]), "true");
    let expected = api::document!({
        "group": "example.com", "version": "v1",
        "groupPriorityMinimum": 1000, "versionPriority": 100,
    });
    assert_eq!(object.get("spec"), Some(&expected));
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    admin.delete(&path).await.expect(200);
    while events.next().await.unwrap().0 != "DELETED" {}
}

#[tokio::test]
async fn extension_servers_can_read_whom_to_believe() {
    let world = World::start().await;
    let admin = world.cluster.admin();
    let config_maps = "/api/v1/namespaces/kube-system/configmaps";
    let name = "extension-apiserver-authentication";
    let selected = format!("{config_maps}?watch=1&fieldSelector=metadata.name={name}");
    let mut events = admin.watch(&selected).await;
    let (_, object) = events.next().await.unwrap();
    let data = |object: &Value, name: &str| object.str_at(&["data", name]).to_string();
    assert_eq!(
        data(&object, "requestheader-client-ca-file"),
        world.front_proxy.pem
    );
    assert_eq!(
        data(&object, "requestheader-allowed-names"),
        r#"["front-proxy-client"]"#
    );
    assert!(data(&object, "client-ca-file").contains("BEGIN CERTIFICATE"));
    // Whoever deletes it gets it back.
    admin
        .delete(&format!("{config_maps}/{name}"))
        .await
        .expect(200);
    assert_eq!(events.next().await.unwrap().0, "DELETED");
    let (kind, again) = events.next().await.unwrap();
    assert_eq!(kind, "ADDED");
    assert_eq!(again.get("data"), object.get("data"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metrics_server_takes_the_metrics_over_and_gives_them_back() {
    let world = World::start().await;
    let admin = world.cluster.admin();
    let nodes = "/apis/metrics.k8s.io/v1beta1/nodes";
    assert_eq!(
        admin.get(nodes).await.expect(200).str_at(&["kind"]),
        "NodeMetricsList"
    );

    let (group, version) = ("metrics.k8s.io", "v1beta1");
    let extension = Extension::of(&world.front_proxy, "api.wardle.svc", group, version).await;
    let namespace = api::document!({"metadata": {"name": "wardle"}});
    admin
        .post("/api/v1/namespaces", &namespace)
        .await
        .expect(201);
    let service = api::document!({
        "metadata": {"name": "api"}, "spec": {"ports": [{"port": 443, "targetPort": 8443}]},
    });
    let services = "/api/v1/namespaces/wardle/services";
    admin.post(services, &service).await.expect(201);
    extension
        .publish(&admin, &world.loopback, "api", "10.9.0.1")
        .await;
    let name = "v1beta1.metrics.k8s.io";
    let path = format!("{API_SERVICES}/{name}");
    let theirs = extension.api_service(name, group);
    let applied = admin
        .send(
            "PATCH",
            &format!("{path}?fieldManager=kubectl&force=true"),
            "application/apply-patch+yaml",
            &theirs.to_json(),
        )
        .await;
    applied.expect(200);
    available(&admin, name, "True", "Passed").await;
    let shown = admin.get(nodes).await.expect(200);
    assert_eq!(shown.str_at(&["path"]), nodes);
    extension.state.code.store(500, Ordering::SeqCst);

    // Deleted, it is ours again.
    let mut events = admin
        .watch(&format!(
            "{API_SERVICES}?watch=1&fieldSelector=metadata.name={name}"
        ))
        .await;
    admin.delete(&path).await.expect(200);
    while let Some((kind, object)) = events.next().await {
        if kind == "ADDED" && !object.has(&["spec", "service"]) {
            break;
        }
    }
    super::until(&admin, nodes, |found| {
        found.str_at(&["kind"]) == "NodeMetricsList"
    })
    .await;
}
