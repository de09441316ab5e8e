//! What a node's credentials are good for: the Node authorizer and NodeRestriction.

use api::Value;
use apiserver::Identity;

use crate::harness::{Client, Cluster, config_map, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn node(name: &str) -> Value {
    api::document!({"metadata": {"name": name}})
}

/// Two nodes; a pod on the first names one of two secrets.
async fn set_up() -> (Cluster, Client, Client) {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let (one, two) = (
        cluster.client(Identity::node("one")),
        cluster.client(Identity::node("two")),
    );
    one.post("/api/v1/nodes", &node("one")).await.expect(201);
    two.post("/api/v1/nodes", &node("two")).await.expect(201);
    for name in ["named", "other"] {
        let secret = api::document!({"metadata": {"name": name}});
        admin.post(SECRETS, &secret).await.expect(201);
    }
    let mut bound = pod("web");
    bound.set(&["spec", "nodeName"], "one");
    let volume = api::document!({"name": "s", "secret": {"secretName": "named"}});
    bound.set(&["spec", "volumes"], vec![volume]);
    admin.post(PODS, &bound).await.expect(201);
    admin.get(&format!("{PODS}/web")).await.expect(200);
    (cluster, one, two)
}

#[tokio::test(start_paused = true)]
async fn a_node_reads_what_its_pods_name() {
    let (_cluster, one, two) = set_up().await;
    one.get(&format!("{SECRETS}/named")).await.expect(200);
    let message = two
        .get(&format!("{SECRETS}/named"))
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "secrets \"named\" is forbidden: User \"system:node:two\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\": no relationship found between node 'two' and this object"
    );
    one.get(&format!("{SECRETS}/other"))
        .await
        .failure(403, "Forbidden");
    one.get(&format!("{SECRETS}?fieldSelector=metadata.name=named"))
        .await
        .expect(200);
    let message = one.get(SECRETS).await.failure(403, "Forbidden");
    assert!(message.ends_with("No Object name found"), "{message}");
    one.get("/api/v1/pods?fieldSelector=spec.nodeName=one")
        .await
        .expect(200);
    let message = one.get("/api/v1/pods").await.failure(403, "Forbidden");
    assert!(
        message.ends_with("can only list/watch pods with spec.nodeName field selector"),
        "{message}"
    );
    one.get("/api/v1/nodes/one").await.expect(200);
    one.get("/api/v1/nodes/two").await.failure(403, "Forbidden");
    // Rules that hold for all nodes.
    one.get("/api/v1/services").await.expect(200);
    one.get("/api/v1/namespaces")
        .await
        .failure(403, "Forbidden");
}

