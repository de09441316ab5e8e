//! Custom kinds that a webhook converts between versions.

use api::Value;

use crate::custom_harness::{WIDGETS, establish, version, widget, widgets};
use crate::harness::Cluster;
use crate::hook_server::{HookServer, MUTATING, Reply, VALIDATING, allowed, configure, patched};

/// v1 has `spec.color`, v2 has `spec.paint`.
pub fn convert(asked: &Value) -> Value {
    let wanted = asked.str_at(&["request", "desiredAPIVersion"]);
    let objects = asked.list_at(&["request", "objects"]).iter();
    let converted = objects.map(|object| {
        let (from, to) = match wanted.ends_with("v2") {
            true => ("color", "paint"),
            false => ("paint", "color"),
        };
        let mut object = object.clone();
        if let Some(value) = object.remove(&["spec", from]) {
            object.set(&["spec", to], value);
        }
        object.set(&["apiVersion"], wanted);
        object
    });
    let mut review = api::document!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "response": {"uid": asked.str_at(&["request", "uid"]), "result": {"status": "Success"}},
    });
    let converted: Vec<Value> = converted.collect();
    review.set(&["response", "convertedObjects"], converted);
    review
}

pub fn converted_by(server: &HookServer) -> Value {
    let mut definition = widgets();
    let mut newer = version("v2", false);
    let fields = [
        "schema",
        "openAPIV3Schema",
        "properties",
        "spec",
        "properties",
    ];
    let mut paint: Vec<&str> = fields.to_vec();
    paint.push("color");
    newer.remove(&paint);
    paint.pop();
    paint.push("paint");
    newer.set(&paint, api::document!({"type": "string"}));
    newer.remove(&["selectableFields"]);
    definition.set(&["spec", "versions"], vec![version("v1", true), newer]);
    definition.set(
        &["spec", "conversion"],
        api::document!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
        }}),
    );
    let config = server.config("/convert");
    definition.set(&["spec", "conversion", "webhook", "clientConfig"], config);
    definition
}

#[tokio::test]
async fn objects_are_converted_by_the_hook_wherever_they_are_shown() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let server = HookServer::start(|_, asked| Reply::Json(convert(asked))).await;
    establish(&admin, &converted_by(&server)).await;
    admin
        .post(WIDGETS, &widget("a", api::document!({"color": "blue"})))
        .await
        .expect(201);
    assert!(
        server.take().is_empty(),
        "nothing is converted that is of the stored version"
    );
    let newer = WIDGETS.replace("v1", "v2");
    let read = admin.get(&format!("{newer}/a")).await.expect(200);
    assert_eq!(read.str_at(&["spec", "paint"]), "blue");
    let mut second = widget("b", api::document!({"paint": "red"}));
    second.set(&["apiVersion"], "example.com/v2");
    let created = admin.post(&newer, &second).await.expect(201);
    assert_eq!(created.str_at(&["spec", "paint"]), "red");
    let stored = admin.get(&format!("{WIDGETS}/b")).await.expect(200);
    assert_eq!(stored.str_at(&["spec", "color"]), "red");
    server.take();
    let list = admin.get(&newer).await.expect(200);
    let paints = list.list_at(&["items"]).iter();
    let paints: Vec<&str> = paints.map(|item| item.str_at(&["spec", "paint"])).collect();
    assert_eq!(paints, ["blue", "red"]);
    assert_eq!(server.take().len(), 1, "a list is converted at once");
    let mut events = admin.watch(&format!("{newer}?watch=true")).await;
    for paint in ["blue", "red"] {
        let (event, object) = events.next().await.unwrap();
        assert_eq!(
            (event.as_str(), object.str_at(&["spec", "paint"])),
            ("ADDED", paint)
        );
    }
    let patch = api::document!({"spec": {"paint": "red"}});
    let patched = admin.merge(&format!("{newer}/a"), &patch).await.expect(200);
    assert_eq!(patched.str_at(&["spec", "paint"]), "red");
    let (event, object) = events.next().await.unwrap();
    assert_eq!(
        (event.as_str(), object.str_at(&["spec", "paint"])),
        ("MODIFIED", "red")
    );
}

