//! Server-side apply and managed fields, through the whole server.

use api::Value;

use crate::harness::{Answer, Client, Cluster, config_map, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const APPLY: &str = "application/apply-patch+yaml";

async fn apply(client: &Client, path: &str, query: &str, body: &Value) -> Answer {
    let path = format!("{path}?{query}");
    client.send("PATCH", &path, APPLY, &body.to_json()).await
}

fn map(data: Value) -> Value {
    api::document!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn deployment(replicas: Option<i64>) -> Value {
    let mut deployment = api::document!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "a", "image": "one"}]}}},
    });
    if let Some(replicas) = replicas {
        deployment.set(&["spec", "replicas"], replicas);
    }
    deployment
}

fn entries(object: &Value) -> Vec<String> {
    object
        .list_at(&["metadata", "managedFields"])
        .iter()
        .map(|entry| {
            let text = |name: &str| entry.str_at(&[name]).to_string();
            let all = [text("manager"), text("operation"), text("subresource")];
            all.join(" ").trim_end().to_string()
        })
        .collect()
}

fn fields(object: &Value, manager: &str) -> Value {
    object
        .list_at(&["metadata", "managedFields"])
        .iter()
        .find(|entry| entry.str_at(&["manager"]) == manager)
        .and_then(|entry| entry.get("fieldsV1").cloned())
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn apply_creates_changes_and_conflicts() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let path = format!("{MAPS}/a");
    let one = map(api::document!({"a": "1", "b": "1"}));
    // A dry run creates nothing.
    apply(&admin, &path, "fieldManager=one&dryRun=All", &one)
        .await
        .expect(201);
    admin.get(&path).await.failure(404, "NotFound");
    let created = apply(&admin, &path, "fieldManager=one", &one)
        .await
        .expect(201);
    assert_eq!(entries(&created), ["one Apply"]);
    assert_eq!(
        fields(&created, "one"),
        api::document!({"f:data": {"f:a": {}, "f:b": {}}})
    );
    // What changes nothing writes nothing.
    let again = apply(&admin, &path, "fieldManager=one", &one)
        .await
        .expect(200);
    assert_eq!(again, created);

    let two = map(api::document!({"a": "2"}));
    let refused = apply(&admin, &path, "fieldManager=two", &two)
        .await
        .expect(409);
    assert_eq!(
        refused.str_at(&["message"]),
        "Apply failed with 1 conflict: conflict with \"one\": .data.a"
    );
    assert_eq!(
        refused.get("details"),
        Some(
            &api::document!({"causes": [{"reason": "FieldManagerConflict",
            "message": "conflict with \"one\"", "field": ".data.a"}]})
        )
    );
    let forced = apply(&admin, &path, "fieldManager=two&force=true", &two)
        .await
        .expect(200);
    assert_eq!(entries(&forced), ["one Apply", "two Apply"]);
    // The first applier gives `b` up, which nobody else owns.
    let empty = map(api::document!({"a": "2"}));
    let left = apply(&admin, &path, "fieldManager=one", &empty)
        .await
        .expect(200);
    assert_eq!(left.get("data"), Some(&api::document!({"a": "2"})));
    // Others see the same, also in the stored form.
    assert_eq!(admin.get(&path).await.expect(200), left);
}

