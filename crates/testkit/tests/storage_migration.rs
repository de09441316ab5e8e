//! StorageVersionMigrations in a whole cluster: what is in the store afterwards, and what changes,
//! deletions and crashes in between do.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::core::discovery::ApiResource;
use serde_json::{Value, json};
use store::{KeyRange, RangeRequest, Store};
use testkit::{Cluster, Part, eventually};

const NAME: &str = "widgets.example.com";

async fn cluster() -> Cluster {
    Cluster::builder()
        .controllers()
        .enabled(
            "storagemigration.k8s.io/v1beta1=true",
            "StorageVersionMigrator=true",
        )
        .expect("a version and a gate of Kubernetes")
        .start()
        .await
        .expect("start")
}

fn definitions(cluster: &Cluster) -> Api<CustomResourceDefinition> {
    Api::all(cluster.client())
}

fn migrations(cluster: &Cluster) -> Api<StorageVersionMigration> {
    Api::all(cluster.client())
}

fn widgets(cluster: &Cluster, version: &str) -> Api<DynamicObject> {
    let kind = ApiResource {
        group: "example.com".into(),
        version: version.into(),
        api_version: format!("example.com/{version}"),
        kind: "Widget".into(),
        plural: "widgets".into(),
    };
    Api::namespaced_with(cluster.client(), "default", &kind)
}

fn version(name: &str, storage: bool) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"color": {"type": "string"}}},
        }}},
    })
}

/// Sets the versions of the kind and gives the definition back.
async fn set_versions(
    cluster: &Cluster,
    versions: Value,
) -> kube::Result<CustomResourceDefinition> {
    let change = Patch::Merge(json!({"spec": {"versions": versions}}));
    definitions(cluster)
        .patch(NAME, &PatchParams::default(), &change)
        .await
}

/// A kind whose objects are stored in v1, though v2 is the version to store them in.
async fn outdated_widgets(cluster: &Cluster, count: usize) {
    let definition = json!({
        "metadata": {"name": NAME},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1", true)],
        },
    });
    let definition = serde_json::from_value(definition).expect("a definition");
    definitions(cluster)
        .create(&PostParams::default(), &definition)
        .await
        .expect("create");
    let widgets = widgets(cluster, "v1");
    eventually("the kind is served", async || {
        widgets.list(&ListParams::default()).await.ok()
    })
    .await;
    for number in 0..count {
        create(&widgets, &format!("w{number:03}")).await;
    }
    let both = json!([version("v1", false), version("v2", true)]);
    let changed = set_versions(cluster, both).await.expect("patch");
    assert_eq!(stored_versions(&changed), ["v1", "v2"]);
    eventually("v2 is served", async || {
        let v2 = self::widgets(cluster, "v2");
        v2.list(&ListParams::default()).await.ok()
    })
    .await;
}

async fn create(widgets: &Api<DynamicObject>, name: &str) {
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": name}, "spec": {"color": "red"},
    });
    let widget: DynamicObject = serde_json::from_value(widget).expect("a widget");
    widgets
        .create(&PostParams::default(), &widget)
        .await
        .expect("create");
}

fn stored_versions(definition: &CustomResourceDefinition) -> Vec<String> {
    let status = definition.status.as_ref();
    let versions = status.and_then(|status| status.stored_versions.clone());
    versions.unwrap_or_default()
}

/// The API version in the bytes of every stored widget, and the revision of its last write.
async fn stored(cluster: &Cluster) -> BTreeMap<String, (String, i64)> {
    let request = RangeRequest {
        range: KeyRange::prefix("/registry/example.com/widgets/"),
        revision: None,
        limit: 0,
    };
    let store = cluster.store().expect("a running server");
    let found = store.range(request).await.expect("range").items;
    found
        .into_iter()
        .map(|item| {
            let object: Value = serde_json::from_slice(&item.value).expect("JSON");
            let version = object["apiVersion"].as_str().expect("a version").to_owned();
            let key = String::from_utf8(item.key.to_vec()).expect("a key");
            (key, (version, item.mod_revision as i64))
        })
        .collect()
}

fn count_in(stored: &BTreeMap<String, (String, i64)>, api_version: &str) -> usize {
    let versions = stored.values();
    versions
        .filter(|(version, _)| version == api_version)
        .count()
}

async fn migrate(cluster: &Cluster, name: &str, group: &str, resource: &str) {
    let migration = json!({
        "metadata": {"name": name},
        "spec": {"resource": {"group": group, "resource": resource}},
    });
    let migration = serde_json::from_value(migration).expect("a migration");
    migrations(cluster)
        .create(&PostParams::default(), &migration)
        .await
        .expect("create");
}

/// Waits until a migration does not run any more; gives its conditions that are true, with messages.
async fn ended(cluster: &Cluster, name: &str) -> Vec<(String, String)> {
    let migrations = migrations(cluster);
    eventually("the migration ends", async || {
        let status = migrations.get(name).await.expect("get").status?;
        let conditions = status.conditions?;
        conditions
            .iter()
            .any(|one| one.type_ == "Running" && one.status == "False")
            .then(|| {
                let all = conditions.iter().filter(|one| one.status == "True");
                all.map(|one| (one.type_.clone(), one.message.clone()))
                    .collect()
            })
    })
    .await
}

