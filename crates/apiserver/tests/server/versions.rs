//! Two versions of a kind from one stored object, and the paths that change one part of a pod.

use crate::harness::{Cluster, pod};

const V1: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const V2: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const CORE: &str = "/api/v1/namespaces/default/events";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

#[tokio::test(start_paused = true)]
async fn an_autoscaler_has_two_versions() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let mut watch = admin.watch(&format!("{V1}?watch=true")).await;
    let sent = api::document!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "maxReplicas": 3, "targetCPUUtilizationPercentage": 40,
        },
    });
    let made = admin.post(V1, &sent).await.expect(201);
    assert_eq!(made.str_at(&["apiVersion"]), "autoscaling/v1");
    let target = ["spec", "targetCPUUtilizationPercentage"];
    assert_eq!(made.i64_at(&target), Some(40));
    let (event, object) = watch.next().await.unwrap();
    assert_eq!(
        (event.as_str(), object.i64_at(&target)),
        ("ADDED", Some(40))
    );

    let other = admin.get(&format!("{V2}/a")).await.expect(200);
    assert_eq!(other.str_at(&["apiVersion"]), "autoscaling/v2");
    let metric = &other.list_at(&["spec", "metrics"])[0];
    let utilization = ["resource", "target", "averageUtilization"];
    assert_eq!(metric.i64_at(&utilization), Some(40));

    let path = format!("{V1}/a");
    let change = api::document!({"spec": {"targetCPUUtilizationPercentage": 50}});
    let changed = admin.merge(&path, &change).await.expect(200);
    assert_eq!(changed.i64_at(&target), Some(50));
    let (event, object) = watch.next().await.unwrap();
    assert_eq!(
        (event.as_str(), object.i64_at(&target)),
        ("MODIFIED", Some(50))
    );
    let list = admin.get(V2).await.expect(200);
    let metric = &list.list_at(&["items"])[0].list_at(&["spec", "metrics"])[0];
    assert_eq!(metric.i64_at(&utilization), Some(50));
}

#[tokio::test(start_paused = true)]
async fn an_event_has_two_groups() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let sent = api::document!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "note": "n",
        "reason": "R", "action": "A", "type": "Normal", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c", "reportingInstance": "i",
    });
    admin.post(EVENTS, &sent).await.expect(201);
    let core = admin.get(&format!("{CORE}/e")).await.expect(200);
    assert_eq!(core.str_at(&["message"]), "n");
    assert_eq!(core.str_at(&["involvedObject", "name"]), "p");
    let selected = |field: &str| format!("{EVENTS}?fieldSelector={field}");
    let found = admin.get(&selected("regarding.name%3Dp")).await.expect(200);
    assert_eq!(found.list_at(&["items"])[0].str_at(&["note"]), "n");
    let none = admin.get(&selected("regarding.name%3Dq")).await.expect(200);
    assert!(none.list_at(&["items"]).is_empty());
    let message = admin.get(&selected("involvedObject.name%3Dp")).await;
    assert_eq!(
        message.failure(400, "BadRequest"),
        "field label not supported: involvedObject.name"
    );
    admin.delete(&format!("{EVENTS}/e")).await.expect(200);
    admin
        .get(&format!("{CORE}/e"))
        .await
        .failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_pod_have_paths_of_their_own() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let pods = "/api/v1/namespaces/default/pods";
    let mut object = pod("a");
    object.set(
        &["spec", "containers"],
        api::document!([{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1"}}}]),
    );
    let mut made = admin.post(pods, &object).await.expect(201);
    assert_eq!(made.i64_at(&["metadata", "generation"]), Some(1));
    for container in made.list_at_mut(&["spec", "containers"]) {
        container.set(&["resources", "requests", "cpu"], "2");
    }
    admin
        .put(&format!("{pods}/a"), &made)
        .await
        .failure(422, "Invalid");
    let resized = admin
        .put(&format!("{pods}/a/resize"), &made)
        .await
        .expect(200);
    assert_eq!(resized.i64_at(&["metadata", "generation"]), Some(2));
    let debug = api::document!({"spec": {"ephemeralContainers": [{"name": "d", "image": "i:1"}]}});
    let path = format!("{pods}/a/ephemeralcontainers");
    let debugged = admin.merge(&path, &debug).await.expect(200);
    assert_eq!(debugged.list_at(&["spec", "ephemeralContainers"]).len(), 1);
    assert_eq!(debugged.i64_at(&["metadata", "generation"]), Some(3));
    let binding = api::document!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"name": "n"},
    });
    let bindings = "/api/v1/namespaces/default/bindings";
    admin.post(bindings, &binding).await.expect(201);
    let bound = admin.get(&format!("{pods}/a")).await.expect(200);
    assert_eq!(bound.str_at(&["spec", "nodeName"]), "n");
}
