//! Objects of custom kinds: pruned, defaulted, validated, patched, applied, scaled and shown.

use api::Value;

use crate::custom_harness::{
    DEFINITIONS, WIDGETS, definition, establish, version, wait_for, widget, widgets,
};
use crate::harness::Cluster;

const APPLY: &str = "application/apply-patch+yaml";

#[tokio::test(start_paused = true)]
async fn unknown_fields_go_and_defaults_come() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    establish(&admin, &widgets()).await;
    let sent = widget("a", api::document!({"size": 5, "replicas": 2}));
    let answer = admin.post(WIDGETS, &sent).await;
    let warning = answer.headers.get("warning").unwrap().to_str().unwrap();
    assert!(
        warning.contains("unknown field \\\"spec.size\\\""),
        "{warning}"
    );
    let created = answer.expect(201);
    assert_eq!(created.at(&["spec", "size"]), None);
    assert_eq!(created.str_at(&["spec", "color"]), "red");
    assert_eq!(created.at(&["metadata", "generation"]), Some(&1.into()));
    let strict = format!("{WIDGETS}?fieldValidation=Strict");
    let refused = admin
        .post(&strict, &widget("b", api::document!({"size": 5})))
        .await;
    assert_eq!(
        refused.failure(400, "BadRequest"),
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.size\""
    );
    let wrong = widget("b", api::document!({"color": "green", "replicas": -1}));
    let told = admin.post(WIDGETS, &wrong).await.failure(422, "Invalid");
    assert!(
        told.contains("spec.color: Unsupported value: \"green\""),
        "{told}"
    );
    assert!(told.contains("spec.replicas: Invalid value: -1"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    establish(&admin, &widgets()).await;
    let mut sent = widget("a", api::document!({"replicas": 2}));
    sent.set(&["status", "ready"], true);
    let created = admin.post(WIDGETS, &sent).await.expect(201);
    assert_eq!(created.get("status"), None);
    let path = format!("{WIDGETS}/a");
    let patch = api::document!({"status": {"ready": true}, "spec": {"replicas": 9}});
    let written = admin
        .merge(&format!("{path}/status"), &patch)
        .await
        .expect(200);
    assert_eq!(written.at(&["status", "ready"]), Some(&true.into()));
    assert_eq!(written.at(&["spec", "replicas"]), Some(&2.into()));
    assert_eq!(written.at(&["metadata", "generation"]), Some(&1.into()));
    let patch = api::document!({"status": {"ready": false}, "spec": {"replicas": 3}});
    let written = admin.merge(&path, &patch).await.expect(200);
    assert_eq!(written.at(&["status", "ready"]), Some(&true.into()));
    assert_eq!(written.at(&["metadata", "generation"]), Some(&2.into()));
    // A PUT has to name the version that it is about.
    let told = admin.put(&path, &widget("a", api::document!({}))).await;
    assert_eq!(
        told.failure(422, "Invalid"),
        "widgets.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
}

#[tokio::test(start_paused = true)]
async fn scale_reads_and_writes_the_declared_paths() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    establish(&admin, &widgets()).await;
    admin
        .post(WIDGETS, &widget("a", api::document!({"replicas": 2})))
        .await
        .expect(201);
    let path = format!("{WIDGETS}/a/scale");
    let scale = admin.get(&path).await.expect(200);
    assert_eq!(scale.str_at(&["kind"]), "Scale");
    assert_eq!(scale.at(&["spec", "replicas"]), Some(&2.into()));
    let patch = api::document!({"spec": {"replicas": 7}});
    admin.merge(&path, &patch).await.expect(200);
    let read = admin.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(read.at(&["spec", "replicas"]), Some(&7.into()));
    assert_eq!(read.at(&["metadata", "generation"]), Some(&2.into()));
}

#[tokio::test(start_paused = true)]
async fn appliers_own_items_of_lists_by_their_declared_keys() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    establish(&admin, &widgets()).await;
    let path = |manager: &str| format!("{WIDGETS}/a?fieldManager={manager}");
    let with_port = |name: &str, number: i64| {
        let ports = api::document!({"ports": [{"name": name, "number": number}]});
        widget("a", ports).to_json()
    };
    let one = admin
        .send("PATCH", &path("one"), APPLY, &with_port("http", 80))
        .await;
    one.expect(201);
    let two = admin
        .send("PATCH", &path("two"), APPLY, &with_port("dns", 53))
        .await;
    assert_eq!(two.expect(200).list_at(&["spec", "ports"]).len(), 2);
    let conflict = admin
        .send("PATCH", &path("two"), APPLY, &with_port("http", 81))
        .await;
    let told = conflict.failure(409, "Conflict");
    assert!(told.contains(".spec.ports[name=\"http\"].number"), "{told}");
    let unknown = widget("a", api::document!({"size": 1})).to_json();
    let told = admin.send("PATCH", &path("one"), APPLY, &unknown).await;
    let told = String::from_utf8_lossy(&told.bytes).into_owned();
    assert!(told.contains("field not declared in schema"), "{told}");
    let strategic = "application/strategic-merge-patch+json";
    let refused = admin.send("PATCH", &path("one"), strategic, b"{}").await;
    assert_eq!(refused.code, 415);
}

