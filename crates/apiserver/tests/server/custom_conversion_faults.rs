//! Conversion hooks that are down, slow, lying or careless with metadata: what they would convert is
//! refused, and nothing of what is stored gets lost.

use std::time::Duration;

use api::Value;

use crate::custom_conversion::{convert, converted_by};
use crate::custom_harness::{WIDGETS, establish, widget};
use crate::harness::{Client, Cluster};
use crate::hook_server::{HookServer, Identity, Reply};

const PREFIX: &str = "conversion webhook for example.com/v1, Kind=Widget";

fn newer() -> String {
    WIDGETS.replace("v1", "v2")
}

/// A cluster with a widget `a` of v1 that has everything metadata can have.
async fn with_widget(server: &HookServer) -> (Cluster, Client, Value) {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    establish(&admin, &converted_by(server)).await;
    let mut one = widget("a", api::document!({"color": "blue"}));
    let metadata = api::document!({
        "name": "a", "labels": {"l": "1"}, "annotations": {"n": "1"},
        "finalizers": ["example.com/held"],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "of-owner"}],
    });
    one.set(&["metadata"], metadata);
    let made = admin.post(WIDGETS, &one).await.expect(201);
    (cluster, admin, made)
}

/// Answers as a good hook does, and then changes each object.
fn changing(
    change: impl Fn(&mut Value) + Send + Sync + 'static,
) -> impl Fn(&str, &Value) -> Reply + Send + Sync + 'static {
    move |_, asked| {
        let mut review = convert(asked);
        let objects = review.list_at_mut(&["response", "convertedObjects"]);
        objects.iter_mut().for_each(&change);
        Reply::Json(review)
    }
}

/// What a read in the other version answers; the stored one can be read all the same.
async fn refused(admin: &Client, stored: &Value) -> String {
    let answer = admin.get(&format!("{}/a", newer())).await;
    let message = answer.failure(500, "");
    let list = admin.get(&newer()).await;
    assert_eq!(list.code, 500, "{}", list.json());
    let change = api::document!({"metadata": {"labels": {"l": "2"}}});
    let written = admin.merge(&format!("{}/a", newer()), &change).await;
    assert_eq!(written.code, 500, "{}", written.json());
    let now = admin.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(&now, stored);
    message
}

#[tokio::test]
async fn metadata_that_a_conversion_loses_is_kept() {
    let careless = |object: &mut Value| {
        let kept = ["name", "namespace", "uid"].map(|field| {
            let value = object.str_at(&["metadata", field]).to_string();
            (field.to_string(), Value::from(value))
        });
        object.set(&["metadata"], kept.into_iter().collect::<api::Object>());
    };
    let server = HookServer::start(changing(careless)).await;
    let (_cluster, admin, made) = with_widget(&server).await;
    let shown = admin.get(&format!("{}/a", newer())).await.expect(200);
    for field in [
        "creationTimestamp",
        "resourceVersion",
        "generation",
        "finalizers",
        "ownerReferences",
        "uid",
    ] {
        let path = ["metadata", field];
        assert_eq!(shown.at(&path), made.at(&path), "{field}");
        assert!(shown.has(&path), "{field}");
    }
    // Labels and annotations are the hook's to convert.
    assert!(!shown.has(&["metadata", "labels"]), "{shown}");
    // A write through the other version loses nothing else of what is stored.
    let change = api::document!({"spec": {"paint": "red"}});
    admin
        .merge(&format!("{}/a", newer()), &change)
        .await
        .expect(200);
    let stored = admin.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(stored.str_at(&["spec", "color"]), "red");
    for field in ["finalizers", "ownerReferences", "uid", "creationTimestamp"] {
        let path = ["metadata", field];
        assert_eq!(stored.at(&path), made.at(&path), "{field}");
    }
    // Its finalizer still holds it.
    admin.delete(&format!("{}/a", newer())).await.expect(200);
    let held = admin.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert!(held.has(&["metadata", "deletionTimestamp"]));
}

