//! Kinds that are added to a running server and removed from it.

use std::sync::Arc;

use api::resource::Rules;
use api::{Resource, catalogue};
use api::{Strategy, Value};

use crate::harness::{Cluster, config_map};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// The rules of the made-up kind.
struct Widget;

impl Strategy for Widget {
    fn namespaced(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        object.set_missing(&["data", "color"], "red");
    }
}

/// A kind with names that no built-in kind has. Its objects look like ConfigMaps.
fn widgets() -> Resource {
    let maps = catalogue::built_in().find("", "v1", "configmaps").unwrap();
    Resource {
        group: "example.com".to_string().into(),
        version: "v1".to_string().into(),
        kind: "Widget".to_string().into(),
        plural: "widgets".to_string().into(),
        singular: "widget".to_string().into(),
        namespaced: true,
        short_names: vec!["wd".to_string().into()],
        categories: Vec::new(),
        verbs: maps.verbs.clone(),
        subresources: Vec::new(),
        columns: Vec::new(),
        definition: maps.definition,
        rules: Rules::Added(Arc::new(Widget)),
        storage: None,
    }
}

fn widget(name: &str) -> Value {
    let mut widget = config_map(name);
    widget.set(&["apiVersion"], "example.com/v1");
    widget.set(&["kind"], "Widget");
    widget
}

#[tokio::test(start_paused = true)]
async fn an_added_kind_is_served_like_the_others_until_it_is_removed() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    assert_eq!(admin.get(WIDGETS).await.code, 404);
    cluster.server.add_kind(widgets()).await.unwrap();
    assert!(cluster.server.add_kind(widgets()).await.is_err());

    let mut events = admin.watch(&format!("{WIDGETS}?watch=true")).await;
    let created = admin.post(WIDGETS, &widget("a")).await.expect(201);
    assert_eq!(created.str_at(&["data", "color"]), "red");
    assert_eq!(created.str_at(&["kind"]), "Widget");
    assert_eq!(events.summary().await, "ADDED a");
    let read = admin.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(read, created);
    let patch = api::document!({"data": {"color": "blue"}});
    admin
        .merge(&format!("{WIDGETS}/a"), &patch)
        .await
        .expect(200);
    assert_eq!(events.summary().await, "MODIFIED a");
    admin.post(WIDGETS, &widget("b")).await.expect(201);
    assert_eq!(events.summary().await, "ADDED b");
    let list = admin.get(WIDGETS).await.expect(200);
    assert_eq!(list.str_at(&["kind"]), "WidgetList");
    assert_eq!(list.list_at(&["items"]).len(), 2);
    admin.delete(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(events.summary().await, "DELETED a");

    let groups = admin.get("/apis").await.expect(200);
    let names = groups.list_at(&["groups"]).iter();
    let names: Vec<&str> = names.map(|group| group.str_at(&["name"])).collect();
    assert!(names.contains(&"example.com"), "{names:?}");
    let kinds = admin.get("/apis/example.com/v1").await.expect(200);
    let found = &kinds.list_at(&["resources"])[0];
    assert_eq!(found.str_at(&["name"]), "widgets");
    admin
        .get("/openapi/v3/apis/example.com/v1")
        .await
        .expect(200);
    let metrics = admin.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.bytes).into_owned();
    assert!(metrics.contains("group=\"example.com\""), "{metrics}");

    let removed = cluster
        .server
        .remove_kind("example.com", "v1", "widgets")
        .await;
    assert!(removed);
    let removed = cluster
        .server
        .remove_kind("example.com", "v1", "widgets")
        .await;
    assert!(!removed);
    assert_eq!(events.summary().await, "END");
    assert_eq!(admin.get(WIDGETS).await.code, 404);
    assert_eq!(admin.get(&format!("{WIDGETS}/b")).await.code, 404);
    assert_eq!(admin.post(WIDGETS, &widget("c")).await.code, 404);
    assert_eq!(admin.get("/apis/example.com/v1").await.code, 404);
    let metrics = admin.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.bytes).into_owned();
    assert!(!metrics.contains("group=\"example.com\""), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn an_added_kind_begins_with_what_the_store_has_of_it() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    cluster.server.add_kind(widgets()).await.unwrap();
    admin.post(WIDGETS, &widget("a")).await.expect(201);
    let removed = cluster
        .server
        .remove_kind("example.com", "v1", "widgets")
        .await;
    assert!(removed);
    cluster.server.add_kind(widgets()).await.unwrap();
    let found = admin.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(found.str_at(&["metadata", "name"]), "a");
    let mut events = admin.watch(&format!("{WIDGETS}?watch=true")).await;
    assert_eq!(events.summary().await, "ADDED a");
}

#[tokio::test(start_paused = true)]
async fn built_in_kinds_cannot_be_removed() {
    let cluster = Cluster::start().await;
    let removed = cluster.server.remove_kind("", "v1", "pods").await;
    assert!(!removed);
    cluster.admin().get("/api/v1/pods").await.expect(200);
}
