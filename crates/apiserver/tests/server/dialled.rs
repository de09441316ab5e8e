//! What the server dials for others: addresses that users write are checked first.

use api::Value;

use crate::harness::{Client, Cluster, pod};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A node whose status leads to this place.
async fn node_at(admin: &Client, name: &str, address: &str, port: i64) {
    let node = api::document!({"metadata": {"name": name}});
    let mut node = admin.post(NODES, &node).await.expect(201);
    let status = api::document!({
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    });
    node.set(&["status"], status);
    let path = format!("{NODES}/{name}/status");
    admin.put(&path, &node).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn nodes_do_not_lead_back_to_the_api_server() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let places = [
        // The server itself, at its address and at any other of its machine.
        ("192.0.2.1", 6443),
        ("10.0.0.7", 6443),
        ("127.0.0.1", 6443),
        ("::ffff:127.0.0.1", 6443),
        // The Service `kubernetes`, which leads to it.
        ("10.96.0.1", 443),
        // Nobody's, or only this machine's.
        ("169.254.169.254", 80),
        ("0.0.0.0", 10250),
        ("224.0.0.1", 10250),
    ];
    for (number, (address, port)) in places.into_iter().enumerate() {
        let name = format!("n{number}");
        node_at(&admin, &name, address, port).await;
        let mut bound = pod(&name);
        bound.set(&["spec", "nodeName"], name.as_str());
        admin.post(PODS, &bound).await.expect(201);
        for path in [
            format!("{NODES}/{name}/proxy/api/v1/secrets"),
            format!("{NODES}/{name}:{port}/proxy/api/v1/secrets"),
            format!("{PODS}/{name}/log"),
        ] {
            let answer = admin.get(&path).await.failure(400, "BadRequest");
            assert_eq!(answer, "address not allowed", "{path} at {address}");
        }
    }
    // A kubelet elsewhere is dialled, which fails here for want of a certificate.
    node_at(&admin, "kubelet", "192.0.2.1", 10250).await;
    let path = format!("{NODES}/kubelet/proxy/pods");
    let message = admin.get(&path).await.failure(503, "ServiceUnavailable");
    assert!(
        message.contains("no kubelet client certificate"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_do_not_lead_to_the_api_server_or_its_machine() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    for (name, address) in [("a", "192.0.2.1"), ("b", "127.0.0.1"), ("c", "169.254.1.1")] {
        let mut made = admin.post(PODS, &pod(name)).await.expect(201);
        made.set(&["status", "podIP"], address);
        let ips: Value = api::document!([{"ip": address}]);
        made.set(&["status", "podIPs"], ips);
        let path = format!("{PODS}/{name}/status");
        admin.put(&path, &made).await.expect(200);
        let path = format!("{PODS}/https:{name}:6443/proxy/api");
        let message = admin.get(&path).await.failure(400, "BadRequest");
        assert_eq!(message, "address not allowed", "{address}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_kubelet_client_has_the_rights_of_a_kubelet_client_only() {
    let cluster = Cluster::start().await;
    let client = apiserver::Identity::component("kube-apiserver-kubelet-client", &[]);
    let client = cluster.client(client);
    let review = |verb: &str, resource: &str, subresource: &str| {
        api::document!({"spec": {"resourceAttributes": {
            "verb": verb, "resource": resource, "subresource": subresource, "name": "n",
        }}})
    };
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, resource, subresource, allowed) in [
        ("create", "nodes", "proxy", true),
        ("get", "nodes", "stats", true),
        ("get", "nodes", "metrics", true),
        ("get", "nodes", "log", true),
        ("get", "secrets", "", false),
        ("create", "pods", "", false),
        ("update", "nodes", "status", false),
    ] {
        let answer = client
            .post(path, &review(verb, resource, subresource))
            .await;
        let answer = answer.expect(201);
        let found = answer.at(&["status", "allowed"]).and_then(Value::as_bool);
        assert_eq!(found, Some(allowed), "{verb} {resource}/{subresource}");
    }
}