#[tokio::test(start_paused = true)]
async fn a_node_writes_only_about_itself() {
    let (cluster, one, two) = set_up().await;
    let status = api::document!({"status": {"phase": "Running"}});
    let path = format!("{PODS}/web/status");
    one.merge(&path, &status).await.expect(200);
    let message = two.merge(&path, &status).await.failure(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"web\" is forbidden: node \"two\" can only update pod status for pods with spec.nodeName set to itself"
    );
    let message = two
        .delete(&format!("{PODS}/web"))
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"web\" is forbidden: node \"two\" can only delete pods with spec.nodeName set to itself"
    );
    let message = one.post(PODS, &pod("own")).await.failure(403, "Forbidden");
    assert!(
        message.ends_with("can only create mirror pods"),
        "{message}"
    );
    let labels = api::document!({"metadata": {"labels": {"node-role.kubernetes.io/x": ""}}});
    let message = one
        .merge("/api/v1/nodes/one", &labels)
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "nodes \"one\" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/x"
    );
    one.merge("/api/v1/nodes/two", &labels)
        .await
        .failure(403, "Forbidden");
    // The node came with the taint that keeps pods away until it is ready.
    let made = one.get("/api/v1/nodes/one").await.expect(200);
    assert_eq!(
        made.list_at(&["spec", "taints"])[0].str_at(&["key"]),
        "node.kubernetes.io/not-ready"
    );
    let lease = |name: &str| api::document!({"metadata": {"name": name}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    one.post(leases, &lease("one")).await.expect(201);
    one.post(leases, &lease("two"))
        .await
        .failure(403, "Forbidden");
    one.post("/api/v1/namespaces/default/configmaps", &config_map("x"))
        .await
        .failure(403, "Forbidden");
    drop(cluster);
}

#[tokio::test(start_paused = true)]
async fn a_node_gets_tokens_for_its_pods_only() {
    let (_cluster, one, two) = set_up().await;
    let pod = one.get(&format!("{PODS}/web")).await.expect(200);
    let uid = pod.str_at(&["metadata", "uid"]);
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let bound = |uid: &str| {
        let reference = api::document!({
            "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid,
        });
        api::document!({"spec": {"boundObjectRef": reference, "audiences": []}})
    };
    one.post(path, &bound(uid)).await.expect(201);
    two.post(path, &bound(uid)).await.failure(403, "Forbidden");
    let message = one
        .post(path, &api::document!({"spec": {"audiences": []}}))
        .await
        .failure(403, "Forbidden");
    assert!(
        message.ends_with("node requested token not bound to a pod"),
        "{message}"
    );
    let mut foreign = bound(uid);
    foreign.set(&["spec", "audiences"], vec![Value::from("elsewhere")]);
    let message = one.post(path, &foreign).await.failure(403, "Forbidden");
    assert!(
        message.contains("audience \"elsewhere\" not found in pod spec volume"),
        "{message}"
    );
}

/// A volume that the local-path provisioner made for a node.
fn volume(name: &str, node: &str) -> Value {
    api::document!({
        "metadata": {
            "name": name, "finalizers": ["coracle.dev/local-path"],
            "annotations": {"pv.kubernetes.io/provisioned-by": "coracle.dev/local-path"},
        },
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": format!("/data/{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
            ]}]}},
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_node_lets_go_of_its_own_local_path_volumes_and_changes_nothing_else() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let volumes = "/api/v1/persistentvolumes";
    let mut foreign = volume("foreign", "one");
    foreign.remove(&["metadata", "annotations"]);
    for made in [volume("own", "one"), volume("other", "two"), foreign] {
        admin.post(volumes, &made).await.expect(201);
    }
    let groups = ["system:coracle:local-path-nodes"];
    let identity = Identity::component("system:coracle:local-path:one", &groups);
    let one = cluster.client(identity);
    one.get(volumes).await.expect(200);
    let let_go = api::document!({"metadata": {"finalizers": null}});
    let path = |name: &str| format!("{volumes}/{name}");
    one.merge(&path("own"), &let_go).await.expect(200);
    for name in ["other", "foreign"] {
        let message = one.merge(&path(name), &let_go).await;
        let message = message.failure(403, "Forbidden");
        let told = "node \"one\" may only let go of local-path volumes of its own";
        assert!(message.ends_with(told), "{message}");
    }
    for change in [
        api::document!({"metadata": {"labels": {"a": "b"}}}),
        api::document!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}),
        api::document!({"spec": {"nodeAffinity": null}}),
        api::document!({"metadata": {"finalizers": null, "annotations": null}}),
    ] {
        let message = one.merge(&path("own"), &change).await;
        message.failure(403, "Forbidden");
    }
    one.post(volumes, &volume("new", "two"))
        .await
        .failure(403, "Forbidden");
    one.delete(&path("own")).await.failure(403, "Forbidden");
    // A role that lets it do more, as in clusters of before, opens no door.
    let role = api::document!({
        "metadata": {"name": "more"},
        "rules": [{"verbs": ["*"], "apiGroups": [""], "resources": ["persistentvolumes", "persistentvolumes/status"]}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let roles = format!("{rbac}/clusterroles");
    admin.post(&roles, &role).await.expect(201);
    let binding = api::document!({
        "metadata": {"name": "more"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "more"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": groups[0]}],
    });
    let bindings = format!("{rbac}/clusterrolebindings");
    admin.post(&bindings, &binding).await.expect(201);
    admin.get(&bindings).await.expect(200);
    one.post(volumes, &volume("new", "one"))
        .await
        .failure(403, "Forbidden");
    one.delete(&path("other")).await.failure(403, "Forbidden");
    one.delete(volumes).await.failure(403, "Forbidden");
    let status = api::document!({"status": {"phase": "Failed"}});
    let status = one.merge(&format!("{}/status", path("own")), &status).await;
    status.failure(403, "Forbidden");
}