#[tokio::test(start_paused = true)]
async fn lists_tables_and_selectors_know_what_was_declared() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    establish(&admin, &widgets()).await;
    for (name, color) in [("a", "red"), ("b", "blue")] {
        let spec = api::document!({"color": color, "replicas": 1});
        admin.post(WIDGETS, &widget(name, spec)).await.expect(201);
    }
    let list = admin.get(WIDGETS).await.expect(200);
    assert_eq!(list.str_at(&["kind"]), "WidgetList");
    assert_eq!(list.list_at(&["items"])[0].str_at(&["kind"]), "Widget");
    let blue = admin
        .get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dblue"))
        .await
        .expect(200);
    let names: Vec<&str> = blue
        .list_at(&["items"])
        .iter()
        .map(|item| item.str_at(&["metadata", "name"]))
        .collect();
    assert_eq!(names, ["b"]);
    let refused = admin
        .get(&format!("{WIDGETS}?fieldSelector=spec.replicas%3D1"))
        .await;
    assert_eq!(
        refused.failure(400, "BadRequest"),
        "field label not supported: spec.replicas"
    );
    let people = cluster
        .admin()
        .with_header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = people.get(WIDGETS).await.expect(200);
    let names: Vec<&str> = table
        .list_at(&["columnDefinitions"])
        .iter()
        .map(|column| column.str_at(&["name"]))
        .collect();
    assert_eq!(names, ["Name", "Color", "Replicas"]);
    let cells = table.list_at(&["rows"])[1].get("cells").unwrap();
    assert_eq!(*cells, api::document!(["b", "blue", 1]));
    let binary = cluster
        .admin()
        .with_header("accept", "application/vnd.kubernetes.protobuf");
    assert_eq!(binary.get(WIDGETS).await.code, 406);
    let either = "application/vnd.kubernetes.protobuf,application/json";
    let either = cluster.admin().with_header("accept", either);
    let answer = either.get(&format!("{WIDGETS}/a")).await;
    assert_eq!(answer.headers["content-type"], "application/json");
}