#[tokio::test]
async fn a_conversion_that_loses_identity_is_refused() {
    for (change, why) in [
        (
            (|object| drop(object.remove(&["metadata"]))) as fn(&mut Value),
            " returned invalid object: must have the same name: a != ",
        ),
        (
            |object| object.set(&["metadata", "uid"], "other"),
            " returned invalid object: must have the same UID: UID != other",
        ),
        (
            |object| object.set(&["metadata", "namespace"], "kube-system"),
            " returned invalid object: must have the same namespace: default != kube-system",
        ),
        (
            |object| object.set(&["metadata", "labels"], api::document!({"a b": "c"})),
            " returned invalid metadata: metadata.labels: Invalid value: \"a b\": ",
        ),
        (
            |object| object.set(&["kind"], "Gadget"),
            " returned invalid object at index 0: invalid kind (expected Widget, received Gadget)",
        ),
    ] {
        let server = HookServer::start(changing(change)).await;
        let (_cluster, admin, made) = with_widget(&server).await;
        let message = refused(&admin, &made).await;
        let why = why.replace(
            "UID !=",
            &format!("{} !=", made.str_at(&["metadata", "uid"])),
        );
        assert!(message.starts_with(&format!("{PREFIX}{why}")), "{message}");
    }
}

#[tokio::test]
async fn a_conversion_hook_that_lies_is_refused() {
    let with = |change: fn(&mut Value)| {
        move |_: &str, asked: &Value| {
            let mut review = convert(asked);
            change(&mut review);
            Reply::Json(review)
        }
    };
    for (change, why) in [
        (
            (|review| review.set(&["response", "uid"], "other")) as fn(&mut Value),
            " failed: expected response.uid=",
        ),
        (
            |review| *review = api::document!({"kind": "Pod", "apiVersion": "v1"}),
            " failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /v1, Kind=Pod",
        ),
        (
            |review| review.set(&["response", "convertedObjects"], api::document!([])),
            " returned 0 objects, expected 1",
        ),
        (
            |review| {
                let objects = review.list_at(&["response", "convertedObjects"]).to_vec();
                review.set(
                    &["response", "convertedObjects"],
                    [objects.clone(), objects].concat(),
                );
            },
            " returned 2 objects, expected 1",
        ),
    ] {
        let server = HookServer::start(with(change)).await;
        let (_cluster, admin, made) = with_widget(&server).await;
        let message = refused(&admin, &made).await;
        assert!(message.starts_with(&format!("{PREFIX}{why}")), "{message}");
    }
}

#[tokio::test]
async fn a_conversion_hook_that_is_down_or_expired_is_refused() {
    let mut gone = HookServer::start(|_, asked| Reply::Json(convert(asked))).await;
    // Nobody listens there any more.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    gone.address = listener.local_addr().unwrap();
    drop(listener);
    let (_cluster, admin, made) = with_widget(&gone).await;
    let message = refused(&admin, &made).await;
    let words = format!("dial tcp {}: connect: connection refused", gone.address);
    assert!(
        message.starts_with(&format!("{PREFIX} failed: Post ")),
        "{message}"
    );
    assert!(message.ends_with(&words), "{message}");

    let identity = Identity {
        is_expired: true,
        ..Identity::default()
    };
    let expired = HookServer::with(identity, |_, asked| Reply::Json(convert(asked))).await;
    let (_cluster, admin, made) = with_widget(&expired).await;
    let message = refused(&admin, &made).await;
    let words = "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time ";
    assert!(message.contains(words), "{message}");
    assert!(expired.take().is_empty());
}

#[tokio::test]
async fn a_conversion_hook_that_never_answers_holds_up_only_what_it_would_convert() {
    let server = HookServer::start(|_, _| Reply::Never).await;
    let (_cluster, admin, made) = with_widget(&server).await;
    let waiting = admin.clone();
    let held = tokio::spawn(async move { waiting.get(&format!("{}/a", newer())).await.code });
    server.asked(1).await;
    let others = async {
        let read = admin.get(&format!("{WIDGETS}/a")).await.expect(200);
        assert_eq!(read, made);
        let other = widget("b", api::document!({}));
        admin.post(WIDGETS, &other).await.expect(201);
        admin.get("/apis").await.expect(200);
    };
    let others = tokio::time::timeout(Duration::from_secs(10), others).await;
    others.expect("others wait for the hook");
    assert!(!held.is_finished());
    let code = tokio::time::timeout(Duration::from_secs(60), held).await;
    assert_eq!(code.expect("it is never given up").unwrap(), 500);
}
