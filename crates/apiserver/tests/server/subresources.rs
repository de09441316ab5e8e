//! Binding, status, eviction, traces, and the paths that are not resources.

use api::Value;

use crate::harness::{Cluster, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_once() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    admin.post(PODS, &pod("a")).await.expect(201);
    let binding = api::document!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    });
    let path = format!("{PODS}/a/binding");
    admin.post(&path, &binding).await.expect(201);
    let bound = admin.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(bound.str_at(&["spec", "nodeName"]), "n1");
    let conditions = bound
        .at(&["status", "conditions"])
        .and_then(Value::as_array)
        .unwrap();
    assert_eq!(conditions[0].str_at(&["type"]), "PodScheduled");
    assert_eq!(conditions[0].str_at(&["status"]), "True");
    let message = admin.post(&path, &binding).await.failure(409, "Conflict");
    assert_eq!(
        message,
        "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n1\""
    );
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let made = admin.post(PODS, &pod("a")).await.expect(201);
    let mut changed = made.clone();
    changed.set(&["status", "phase"], "Running");
    changed.set(&["metadata", "labels", "x"], "y");
    let path = format!("{PODS}/a");
    let after = admin.put(&path, &changed).await.expect(200);
    assert_eq!(after.str_at(&["status", "phase"]), "Pending");
    let mut changed = after.clone();
    changed.set(&["status", "phase"], "Running");
    changed.set(
        &["spec", "containers"],
        api::document!([{"name": "other", "image": "x"}]),
    );
    let after = admin
        .put(&format!("{path}/status"), &changed)
        .await
        .expect(200);
    assert_eq!(after.str_at(&["status", "phase"]), "Running");
    assert_eq!(after.get("spec"), made.get("spec"));
}

#[tokio::test(start_paused = true)]
async fn eviction_deletes() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    admin.post(PODS, &pod("a")).await.expect(201);
    let eviction =
        api::document!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    admin
        .post(&format!("{PODS}/a/eviction"), &eviction)
        .await
        .expect(201);
    admin
        .get(&format!("{PODS}/a"))
        .await
        .failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn a_pods_first_five_hops_are_recorded() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    admin
        .clone()
        .with_header(
            "coracle-client-span",
            "start=1800000000000000;work=250;bytes=99",
        )
        .post(PODS, &pod("a"))
        .await
        .expect(201);
    let trace = admin
        .get("/coracle/v1/trace/namespaces/default/pods/a")
        .await
        .expect(200);
    let hops = trace.get("hops").and_then(Value::as_array).unwrap();
    let numbers: Vec<i64> = hops
        .iter()
        .filter_map(|hop| hop.get("hop")?.as_i64())
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(hops[0].get("work_us").and_then(Value::as_i64), Some(250));
    admin.post(PODS, &pod("b")).await.expect(201);
    let trace = admin
        .get("/coracle/v1/trace/namespaces/default/pods/b")
        .await
        .expect(200);
    assert_eq!(
        trace.get("hops").and_then(Value::as_array).unwrap()[0].str_at(&["component"]),
        "external"
    );
    let uid = admin.get(&format!("{PODS}/b")).await.expect(200);
    let uid = uid.str_at(&["metadata", "uid"]);
    let spans = api::document!([{"uid": uid, "span": {
        "hop": 9, "name": "receipt", "component": "kubelet", "start": 1, "queue_us": 0, "work_us": 5, "bytes": 0,
    }}]);
    admin.post("/coracle/v1/spans", &spans).await.expect(200);
    let trace = admin
        .get("/coracle/v1/trace/namespaces/default/pods/b")
        .await
        .expect(200);
    assert_eq!(
        trace.get("hops").and_then(Value::as_array).unwrap().len(),
        6
    );
    admin
        .get("/coracle/v1/trace/namespaces/default/pods/none")
        .await
        .failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn paths_that_are_not_resources() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    for path in ["/livez", "/readyz", "/healthz"] {
        let answer = admin.get(path).await;
        assert_eq!((answer.code, &answer.bytes[..]), (200, &b"ok"[..]));
    }
    let version = admin.get("/version").await.expect(200);
    // No pre-release: what follows the plus sign does not count when versions are compared.
    let (version, ours) = version.str_at(&["gitVersion"]).split_once('+').unwrap();
    assert_eq!(version, "v1.36.4");
    assert!(ours.starts_with("coracle"), "{ours}");
    assert!(
        String::from_utf8_lossy(&admin.get("/metrics").await.bytes)
            .contains("apiserver_request_total")
    );
    let keys = admin.get("/openid/v1/jwks").await.expect(200);
    assert!(keys.to_string().contains("ES256"));
    admin
        .get("/.well-known/openid-configuration")
        .await
        .expect(200);
    admin.get("/api").await.expect(200);
    admin.get("/apis").await.expect(200);
    admin.get("/api/v1").await.expect(200);
    admin.get("/apis/apps").await.expect(200);
    admin.get("/apis/apps/v1").await.expect(200);
    let aggregated = admin.clone().with_header(
        "accept",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
    );
    let list = aggregated.get("/apis").await.expect(200);
    assert_eq!(list.str_at(&["kind"]), "APIGroupDiscoveryList");
    let index = admin.get("/openapi/v3").await.expect(200);
    assert!(index.to_string().contains("apis/apps/v1"));
    let answer = admin.get("/openapi/v3/apis/apps/v1").await;
    let tag = answer
        .headers
        .get("etag")
        .unwrap()
        .to_str()
        .unwrap()
        .to_string();
    let unchanged = admin.clone().with_header("if-none-match", &tag);
    assert_eq!(unchanged.get("/openapi/v3/apis/apps/v1").await.code, 304);
    assert_eq!(admin.get("/apis/example.com/v1/things").await.code, 404);
    assert_eq!(admin.get("/nonsense").await.code, 404);
    admin
        .post("/api/v1/pods", &pod("a"))
        .await
        .failure(405, "MethodNotAllowed");
}