fn success() -> Vec<(String, String)> {
    vec![("Succeeded".to_owned(), String::new())]
}

#[tokio::test]
async fn after_a_migration_the_old_version_can_be_removed() {
    let cluster = cluster().await;
    outdated_widgets(&cluster, 30).await;
    assert_eq!(count_in(&stored(&cluster).await, "example.com/v1"), 30);
    let only_v2 = json!([version("v2", true)]);
    let refused = set_versions(&cluster, only_v2.clone()).await;
    let refused = refused.expect_err("objects are stored in v1").to_string();
    assert!(
        refused.contains("must remain in spec.versions until"),
        "{refused}"
    );

    migrate(&cluster, "to-v2", "example.com", "widgets").await;
    assert_eq!(ended(&cluster, "to-v2").await, success());
    assert_eq!(count_in(&stored(&cluster).await, "example.com/v2"), 30);
    let definition = definitions(&cluster).get(NAME).await.expect("get");
    assert_eq!(stored_versions(&definition), ["v2"]);
    let conditions = definition.status.and_then(|status| status.conditions);
    let conditions = conditions.unwrap_or_default();
    let migrating = conditions
        .iter()
        .find(|one| one.type_ == "StorageMigrating");
    let migrating = migrating.expect("the definition was migrated");
    assert_eq!(migrating.status, "False");
    assert_eq!(migrating.reason.as_deref(), Some("MigrationSucceeded"));

    set_versions(&cluster, only_v2).await.expect("v1 can go");
    let left = widgets(&cluster, "v2").list(&ListParams::default()).await;
    let left = left.expect("list").items;
    assert_eq!(left.len(), 30);
    assert!(left.iter().all(|one| one.data["spec"]["color"] == "red"));
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn changes_and_deletions_during_a_migration_do_not_stop_it() {
    let cluster = cluster().await;
    outdated_widgets(&cluster, 120).await;
    let widgets = widgets(&cluster, "v1");
    let changes = async {
        for number in (0..120).step_by(3).rev() {
            let change = Patch::Merge(json!({"spec": {"color": "blue"}}));
            widgets
                .patch(&format!("w{number:03}"), &PatchParams::default(), &change)
                .await
                .expect("patch");
        }
    };
    let deletions = async {
        for number in (1..120).step_by(3).rev() {
            let name = format!("w{number:03}");
            let deleted = widgets.delete(&name, &DeleteParams::default()).await;
            deleted.expect("delete");
            // Every other one comes back under the same name.
            if number % 2 == 0 {
                create(&widgets, &name).await;
            }
        }
    };
    tokio::join!(
        migrate(&cluster, "to-v2", "example.com", "widgets"),
        changes,
        deletions
    );
    assert_eq!(ended(&cluster, "to-v2").await, success());
    let stored = stored(&cluster).await;
    assert_eq!(stored.len(), 100);
    assert_eq!(count_in(&stored, "example.com/v2"), 100);
    let all = widgets.list(&ListParams::default()).await.expect("list");
    let blue = all
        .items
        .iter()
        .filter(|one| one.data["spec"]["color"] == "blue");
    assert_eq!(blue.count(), 40);
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn a_migration_goes_on_where_it_was_when_the_controllers_crash() {
    let mut cluster = cluster().await;
    outdated_widgets(&cluster, 400).await;
    migrate(&cluster, "to-v2", "example.com", "widgets").await;
    loop {
        if count_in(&stored(&cluster).await, "example.com/v2") > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cluster.crash(Part::Controllers(0));
    let before = stored(&cluster).await;
    let migrated = count_in(&before, "example.com/v2");
    assert!(migrated < 400, "it ended before the crash");
    cluster.start(Part::Controllers(0));
    assert_eq!(ended(&cluster, "to-v2").await, success());
    let after = stored(&cluster).await;
    assert_eq!(count_in(&after, "example.com/v2"), 400);
    for (key, entry) in before
        .iter()
        .filter(|(_, (version, _))| version == "example.com/v2")
    {
        assert_eq!(after.get(key), Some(entry), "{key} was written twice");
    }
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn migrations_of_one_resource_take_turns_and_leave_current_objects_alone() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let map = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("a map");
    let created = maps
        .create(&PostParams::default(), &map)
        .await
        .expect("create");
    for name in ["first", "second"] {
        migrate(&cluster, name, "", "configmaps").await;
    }
    for name in ["first", "second"] {
        assert_eq!(ended(&cluster, name).await, success(), "{name}");
    }
    assert_eq!(maps.get("a").await.expect("get"), created);
    migrate(&cluster, "third", "authentication.k8s.io", "tokenreviews").await;
    let message = "resource \"authentication.k8s.io/v1, Resource=tokenreviews\" does not support \
        discovery operations: [update patch list]";
    let failure = vec![("Failed".to_owned(), message.to_owned())];
    assert_eq!(ended(&cluster, "third").await, failure);
    cluster.shut_down().await.expect("shut down");
}