#[tokio::test(start_paused = true)]
async fn objects_are_served_in_every_version_and_rewritten_in_the_stored_one() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let mut two = widgets();
    let versions = vec![version("v1", true), version("v2", false)];
    two.set(&["spec", "versions"], versions);
    establish(&admin, &two).await;
    admin
        .post(WIDGETS, &widget("a", api::document!({"replicas": 1})))
        .await
        .expect(201);
    let newer = WIDGETS.replace("v1", "v2");
    let read = admin.get(&format!("{newer}/a")).await.expect(200);
    assert_eq!(read.str_at(&["apiVersion"]), "example.com/v2");
    let mut events = admin.watch(&format!("{newer}?watch=true")).await;
    let (_, added) = events.next().await.unwrap();
    assert_eq!(added.str_at(&["apiVersion"]), "example.com/v2");
    let group = admin.get("/apis/example.com").await.expect(200);
    assert_eq!(group.str_at(&["preferredVersion", "version"]), "v2");

    // Now v2 is stored, and has a default that v1 has not.
    let name = "widgets.example.com";
    let mut changed = admin
        .get(&format!("{DEFINITIONS}/{name}"))
        .await
        .expect(200);
    let mut versions = vec![version("v1", false), version("v2", true)];
    let weight = api::document!({"type": "integer", "default": 4});
    let fields = [
        "schema",
        "openAPIV3Schema",
        "properties",
        "spec",
        "properties",
        "weight",
    ];
    versions[1].set(&fields, weight.clone());
    versions[0].set(&fields, weight);
    changed.set(&["spec", "versions"], versions);
    admin
        .put(&format!("{DEFINITIONS}/{name}"), &changed)
        .await
        .expect(200);
    assert_eq!(
        events.summary().await,
        "END",
        "watches end when the kind changes"
    );
    let weight = |object: &Value| object.at(&["spec", "weight"]).cloned();
    let read = loop {
        let read = admin.get(&format!("{newer}/a")).await.expect(200);
        if weight(&read).is_some() {
            break read;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        weight(&read),
        Some(4.into()),
        "defaulted on the way from the store"
    );
    let version = read.str_at(&["metadata", "resourceVersion"]).to_string();
    let written = admin.put(&format!("{newer}/a"), &read).await.expect(200);
    assert_ne!(
        written.str_at(&["metadata", "resourceVersion"]),
        version,
        "written again although nothing changed: the store had another version"
    );
    let again = admin.put(&format!("{newer}/a"), &written).await.expect(200);
    assert_eq!(again, written);
    let definition = wait_for(&admin, name, |_| true).await;
    let stored = definition.list_at(&["status", "storedVersions"]);
    assert_eq!(stored, ["v1".into(), "v2".into()]);
}

#[tokio::test(start_paused = true)]
async fn documents_describe_custom_kinds() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let before = admin.get("/openapi/v3").await.expect(200);
    establish(&admin, &widgets()).await;
    let index = admin.get("/openapi/v3").await.expect(200);
    let apps = ["paths", "apis/apps/v1"];
    assert_eq!(
        index.at(&apps),
        before.at(&apps),
        "other documents stay as they are"
    );
    let url = index.str_at(&["paths", "apis/example.com/v1", "serverRelativeURL"]);
    let document = admin.get(url).await.expect(200);
    let schema = document
        .at(&["components", "schemas", "com.example.v1.Widget"])
        .unwrap();
    assert_eq!(schema.str_at(&["description"]), "A widget.");
    assert_eq!(
        schema.list_at(&["x-kubernetes-group-version-kind"])[0].str_at(&["kind"]),
        "Widget"
    );
    // What upstream's builder for custom kinds describes otherwise than that for built-in ones.
    let collection = "/apis/example.com/v1/namespaces/{namespace}/widgets";
    let operation = |path: &str, method: &str| {
        let path = format!("{collection}{path}");
        document.at(&["paths", &path, method]).cloned().unwrap()
    };
    let parameters = |operation: &Value| -> Vec<String> {
        let parameters = operation.list_at(&["parameters"]).iter();
        parameters
            .map(|parameter| parameter.str_at(&["name"]).to_string())
            .collect()
    };
    assert_eq!(
        parameters(&operation("/{name}", "get")),
        ["resourceVersion"]
    );
    let deletion = operation("", "delete");
    assert!(!deletion.has(&["requestBody"]));
    assert_eq!(parameters(&deletion), parameters(&operation("", "get")));
    let patch = operation("/{name}/scale", "patch");
    assert!(!patch.has(&["responses", "201"]));
    let kind = ["x-kubernetes-group-version-kind", "kind"];
    assert_eq!(patch.str_at(&kind), "Widget");
    assert!(!document.has(&["components", "securitySchemes"]));
    // Groups and versions of custom kinds alone are not described, as upstream does not.
    assert!(!document.has(&["paths", "/apis/example.com/v1/"]));
    assert!(!index.has(&["paths", "apis/example.com"]));
    assert_eq!(admin.get("/openapi/v3/apis/example.com").await.code, 404);
    let whole = admin.get("/openapi/v2").await.expect(200);
    assert!(
        whole
            .at(&["definitions", "com.example.v1.Widget", "properties", "spec"])
            .is_some()
    );
    assert!(!whole.has(&["paths", "/apis/example.com/"]));
    assert!(
        whole
            .at(&["definitions", "io.k8s.api.core.v1.Pod"])
            .is_some()
    );
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let aggregated = cluster
        .admin()
        .with_header("accept", accept)
        .get("/apis")
        .await
        .expect(200);
    let groups = aggregated.list_at(&["items"]).iter();
    let mut groups = groups.filter(|group| group.str_at(&["metadata", "name"]) == "example.com");
    let resource = &groups.next().unwrap().list_at(&["versions"])[0].list_at(&["resources"])[0];
    assert_eq!(resource.str_at(&["responseKind", "group"]), "example.com");
}

