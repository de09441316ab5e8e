//! Aggregation with a real extension API server on the loopback address.

mod extension;
mod hanging;
mod network;
mod own;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::Value;
use http_body_util::BodyExt;

use crate::harness::{Authority, Client, Cluster};
use extension::{API_SERVICE, Extension, GROUP, Loopback, ROOT, front_proxy};

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

struct World {
    cluster: Cluster,
    front_proxy: Authority,
    loopback: Arc<Loopback>,
}

impl World {
    async fn start() -> World {
        let loopback = Arc::new(Loopback::default());
        let (front_proxy, config) = front_proxy(loopback.clone());
        World {
            cluster: Cluster::aggregating(Authority::new(), config).await,
            front_proxy,
            loopback,
        }
    }

    /// A world with an extension server that is available.
    async fn with_extension() -> (World, Extension) {
        let world = World::start().await;
        let extension = Extension::start(&world.front_proxy, "api.wardle.svc").await;
        let admin = world.cluster.admin();
        extension
            .register(&admin, &world.loopback, "10.9.0.1")
            .await;
        available(&admin, API_SERVICE, "True", "Passed").await;
        (world, extension)
    }
}

/// Waits until the condition of an APIService is this, and returns its message.
async fn available(admin: &Client, name: &str, status: &str, reason: &str) -> String {
    let path = format!("{API_SERVICES}?watch=1&fieldSelector=metadata.name={name}");
    let mut events = admin.watch(&path).await;
    while let Some((_, object)) = events.next().await {
        let conditions = object.list_at(&["status", "conditions"]).iter();
        for condition in conditions {
            let found = |name: &str| condition.str_at(&[name]);
            if (found("status"), found("reason")) == (status, reason) {
                return found("message").to_string();
            }
        }
    }
    panic!("the watch of {name} ended");
}