#[tokio::test(start_paused = true)]
async fn every_write_is_tracked() {
    let cluster = Cluster::start().await;
    let admin = cluster
        .admin()
        .with_header("user-agent", "tool/1.0 (linux)");
    let created = admin.post(MAPS, &config_map("a")).await.expect(201);
    assert_eq!(entries(&created), ["tool Update"]);
    let path = format!("{MAPS}/a");
    let patch = api::document!({"data": {"b": "2"}});
    let patched = admin
        .merge(&format!("{path}?fieldManager=patcher"), &patch)
        .await
        .expect(200);
    assert_eq!(
        fields(&patched, "patcher"),
        api::document!({"f:data": {"f:b": {}}})
    );
    // A client that leaves the owners out does not remove them.
    let mut put = patched.clone();
    put.remove(&["metadata", "managedFields"]);
    put.set(&["data", "a"], "changed");
    let put = admin.put(&path, &put).await.expect(200);
    assert_eq!(
        fields(&put, "tool"),
        api::document!({"f:data": {".": {}, "f:a": {}}})
    );
    // An empty list does, for good.
    let forget = api::document!({"metadata": {"managedFields": []}});
    let forgotten = admin.merge(&path, &forget).await.expect(200);
    assert_eq!(entries(&forgotten), Vec::<String>::new());
    let touched = admin.merge(&path, &patch).await.expect(200);
    assert_eq!(touched, forgotten);
    let applied = apply(
        &admin,
        &path,
        "fieldManager=one",
        &map(api::document!({"b": "2"})),
    )
    .await
    .expect(200);
    assert_eq!(
        entries(&applied),
        ["one Apply", "before-first-apply Update"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_server_adds_has_no_owner() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let pods = "/api/v1/namespaces/default/pods";
    let created = admin
        .post(&format!("{pods}?fieldManager=one"), &pod("a"))
        .await
        .expect(201);
    let owned = fields(&created, "one");
    assert!(owned.has(&["f:spec", "f:restartPolicy"]), "{owned}");
    for name in [
        "f:tolerations",
        "f:priority",
        "f:volumes",
        "f:serviceAccountName",
    ] {
        assert!(!owned.has(&["f:spec", name]), "{name} in {owned}");
    }
    assert!(!owned.has(&["f:status"]), "{owned}");
    let status = api::document!({"status": {"phase": "Running"}, "spec": {"nodeName": "x"}});
    let written = admin
        .merge(&format!("{pods}/a/status?fieldManager=kubelet"), &status)
        .await
        .expect(200);
    assert_eq!(entries(&written), ["kubelet Update status", "one Update"]);
    assert_eq!(
        fields(&written, "kubelet"),
        api::document!({"f:status": {"f:phase": {}}})
    );
    // Apply on the status subresource owns status only and creates nothing.
    let body = api::document!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"nodeName": "y"}, "status": {"message": "hello"}});
    let applied = apply(
        &admin,
        &format!("{pods}/a/status"),
        "fieldManager=two",
        &body,
    )
    .await
    .expect(200);
    assert_eq!(applied.str_at(&["spec", "nodeName"]), "");
    assert_eq!(
        fields(&applied, "two"),
        api::document!({"f:status": {"f:message": {}}})
    );
    let absent = apply(
        &admin,
        &format!("{pods}/b/status"),
        "fieldManager=two",
        &body,
    )
    .await;
    absent.failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn scale_hands_the_replicas_over() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let path = format!("{DEPLOYMENTS}/web");
    apply(&admin, &path, "fieldManager=one", &deployment(Some(1)))
        .await
        .expect(201);
    let scale = api::document!({"apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "web"}, "spec": {"replicas": 4}});
    let scale_path = format!("{path}/scale");
    let refused = apply(&admin, &scale_path, "fieldManager=hpa", &scale).await;
    let message = refused.failure(409, "Conflict");
    assert_eq!(
        message,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas"
    );
    apply(&admin, &scale_path, "fieldManager=hpa&force=true", &scale)
        .await
        .expect(200);
    let scaled = admin.get(&path).await.expect(200);
    assert_eq!(scaled.i64_at(&["spec", "replicas"]), Some(4));
    assert_eq!(entries(&scaled), ["hpa Apply scale", "one Apply"]);
    // Whoever does not name the replicas any more leaves them to the scaler.
    let applied = apply(&admin, &path, "fieldManager=one", &deployment(None))
        .await
        .expect(200);
    assert_eq!(applied.i64_at(&["spec", "replicas"]), Some(4));
}

#[tokio::test(start_paused = true)]
async fn bad_input_has_the_errors_of_upstream() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let path = format!("{MAPS}/a");
    let body = map(api::document!({"a": "1"}));
    let message = apply(&admin, &path, "", &body)
        .await
        .failure(422, "Invalid");
    assert_eq!(
        message,
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let long = "m".repeat(129);
    let message = admin
        .post(&format!("{MAPS}?fieldManager={long}"), &body)
        .await
        .failure(422, "Invalid");
    assert_eq!(
        message,
        "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes"
    );
    let message = admin
        .merge(&format!("{path}?force=true"), &body)
        .await
        .failure(422, "Invalid");
    assert_eq!(
        message,
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
    );
    let mut unknown = body.clone();
    unknown.set(&["spec", "a"], 1);
    let message = apply(&admin, &path, "fieldManager=one", &unknown)
        .await
        .failure(500, "");
    assert_eq!(
        message,
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .spec: field not declared in schema"
    );
    let message = apply(&admin, &format!("{MAPS}/b"), "fieldManager=one", &body)
        .await
        .failure(400, "BadRequest");
    assert_eq!(
        message,
        "the name of the object (a) does not match the name on the URL (b)"
    );
    let twice =
        b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: '1'\n  a: '2'\n";
    let send = |validation: &str| {
        let path = format!("{path}?fieldManager=one&fieldValidation={validation}");
        let admin = admin.clone();
        async move { admin.send("PATCH", &path, APPLY, twice).await }
    };
    let message = send("Strict").await.failure(400, "BadRequest");
    assert_eq!(
        message,
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 7: key \"a\" already set in map"
    );
    let warned = send("Warn").await;
    let warning = warned.headers["warning"].to_str().unwrap().to_string();
    assert!(
        warning.contains("key \\\"a\\\" already set in map"),
        "{warning}"
    );
    assert_eq!(warned.expect(201).str_at(&["data", "a"]), "2");
    let message = admin
        .send("PATCH", &path, "application/nonsense", b"{}")
        .await
        .failure(415, "UnsupportedMediaType");
    assert_eq!(message, "415: Unsupported Media Type");
}

#[tokio::test(start_paused = true)]
async fn owners_travel_in_protobuf() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let path = format!("{MAPS}/a");
    let body = map(api::document!({"a": "1"}));
    let created = apply(&admin, &path, "fieldManager=one", &body)
        .await
        .expect(201);
    let protobuf = "application/vnd.kubernetes.protobuf";
    let answer = admin
        .clone()
        .with_header("accept", protobuf)
        .get(&path)
        .await;
    let decoded = api::protobuf::decode(&answer.bytes).unwrap();
    assert_eq!(
        decoded.at(&["metadata", "managedFields"]),
        created.at(&["metadata", "managedFields"])
    );
    // And back again.
    let put = admin
        .send("PUT", &path, protobuf, &answer.bytes)
        .await
        .expect(200);
    assert_eq!(put, created);
}

#[tokio::test(start_paused = true)]
async fn applying_needs_the_right_to_create() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let role = api::document!({"metadata": {"name": "patcher"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    admin
        .post(&format!("{rbac}/roles"), &role)
        .await
        .expect(201);
    let binding = api::document!({"metadata": {"name": "patcher"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "patcher"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    admin
        .post(&format!("{rbac}/rolebindings"), &binding)
        .await
        .expect(201);
    let jane = cluster.client(apiserver::Identity::component("jane", &[]));
    let body = map(api::document!({"a": "1"}));
    let path = format!("{MAPS}/a");
    apply(&jane, &path, "fieldManager=one", &body)
        .await
        .failure(403, "Forbidden");
    apply(&admin, &path, "fieldManager=two", &body)
        .await
        .expect(201);
    apply(&jane, &path, "fieldManager=one", &body)
        .await
        .expect(200);
}
