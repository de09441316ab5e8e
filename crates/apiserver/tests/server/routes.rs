//! Which paths exist, for every kind, verb and subresource: what is authorized is what is acted on.

use std::sync::Arc;

use api::{Resource, catalogue};
use apiserver::Identity;
use environment::Environment;
use store::Store;
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options};

use crate::harness::{Authority, Client, Cluster, config_map};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const METHODS: [(&str, &str); 6] = [
    ("GET", ""),
    ("POST", "application/json"),
    ("PUT", "application/json"),
    ("PATCH", "application/merge-patch+json"),
    ("PATCH", "application/apply-patch+yaml"),
    ("DELETE", ""),
];

/// A cluster with the namespaces `mine` and `victim`, and a user who may do everything in `mine`.
async fn set_up() -> (Arc<dyn Store>, Cluster, Client) {
    let environment = Environment::simulated(1, 1_800_000_000_000_000);
    let disk = SimulatedDisk::new(1).mount();
    let opened = Embedded::open(disk, environment.clone(), Options::default()).await;
    let store: Arc<dyn Store> = opened.unwrap();
    let cluster = Cluster::over(store.clone(), Authority::new(), environment).await;
    let admin = cluster.admin();
    for name in ["mine", "victim"] {
        cluster.namespace(name).await;
    }
    let maps = "/api/v1/namespaces/victim/configmaps";
    admin.post(maps, &config_map("victim")).await.expect(201);
    let node = api::document!({"metadata": {"name": "victim"}});
    admin.post("/api/v1/nodes", &node).await.expect(201);
    let binding = api::document!({
        "metadata": {"name": "all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    let bindings = format!("{RBAC}/namespaces/mine/rolebindings");
    admin.post(&bindings, &binding).await.expect(201);
    let jane = cluster.client(Identity::component("jane", &[]));
    let own = jane.get("/api/v1/namespaces/mine/configmaps").await;
    own.expect(200);
    (store, cluster, jane)
}

fn root(resource: &Resource) -> String {
    match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    }
}

/// What can follow a plural: nothing, a name, and each subresource of the name.
fn below(resource: &Resource) -> Vec<String> {
    let mut below = vec![String::new(), "/victim".to_string()];
    for subresource in &resource.subresources {
        below.push(format!("/victim/{}", subresource.name));
        below.push(format!("/victim/{}/", subresource.name));
    }
    if resource.plural == "nodes" {
        below.push("/victim/proxy/pods".to_string());
        below.push("/victim:10250/proxy/".to_string());
    }
    below
}

/// Reviews of oneself are for everybody.
fn is_for_everybody(resource: &Resource) -> bool {
    resource.kind.starts_with("SelfSubject")
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_objects_have_no_path_below_a_namespace() {
    let (store, cluster, jane) = set_up().await;
    let admin = cluster.admin();
    let before = store.revision().await.unwrap();
    let mut asked = 0;
    for resource in catalogue::on_by_default().resources() {
        if resource.namespaced {
            continue;
        }
        let (root, plural) = (root(resource), &*resource.plural);
        for rest in below(resource) {
            for prefix in ["", "/watch"] {
                let path = format!("{root}{prefix}/namespaces/mine/{plural}{rest}");
                for (method, content_type) in METHODS {
                    for client in [&jane, &admin] {
                        let answer = client.send(method, &path, content_type, b"{}").await;
                        assert_eq!(answer.code, 404, "{method} {path}");
                        asked += 1;
                    }
                }
            }
        }
    }
    assert!(asked > 500, "{asked}");
    for path in ["nodes", "nodes/victim"] {
        let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/mine/{path}");
        jane.get(&path).await.failure(404, "NotFound");
    }
    assert_eq!(store.revision().await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn rights_in_one_namespace_reach_nothing_outside_it() {
    let (store, _cluster, jane) = set_up().await;
    let before = store.revision().await.unwrap();
    for resource in catalogue::on_by_default().resources() {
        let (root, plural) = (root(resource), &*resource.plural);
        let places: &[&str] = match (resource.namespaced, plural) {
            (true, _) => &[
                "",
                "/namespaces/victim",
                "/watch",
                "/watch/namespaces/victim",
            ],
            (false, _) => &["", "/watch"],
        };
        for place in places {
            for rest in below(resource) {
                let path = format!("{root}{place}/{plural}{rest}");
                for (method, content_type) in METHODS {
                    let answer = jane.send(method, &path, content_type, b"{}").await;
                    let expected = match is_for_everybody(resource) && method == "POST" {
                        true => continue,
                        false => 403,
                    };
                    assert_eq!(answer.code, expected, "{method} {path}");
                }
            }
        }
    }
    assert_eq!(store.revision().await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_a_namespace_has_no_path_outside_it() {
    let (_store, cluster, jane) = set_up().await;
    let admin = cluster.admin();
    for (method, path, code) in [
        ("GET", "/api/v1/configmaps/victim", 404),
        ("PUT", "/api/v1/configmaps/victim", 404),
        ("GET", "/api/v1/pods/victim/status", 404),
        ("GET", "/api/v1/watch/configmaps/victim", 404),
        ("POST", "/api/v1/configmaps", 405),
        ("DELETE", "/api/v1/configmaps", 405),
        ("POST", "/api/v1/watch/namespaces/victim/configmaps", 405),
        (
            "DELETE",
            "/api/v1/watch/namespaces/victim/configmaps/victim",
            405,
        ),
        ("GET", "/api/v1/namespaces/victim/pods/a/status/more", 404),
        ("GET", "/api/v1/namespaces/victim/status/more", 404),
        ("GET", "/api/v1/namespaces/victim//configmaps", 404),
        ("POST", "/api/v1/namespaces//configmaps", 404),
        ("GET", "/api/v1//configmaps", 404),
        ("GET", "/api/v1/namespaces/victim/configmaps/..", 400),
        ("GET", "/api/v1/namespaces/victim/pods/%2e%2e/proxy/", 400),
        ("GET", "/api/v1/nodes/victim%2Fproxy%2Fa/b", 404),
        ("GET", "/api/v1/namespaces/%zz/configmaps", 400),
        ("GET", "/metrics/", 404),
    ] {
        let answer = admin.send(method, path, "application/json", b"{}").await;
        assert_eq!(answer.code, code, "{method} {path}");
    }
    for path in [
        "/api/v1/namespaces/victim%2Fconfigmaps/victim",
        "/version/",
        "/api/v1/",
    ] {
        admin.get(path).await.expect(200);
    }
    // A list of no namespace is one of all namespaces, and needs the rights for that.
    let all = "/api/v1/namespaces//configmaps";
    admin.get(all).await.expect(200);
    jane.get(all).await.expect(403);
}

#[tokio::test(start_paused = true)]
async fn names_in_a_body_must_be_those_of_the_path() {
    let (_store, cluster, _) = set_up().await;
    let admin = cluster.admin();
    let namespace = api::document!({"metadata": {"name": "mine"}, "spec": {}});
    let message = admin
        .put("/api/v1/namespaces/victim/finalize", &namespace)
        .await
        .failure(400, "BadRequest");
    assert_eq!(
        message,
        "the name of the object (mine) does not match the name on the URL (victim)"
    );
    let elsewhere =
        "the namespace of the provided object does not match the namespace sent on the request";
    for (below, mut body) in [
        (
            "pods/a/binding",
            api::document!({"apiVersion": "v1", "kind": "Binding", "target": {"name": "n"}}),
        ),
        (
            "pods/a/eviction",
            api::document!({"apiVersion": "policy/v1", "kind": "Eviction"}),
        ),
    ] {
        body.set(
            &["metadata"],
            api::document!({"name": "a", "namespace": "mine"}),
        );
        let path = format!("/api/v1/namespaces/victim/{below}");
        let message = admin.post(&path, &body).await.failure(400, "BadRequest");
        assert_eq!(message, elsewhere);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeline_is_for_those_who_may_read_the_pod() {
    let (_store, cluster, jane) = set_up().await;
    let admin = cluster.admin();
    let role = api::document!({
        "metadata": {"name": "paths"},
        "rules": [{"verbs": ["get", "head"], "nonResourceURLs": ["/coracle/v1/trace/*"]}],
    });
    admin
        .post(&format!("{RBAC}/clusterroles"), &role)
        .await
        .expect(201);
    let binding = api::document!({
        "metadata": {"name": "paths"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "paths"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    admin
        .post(&format!("{RBAC}/clusterrolebindings"), &binding)
        .await
        .expect(201);
    let path = "/coracle/v1/trace/namespaces/victim/pods/a";
    for (method, path, code) in [
        ("GET", path.to_string(), 403),
        ("HEAD", path.to_string(), 403),
        // No path of its own: what is authorized as a path is not a pod's timeline.
        ("GET", format!("{path}/"), 404),
        ("GET", path.replace("victim", "vic%74im"), 403),
    ] {
        let answer = jane.send(method, &path, "", b"").await;
        assert_eq!(answer.code, code, "{method} {path}");
    }
}