#[tokio::test]
async fn selectors_are_about_objects_as_the_hook_converts_them() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let server = HookServer::start(|_, asked| Reply::Json(convert(asked))).await;
    let mut definition = converted_by(&server);
    if let Some(newer) = definition.list_at_mut(&["spec", "versions"]).last_mut() {
        let fields = api::document!([{"jsonPath": ".spec.paint"}]);
        newer.set(&["selectableFields"], fields);
    }
    establish(&admin, &definition).await;
    for (name, color) in [("a", "blue"), ("b", "red"), ("c", "red")] {
        let widget = widget(name, api::document!({"color": color}));
        admin.post(WIDGETS, &widget).await.expect(201);
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list.list_at(&["items"]).iter();
        items
            .map(|item| item.str_at(&["metadata", "name"]).to_string())
            .collect()
    };
    let stored = format!("{WIDGETS}?fieldSelector=spec.color=red");
    assert_eq!(names(&admin.get(&stored).await.expect(200)), ["b", "c"]);
    let newer = WIDGETS.replace("v1", "v2");
    let red = format!("{newer}?fieldSelector=spec.paint=red");
    assert_eq!(names(&admin.get(&red).await.expect(200)), ["b", "c"]);
    let mut events = admin.watch(&format!("{red}&watch=true")).await;
    for name in ["b", "c"] {
        let (event, object) = events.next().await.unwrap();
        assert_eq!(
            (event.as_str(), object.str_at(&["metadata", "name"])),
            ("ADDED", name)
        );
    }
    let patch = api::document!({"spec": {"paint": "blue"}});
    let patched = admin.merge(&format!("{newer}/b"), &patch).await;
    patched.expect(200);
    let (event, object) = events.next().await.unwrap();
    assert_eq!(
        (event.as_str(), object.str_at(&["metadata", "name"])),
        ("DELETED", "b")
    );
    let deleted = admin.delete(&red).await.expect(200);
    let item = &deleted.list_at(&["items"])[0];
    assert_eq!(item.str_at(&["spec", "paint"]), "red");
    assert_eq!(names(&admin.get(&newer).await.expect(200)), ["a", "b"]);
}

#[tokio::test]
async fn a_hook_that_fails_refuses_only_what_it_would_convert() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let failed = |asked: &Value| {
        api::document!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "response": {"uid": asked.str_at(&["request", "uid"]),
                "result": {"status": "Failed", "message": "not today"}},
        })
    };
    let server = HookServer::start(move |_, asked| Reply::Json(failed(asked))).await;
    establish(&admin, &converted_by(&server)).await;
    admin
        .post(WIDGETS, &widget("a", api::document!({})))
        .await
        .expect(201);
    admin.get(&format!("{WIDGETS}/a")).await.expect(200);
    let refused = admin
        .get(&format!("{}/a", WIDGETS.replace("v1", "v2")))
        .await;
    assert_eq!(refused.code, 500);
    let told = refused.json();
    assert_eq!(
        told.str_at(&["message"]),
        "conversion webhook for example.com/v1, Kind=Widget failed: not today"
    );
}

#[tokio::test]
async fn admission_hooks_see_and_change_the_version_that_they_know() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let server = HookServer::start(|path, asked| match path {
        "/convert" => Reply::Json(convert(asked)),
        "/changes" => {
            let green =
                api::document!([{"op": "replace", "path": "/spec/color", "value": "green"}]);
            patched(asked, &green)
        }
        _ => allowed(asked),
    })
    .await;
    establish(&admin, &converted_by(&server)).await;
    let of_v1 = |name: &str| {
        let mut hook = server.hook(name, &["CREATE"], &["widgets"]);
        hook.list_at_mut(&["rules"])[0].set(&["apiGroups"], api::document!(["example.com"]));
        hook.list_at_mut(&["rules"])[0].set(&["apiVersions"], api::document!(["v1"]));
        hook
    };
    configure(&admin, MUTATING, "c", vec![of_v1("changes")]).await;
    configure(&admin, VALIDATING, "c", vec![of_v1("looks")]).await;
    let newer = WIDGETS.replace("v1", "v2");
    let mut sent = widget("a", api::document!({"paint": "red"}));
    sent.set(&["apiVersion"], "example.com/v2");
    let created = admin.post(&newer, &sent).await.expect(201);
    assert_eq!(created.str_at(&["spec", "paint"]), "green", "{created}");
    let asked = server.take();
    let color = |path: &str| {
        let found = asked.iter().find(|(asked, _)| asked == path);
        let (_, review) = found.unwrap_or_else(|| panic!("{path} was not called"));
        review
            .str_at(&["request", "object", "spec", "color"])
            .to_string()
    };
    assert_eq!(
        (color("/changes"), color("/looks")),
        ("red".into(), "green".into())
    );
}