/// Asks again until the answer is as wanted: what the server fetches in the background shows in no
/// object that could be watched.
async fn until(admin: &Client, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let found = admin.get(path).await.json();
        if wanted(&found) {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_passed_on_in_the_name_of_their_user() {
    let (world, extension) = World::with_extension().await;
    let identity = apiserver::Identity::component("alice", &["dev", "system:masters"]);
    let alice = world.cluster.client(identity);
    let alice = alice
        .with_header("x-remote-user", "system:admin")
        .with_header("x-remote-extra-admin", "yes")
        .with_header("authorization", "Bearer secret")
        .with_header("x-own", "kept");
    let path = format!("{ROOT}/namespaces/default/flunders/a%20b?pretty=true");
    let body = api::document!({"spec": "\u{e4}"});
    let shown = alice.put(&path, &body).await.expect(200);
    assert_eq!(shown.str_at(&["method"]), "PUT");
    assert_eq!(shown.str_at(&["path"]), path);
    assert_eq!(shown.str_at(&["body"]), "{\"spec\":\"\u{e4}\"}");
    let header = |name: &str| shown.at(&["headers", name]).cloned();
    assert_eq!(header("x-remote-user"), Some(api::document!(["alice"])));
    let groups = api::document!(["dev", "system:masters", "system:authenticated"]);
    assert_eq!(header("x-remote-group"), Some(groups));
    assert_eq!(header("x-own"), Some(api::document!(["kept"])));
    for name in ["authorization", "x-remote-extra-admin"] {
        assert_eq!(header(name), None, "{name}");
    }
    let before = extension.state.connections.load(Ordering::SeqCst);
    for _ in 0..20 {
        alice.get(&format!("{ROOT}/flunders")).await.expect(200);
    }
    assert_eq!(extension.state.connections.load(Ordering::SeqCst), before);
    // Who may not, is refused here.
    let nobody = world
        .cluster
        .client(apiserver::Identity::component("nobody", &[]));
    let refused = nobody.get(&format!("{ROOT}/flunders")).await;
    refused.failure(403, "Forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_is_streamed_and_a_redirect_is_not_followed() {
    let (world, extension) = World::with_extension().await;
    let admin = world.cluster.admin();
    let path = format!("{ROOT}/flunders?watch=1");
    let mut watch = admin.open("GET", &path, "", b"").await.into_body();
    let mut next = async || {
        let frame = watch.frame().await.unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    };
    assert_eq!(next().await, "begin\n");
    for line in ["one\n", "two\n"] {
        extension.state.events.send(line.to_string()).unwrap();
        assert_eq!(next().await, line);
    }
    let answer = admin.get(&format!("{ROOT}/redirect")).await;
    assert_eq!(answer.code, 502);
    let text = "the backend attempted to redirect this request, which is not permitted";
    assert_eq!(&answer.bytes[..], text.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_availability_follows_service_endpoints_and_answers() {
    let world = World::start().await;
    let admin = world.cluster.admin();
    let extension = Extension::start(&world.front_proxy, "api.wardle.svc").await;
    let object = extension.api_service(API_SERVICE, GROUP);
    admin.post(API_SERVICES, &object).await.expect(201);
    let message = available(&admin, API_SERVICE, "False", "ServiceNotFound").await;
    assert_eq!(message, "service/api in \"wardle\" is not present");
    let answer = admin.get(&format!("{ROOT}/flunders")).await;
    assert_eq!(
        (answer.code, &answer.bytes[..]),
        (503, &b"service unavailable\n"[..])
    );

    let namespace = api::document!({"metadata": {"name": "wardle"}});
    admin
        .post("/api/v1/namespaces", &namespace)
        .await
        .expect(201);
    let services = "/api/v1/namespaces/wardle/services";
    let other = api::document!({"metadata": {"name": "api"}, "spec": {"ports": [{"port": 80}]}});
    admin.post(services, &other).await.expect(201);
    let message = available(&admin, API_SERVICE, "False", "ServicePortError").await;
    assert_eq!(
        message,
        "service/api in \"wardle\" is not listening on port 443"
    );

    let port = api::document!({"spec": {"ports": [{"port": 443, "targetPort": 8443}]}});
    admin
        .merge(&format!("{services}/api"), &port)
        .await
        .expect(200);
    let message = available(&admin, API_SERVICE, "False", "EndpointsNotFound").await;
    assert_eq!(
        message,
        "cannot find endpointslices for service/api in \"wardle\""
    );

    extension
        .publish(&admin, &world.loopback, "api", "10.9.0.1")
        .await;
    let message = available(&admin, API_SERVICE, "True", "Passed").await;
    assert_eq!(message, "all checks passed");
    admin.get(&format!("{ROOT}/flunders")).await.expect(200);

    let slice = "/apis/discovery.k8s.io/v1/namespaces/wardle/endpointslices/api";
    let endpoints = |ready: bool| {
        api::document!({"endpoints": [
            {"addresses": ["10.9.0.1"], "conditions": {"ready": ready}}]})
    };
    admin.merge(slice, &endpoints(false)).await.expect(200);
    let message = available(&admin, API_SERVICE, "False", "MissingEndpoints").await;
    let expected =
        "endpointslices for service/api in \"wardle\" have no addresses with port name \"\"";
    assert_eq!(message, expected);

    extension.state.code.store(403, Ordering::SeqCst);
    admin.merge(slice, &endpoints(true)).await.expect(200);
    let message = available(&admin, API_SERVICE, "False", "FailedDiscoveryCheck").await;
    let url = format!("https://10.9.0.1:8443{ROOT}");
    let expected = format!("failing or missing response from {url}: bad status from {url}: 403");
    assert_eq!(message, expected);
    extension.state.code.store(200, Ordering::SeqCst);
    available(&admin, API_SERVICE, "True", "Passed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_the_certificate_of_another_is_not_believed() {
    let world = World::start().await;
    let admin = world.cluster.admin();
    let extension = Extension::start(&world.front_proxy, "other.wardle.svc").await;
    extension
        .register(&admin, &world.loopback, "10.9.0.1")
        .await;
    let message = available(&admin, API_SERVICE, "False", "FailedDiscoveryCheck").await;
    assert!(
        message.ends_with(
            "tls: failed to verify certificate: x509: certificate is valid for other.wardle.svc, not api.wardle.svc"
        ),
        "{message}"
    );
    // Who does not care says so.
    let careless = api::document!({"spec": {"insecureSkipTLSVerify": true, "caBundle": null}});
    let path = format!("{API_SERVICES}/{API_SERVICE}");
    admin.merge(&path, &careless).await.expect(200);
    available(&admin, API_SERVICE, "True", "Passed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_and_openapi_contain_what_extension_servers_serve() {
    let (world, extension) = World::with_extension().await;
    let admin = world.cluster.admin();
    let aggregated = admin.clone().with_header("accept", AGGREGATED);
    let entry = |document: &Value| {
        let mut items = document.list_at(&["items"]).iter();
        items
            .find(|item| item.str_at(&["metadata", "name"]) == GROUP)
            .cloned()
    };
    let document = until(&aggregated, "/apis", |document| {
        let versions = entry(document).map(|item| item.list_at(&["versions"]).to_vec());
        versions.is_some_and(|versions| versions[0].str_at(&["freshness"]) == "Current")
    })
    .await;
    let item = entry(&document).unwrap();
    let resource = &item.list_at(&["versions"])[0].list_at(&["resources"])[0];
    assert_eq!(resource.str_at(&["resource"]), "flunders");
    let groups = admin.get("/apis").await.expect(200);
    let names: Vec<&str> = groups
        .list_at(&["groups"])
        .iter()
        .map(|group| group.str_at(&["name"]))
        .collect();
    assert_eq!(names.first(), Some(&"apiregistration.k8s.io"));
    assert_eq!(&names[names.len() - 2..], [GROUP, "metrics.k8s.io"]);
    let group = admin.get(&format!("/apis/{GROUP}")).await.expect(200);
    assert_eq!(group.str_at(&["preferredVersion", "version"]), "v1alpha1");

    let own = "apis/wardle.example.com/v1alpha1";
    let index = until(&admin, "/openapi/v3", |index| index.has(&["paths", own])).await;
    let url = index.str_at(&["paths", own, "serverRelativeURL"]);
    assert_eq!(url, format!("/openapi/v3/{own}?hash=ABC"));
    assert_ne!(index.str_at(&["paths", "apis", "serverRelativeURL"]), "/x");
    let shown = admin.get(url).await.expect(200);
    assert_eq!(shown.str_at(&["path"]), url);

    let path = format!("{ROOT}/flunders");
    let document = until(&admin, "/openapi/v2", |found| found.has(&["paths", &path])).await;
    assert!(document.has(&["definitions", "wardle.Flunder"]));
    assert!(document.has(&["paths", "/api/v1/pods"]));

    // What the server is now is fetched again when its endpoints change.
    extension.state.hangs.store(true, Ordering::SeqCst);
    let slice = "/apis/discovery.k8s.io/v1/namespaces/wardle/endpointslices/api";
    let label = api::document!({"metadata": {"labels": {"x": "y"}}});
    admin.merge(slice, &label).await.expect(200);
    available(&admin, API_SERVICE, "False", "FailedDiscoveryCheck").await;
    // It hangs; everybody else is described all the same, and at once.
    let document = until(&aggregated, "/apis", |document| {
        let versions = entry(document).map(|item| item.list_at(&["versions"]).to_vec());
        versions.is_some_and(|versions| versions[0].str_at(&["freshness"]) == "Stale")
    })
    .await;
    assert!(document.list_at(&["items"]).len() > 10);
    admin
        .delete(&format!("{API_SERVICES}/{API_SERVICE}"))
        .await
        .expect(200);
    let gone = |groups: &Value| {
        let mut groups = groups.list_at(&["groups"]).iter();
        !groups.any(|group| group.str_at(&["name"]) == GROUP)
    };
    until(&admin, "/apis", gone).await;
    assert_eq!(admin.get(&format!("{ROOT}/flunders")).await.code, 404);
}