#[tokio::test(start_paused = true)]
async fn no_path_comes_twice_in_the_v2_document() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    establish(&admin, &widgets()).await;
    establish(&admin, &definition("example.com", "gadgets", "Gadget")).await;
    let whole = admin.get("/openapi/v2").await;
    let text = String::from_utf8_lossy(&whole.bytes).into_owned();
    for plural in ["widgets", "gadgets"] {
        let member = format!("\"/apis/example.com/v1/{plural}\":{{");
        assert_eq!(text.matches(&member).count(), 1, "{plural}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_version_is_selected_by_its_own_fields() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let mut definition = widgets();
    let mut newer = version("v2", false);
    newer.set(
        &["selectableFields"],
        api::document!([{"jsonPath": ".spec.replicas"}]),
    );
    // Upstream refuses fields of one version alone where the schemas of all versions are the same.
    newer.set(&["schema", "openAPIV3Schema", "description"], "newer");
    definition.set(&["spec", "versions"], vec![version("v1", true), newer]);
    establish(&admin, &definition).await;
    for (name, replicas) in [("a", 1), ("b", 2), ("c", 2)] {
        let widget = widget(name, api::document!({"replicas": replicas}));
        admin.post(WIDGETS, &widget).await.expect(201);
    }
    let newer = format!(
        "{}?fieldSelector=spec.replicas=2",
        WIDGETS.replace("v1", "v2")
    );
    let names = |list: &Value| -> Vec<String> {
        let items = list.list_at(&["items"]).iter();
        items
            .map(|item| item.str_at(&["metadata", "name"]).to_string())
            .collect()
    };
    let list = admin.get(&newer).await.expect(200);
    assert_eq!(names(&list), ["b", "c"]);
    let first = admin.get(&format!("{newer}&limit=1")).await.expect(200);
    assert_eq!(names(&first), ["b"]);
    let token = first.str_at(&["metadata", "continue"]);
    let rest = format!("{newer}&limit=1&continue={token}");
    let rest = admin.get(&rest).await.expect(200);
    assert_eq!(names(&rest), ["c"]);
    assert_eq!(rest.str_at(&["metadata", "continue"]), "");
    let mut events = admin.watch(&format!("{newer}&watch=true")).await;
    for name in ["b", "c"] {
        let (event, object) = events.next().await.unwrap();
        assert_eq!(event, "ADDED");
        assert_eq!(object.str_at(&["metadata", "name"]), name);
    }
    let patch = api::document!({"spec": {"replicas": 2}});
    admin
        .merge(&format!("{WIDGETS}/a"), &patch)
        .await
        .expect(200);
    let (event, object) = events.next().await.unwrap();
    assert_eq!(event, "ADDED");
    assert_eq!(object.str_at(&["apiVersion"]), "example.com/v2");
    assert_eq!(object.str_at(&["metadata", "name"]), "a");
}
