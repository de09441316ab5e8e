//! The bounds on what a request may make of an object: nesting, copies and size. Whatever is
//! accepted can be read again.

use api::Value;
use api::document::MAX_DEPTH;

use apiserver::Identity;

use crate::harness::{Cluster, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const TOO_DEEP: &str = "the object is nested too deeply: exceeded max depth of 100";

/// Fifty anchors, each of which nests what the one before stands for: ten thousand levels.
fn nested_anchors() -> String {
    let mut text = "kind: ConfigMap\napiVersion: v1\na0: &a0 []\n".to_string();
    for anchor in 1..50 {
        let (open, close) = ("[".repeat(99), "]".repeat(99));
        let before = anchor - 1;
        text.push_str(&format!("a{anchor}: &a{anchor} {open}*a{before}{close}\n"));
    }
    text
}

/// A list within a list, and so on.
fn nested(levels: usize) -> Value {
    (0..levels).fold(Value::Null, |value, _| Value::Array(vec![value]))
}

#[tokio::test(start_paused = true)]
async fn nesting_through_aliases_is_refused_in_every_body() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let apply = format!("{path}?fieldManager=x");
    for (method, path, content_type) in [
        ("POST", MAPS, "application/yaml"),
        ("PUT", path.as_str(), "application/yaml"),
        ("PATCH", apply.as_str(), "application/apply-patch+yaml"),
        ("DELETE", path.as_str(), "application/yaml"),
    ] {
        let body = nested_anchors();
        let answer = admin
            .send(method, path, content_type, body.as_bytes())
            .await;
        let message = answer.failure(400, "BadRequest");
        assert!(message.contains("exceeded max depth of 100"), "{message}");
    }
    admin.get(&path).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn managed_fields_are_stored_only_as_deep_as_they_can_be_read() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    // The entry's fields begin on the fifth level, and what is below them needs one more.
    let owned = |name: &str, levels: usize| {
        let fields = (0..levels).fold(Value::object(), |value, _| {
            let mut outer = Value::object();
            outer.set(&["f:a"], value);
            outer
        });
        let mut map = config_map(name);
        let entry = api::document!([{
            "manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }]);
        map.set(&["metadata", "managedFields"], entry);
        map
    };
    for levels in [125, 180, 250] {
        let answer = admin.post(MAPS, &owned("deep", levels)).await;
        answer.failure(400, "BadRequest");
        admin.get(&format!("{MAPS}/deep")).await.expect(404);
    }
    let deepest = owned("a", MAX_DEPTH - 5);
    admin.post(MAPS, &deepest).await.expect(201);
    let listed = admin.get(MAPS).await.expect(200);
    assert_eq!(listed.list_at(&["items"]).len(), 1);
    let change = api::document!({"data": {"x": "y"}});
    let path = format!("{MAPS}/a");
    admin.merge(&path, &change).await.expect(200);
    admin.delete(&path).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn objects_are_refused_before_they_are_too_deep_to_be_read() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let mut revision = api::document!({"metadata": {"name": "a"}, "revision": 1});
    revision.set(&["data", "a"], nested(MAX_DEPTH - 2));
    admin.post(REVISIONS, &revision).await.expect(201);
    let path = format!("{REVISIONS}/a");
    assert!(
        admin
            .get(&path)
            .await
            .expect(200)
            .is_deeper_than(MAX_DEPTH - 1)
    );
    // Patches nest what is there once more.
    let patch = br#"[{"op":"move","from":"/data/a","path":"/data/b/c"}]"#;
    let answer = admin
        .send("PATCH", &path, "application/json-patch+json", patch)
        .await;
    assert_eq!(answer.failure(400, "BadRequest"), TOO_DEEP);
}

#[tokio::test(start_paused = true)]
async fn copies_of_copies_are_refused() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let revision = api::document!({
        "metadata": {"name": "a"}, "revision": 1, "data": {"a": ["0123456789"]},
    });
    admin.post(REVISIONS, &revision).await.expect(201);
    let copies = vec![r#"{"op":"copy","from":"/data/a","path":"/data/a/-"}"#; 22].join(",");
    let answer = admin
        .send(
            "PATCH",
            &format!("{REVISIONS}/a"),
            "application/json-patch+json",
            format!("[{copies}]").as_bytes(),
        )
        .await;
    let message = answer.failure(422, "Invalid");
    assert_eq!(
        message,
        "the server rejected our request due to an error in our request"
    );
}

#[tokio::test(start_paused = true)]
async fn objects_are_as_large_as_etcd_would_take_them() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let revision = |name: &str, size: usize| {
        let data = "x".repeat(size);
        api::document!({"metadata": {"name": name}, "revision": 1, "data": {"a": data}})
    };
    let too_large = "etcdserver: request is too large";
    let refused = admin.post(REVISIONS, &revision("large", 1_600_000)).await;
    assert_eq!(refused.failure(500, ""), too_large);
    admin
        .post(REVISIONS, &revision("a", 1_500_000))
        .await
        .expect(201);
    let path = format!("{REVISIONS}/a");
    let label = api::document!({"metadata": {"annotations": {"a": "x".repeat(100_000)}}});
    assert_eq!(admin.merge(&path, &label).await.failure(500, ""), too_large);
    admin.delete(&path).await.expect(200);
    // Owners are given up before the object is.
    let data: api::Object = (0..48_000)
        .map(|key| (format!("key-{key:06}"), "".into()))
        .collect();
    let mut map = config_map("many");
    map.set(&["data"], data);
    let created = admin.post(MAPS, &map).await.expect(201);
    assert!(created.at(&["metadata", "managedFields"]).is_none());
    assert_eq!(created.fields_at(&["data"]).count(), 48_000);
}

#[tokio::test(start_paused = true)]
async fn roles_whose_rules_multiply_are_refused() {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let cluster = Cluster::start().await;
    let group = "rbac.authorization.k8s.io";
    let binding = api::document!({
        "metadata": {"name": "jane-admin"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}],
    });
    let bindings = format!("{RBAC}/rolebindings");
    cluster.admin().post(&bindings, &binding).await.expect(201);
    let words =
        |count: usize| -> Vec<Value> { (0..count).map(|word| format!("w{word}").into()).collect() };
    let role = api::document!({"metadata": {"name": "r"}, "rules": [
        {"verbs": words(3_000), "apiGroups": words(3_000), "resources": words(3_000)},
    ]});
    let jane = cluster.client(Identity::component("jane", &[]));
    let answer = jane.post(&format!("{RBAC}/roles"), &role).await;
    let message = answer.failure(403, "Forbidden");
    assert!(
        message.contains("grant 27000000000 single permissions"),
        "{message}"
    );
}