#[tokio::test(start_paused = true)]
async fn a_binding_is_checked_and_carries_metadata_over() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    admin.post(PODS, &pod("a")).await.expect(201);
    let path = format!("{PODS}/a/binding");
    let unnamed = api::document!({"target": {"kind": "Node", "name": "n"}});
    let message = admin.post(&path, &unnamed).await.failure(400, "BadRequest");
    assert_eq!(message, "name in URL does not match name in Binding object");
    let nowhere = api::document!({"metadata": {"name": "a"}, "target": {"kind": "Moon"}});
    let message = admin
        .post(&path, &nowhere)
        .await
        .failure(500, "InternalError");
    assert_eq!(
        message,
        "[target.kind: Unsupported value: \"Moon\": supported values: \"Node\", \"<empty>\", target.name: Required value]"
    );
    let binding = api::document!({
        "metadata": {"name": "a", "labels": {"zone": "z"}, "annotations": {"why": "free"}},
        "target": {"kind": "Node", "name": "n"},
    });
    admin.post(&path, &binding).await.expect(201);
    let bound = admin.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(bound.str_at(&["spec", "nodeName"]), "n");
    assert_eq!(bound.str_at(&["metadata", "labels", "zone"]), "z");
    assert_eq!(bound.str_at(&["metadata", "annotations", "why"]), "free");
    admin.post(&path, &binding).await.failure(409, "Conflict");
}

#[tokio::test(start_paused = true)]
async fn scales_show_the_selector_as_queries_write_it() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = api::document!({
        "metadata": {"name": "s"},
        "spec": {
            "selector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
            },
            "template": {
                "metadata": {"labels": {"app": "web", "tier": "a"}},
                "spec": {"containers": [{"name": "main", "image": "busybox"}]},
            },
        },
    });
    admin.post(sets, &set).await.expect(201);
    let scale = admin.get(&format!("{sets}/s/scale")).await.expect(200);
    assert_eq!(
        scale.str_at(&["status", "selector"]),
        "app=web,tier in (a,b)"
    );
}
