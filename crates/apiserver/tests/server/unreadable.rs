//! Objects that the store has and nobody can read.

use std::sync::Arc;

use api::Value;
use apiserver::{Enveloped, Identity};
use bytes::Bytes;
use environment::Environment;
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options};
use store::{Operation, Store, Transaction};

use crate::harness::{Authority, Client, Cluster, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const KEY: &str = "/registry/configmaps/default/broken";
const IGNORE: &str = r#"{"ignoreStoreReadErrorWithClusterBreakingPotential":true}"#;

async fn embedded(environment: &Environment) -> Arc<dyn Store> {
    let disk = SimulatedDisk::new(1).mount();
    let opened = Embedded::open(disk, environment.clone(), Options::default()).await;
    opened.unwrap()
}

async fn put(store: &dyn Store, key: &'static str, value: &'static [u8]) {
    let put = Operation::Put {
        key: key.into(),
        value: Bytes::from_static(value),
        lease: None,
    };
    let transaction = Transaction {
        compare: Vec::new(),
        then: vec![put],
    };
    store.transact(transaction).await.unwrap();
}

/// Asserts that the broken ConfigMap is told of wherever it belongs, and nowhere else.
async fn check_told(admin: &Client) {
    let answer = admin.get(&format!("{MAPS}/broken")).await;
    let message = answer.failure(500, "StoreReadError");
    assert!(message.contains("corrupt object"), "{message}");
    assert!(message.contains(KEY), "{message}");
    for list in [
        MAPS,
        "/api/v1/configmaps",
        "/api/v1/configmaps?resourceVersion=0",
        "/api/v1/configmaps?labelSelector=a%3Db",
        "/api/v1/configmaps?limit=500",
        "/api/v1/configmaps?watch=true&timeoutSeconds=1",
    ] {
        let answer = admin.get(list).await.expect(500);
        assert_eq!(answer.str_at(&["reason"]), "StoreReadError", "{list}");
        let told = "failed to read one or more configmaps from the storage";
        assert_eq!(answer.str_at(&["message"]), told, "{list}");
        let causes = answer.list_at(&["details", "causes"]);
        assert_eq!(causes[0].str_at(&["field"]), KEY, "{list}");
    }
    for fine in [
        "/api/v1/secrets",
        "/api/v1/namespaces/kube-system/configmaps",
        "/api/v1/configmaps?fieldSelector=metadata.name%3Dfine",
        "/api/v1/namespaces/default/configmaps/fine",
    ] {
        admin.get(fine).await.expect(200);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_is_reported_and_can_be_deleted() {
    let environment = Environment::simulated(1, 1_800_000_000_000_000);
    let protobuf: &'static [u8] = b"k8s\x00\xff\xff\xff";
    for (enveloped, value) in [(false, &b"{\"broken"[..]), (true, protobuf)] {
        let bare = embedded(&environment).await;
        let store: Arc<dyn Store> = match enveloped {
            true => Arc::new(Enveloped::new(bare.clone())),
            false => bare.clone(),
        };
        let first = Cluster::over(store.clone(), Authority::new(), environment.clone()).await;
        let admin = first.admin();
        admin.post(MAPS, &config_map("fine")).await.expect(201);
        put(&*bare, KEY, value).await;
        check_told(&admin).await;
        drop(first);
        // After a restart it is as little hidden as before.
        let cluster = Cluster::over(store, Authority::new(), environment.clone()).await;
        let admin = cluster.admin();
        check_told(&admin).await;
        for path in [MAPS.to_string(), format!("{MAPS}?dryRun=All")] {
            let answer = admin.post(&path, &config_map("broken")).await;
            answer.failure(409, "AlreadyExists");
        }
        let path = format!("{MAPS}/broken");
        admin.delete(&path).await.failure(500, "StoreReadError");
        let put = admin.put(&path, &config_map("broken")).await;
        put.failure(500, "StoreReadError");
        let json = "application/json";
        let answer = admin.send("DELETE", &path, json, IGNORE.as_bytes()).await;
        let answer = answer.expect(200);
        assert_eq!(answer.str_at(&["status"]), "Success");
        assert_eq!(answer.str_at(&["details", "name"]), "broken");
        admin.get(&path).await.failure(404, "NotFound");
        admin.get(MAPS).await.expect(200);
        admin.post(MAPS, &config_map("broken")).await.expect(201);
    }
}

#[tokio::test(start_paused = true)]
async fn deleting_unread_needs_a_right_of_its_own_and_an_unreadable_object() {
    let environment = Environment::simulated(1, 1_800_000_000_000_000);
    let store = embedded(&environment).await;
    put(&*store, KEY, b"[]").await;
    let cluster = Cluster::over(store, Authority::new(), environment).await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("fine")).await.expect(201);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let mut role = api::document!({
        "metadata": {"name": "deleter"},
        "rules": [{"verbs": ["delete"], "apiGroups": [""], "resources": ["configmaps"]}],
    });
    let made = admin.post(&format!("{rbac}/roles"), &role).await;
    made.expect(201);
    let binding = api::document!({
        "metadata": {"name": "deleter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deleter"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    let bound = admin.post(&format!("{rbac}/rolebindings"), &binding).await;
    bound.expect(201);
    let jane = cluster.client(Identity::component("jane", &[]));
    let path = format!("{MAPS}/broken");
    let json = "application/json";
    let message = jane.send("DELETE", &path, json, IGNORE.as_bytes()).await;
    assert_eq!(
        message.failure(403, "Forbidden"),
        "configmaps \"broken\" is forbidden: not permitted to do \"unsafe-delete-ignore-read-errors\", reason: "
    );
    let verbs = ["delete", "unsafe-delete-ignore-read-errors"];
    let rule = api::document!([{"verbs": verbs, "apiGroups": [""], "resources": ["configmaps"]}]);
    role.set(&["rules"], rule);
    let path_of_role = format!("{rbac}/roles/deleter");
    admin.put(&path_of_role, &role).await.expect(200);
    admin.get(&path_of_role).await.expect(200);
    let readable = format!("{MAPS}/fine");
    let message = jane
        .send("DELETE", &readable, json, IGNORE.as_bytes())
        .await;
    assert_eq!(
        message.failure(422, "Invalid"),
        "configmaps \"fine\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: is exclusively used to delete corrupt object(s), try again by removing this option"
    );
    for (field, value) in [
        ("dryRun", api::document!(["All"])),
        ("propagationPolicy", Value::from("Orphan")),
        ("orphanDependents", Value::from(true)),
        ("gracePeriodSeconds", Value::from(0)),
        ("preconditions", api::document!({"uid": "u"})),
    ] {
        let mut options = Value::from_json(IGNORE.as_bytes()).unwrap();
        options.set(&[field], value);
        let answer = jane.send("DELETE", &path, json, &options.to_json()).await;
        let message = answer.failure(422, "Invalid");
        let told = format!("cannot be set together with .{field}");
        assert!(message.contains(&told), "{message}");
    }
    let answer = admin.send("DELETE", MAPS, json, IGNORE.as_bytes()).await;
    let message = answer.failure(422, "Invalid");
    assert!(
        message.contains("is not allowed with DELETECOLLECTION"),
        "{message}"
    );
    let query = format!("{path}?ignoreStoreReadErrorWithClusterBreakingPotential=true");
    jane.delete(&query).await.expect(200);
    admin.get(MAPS).await.expect(200);
}
