//! The Event recorder and the span forwarder against a scripted server.

use std::{sync::Arc, time::Duration};

use crate::script::{Reply, Script};
use client::{SpanForwarder, events::Recorder};
use environment::Environment;
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio_util::sync::CancellationToken;
use trace::{Hop, Sink, Span};

fn status(code: u16, reason: &str) -> Reply {
    Reply::Json(
        code,
        format!(r#"{{"kind":"Status","status":"Failure","code":{code},"reason":"{reason}"}}"#),
    )
}

fn accepted() -> Reply {
    Reply::Json(200, r#"{"metadata":{},"involvedObject":{}}"#.to_owned())
}

fn pod(name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("shop".to_owned());
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.uid = Some("uid".to_owned());
    pod
}

async fn settle() {
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn repeated_events_increase_a_count() {
    let script = Script::new(vec![
        accepted(),
        accepted(),
        status(404, "NotFound"),
        accepted(),
    ]);
    let environment = Environment::simulated(1, 1_700_000_000_000_000);
    let recorder = Recorder::new(script.client(), environment, "default-scheduler", None);
    for _ in 0..3 {
        recorder.warning(&pod("web"), "FailedScheduling", "no nodes");
        settle().await;
    }
    let requests = script.requests();
    let created: serde_json::Value = {
        let body = requests[0].strip_prefix("POST /api/v1/namespaces/shop/events? ");
        serde_json::from_str(body.expect("a create")).expect("an event")
    };
    let name = created["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("web.17979cfe362a"), "{name}");
    assert_eq!(created["type"], "Warning");
    assert_eq!(created["involvedObject"]["kind"], "Pod");
    assert_eq!(created["source"]["component"], "default-scheduler");
    assert_eq!(created["reportingComponent"], "default-scheduler");
    assert_eq!(created["firstTimestamp"], "2023-11-14T22:13:20Z");
    assert!(requests[1].starts_with(&format!("PATCH /api/v1/namespaces/shop/events/{name}?")));
    assert!(requests[1].contains(r#""count":2"#));
    assert!(requests[2].starts_with("PATCH"), "the third is counted too");
    assert!(
        requests[3].starts_with("POST"),
        "the removed event is posted again"
    );
    assert!(requests[3].contains(r#""count":3"#));
}

#[tokio::test(start_paused = true)]
async fn events_about_cluster_scoped_objects_are_in_the_default_namespace() {
    let script = Script::new(vec![
        Reply::Unreachable,
        status(503, "ServiceUnavailable"),
        accepted(),
    ]);
    let environment = Environment::simulated(1, 0);
    let recorder = Recorder::new(script.client(), environment, "kubelet", Some("n-1"));
    let mut node = Node::default();
    node.metadata.name = Some("n-1".to_owned());
    recorder.normal(&node, "NodeReady", "ready");
    settle().await;
    let requests = script.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[2].starts_with("POST /api/v1/namespaces/default/events? "));
    assert!(requests[2].contains(r#""host":"n-1""#));
}

#[tokio::test(start_paused = true)]
async fn recording_an_event_never_blocks() {
    let script = Script::new(vec![]);
    let environment = Environment::simulated(1, 0);
    let recorder = Recorder::new(script.client(), environment, "kubelet", None);
    for number in 0..5000 {
        recorder.normal(&pod(&format!("web-{number}")), "Started", "started");
    }
}

fn span(name: &str) -> Span {
    Span {
        hop: Hop::Node,
        name: name.to_owned(),
        component: "kubelet".to_owned(),
        start: 1,
        queue_us: 2,
        work_us: 3,
        bytes: 4,
        failure: None,
    }
}

#[tokio::test(start_paused = true)]
async fn spans_are_sent_in_batches_retried_and_flushed_at_shutdown() {
    let ok = || Reply::Json(200, "{}".to_owned());
    let script = Script::new(vec![Reply::Unreachable, ok(), ok()]);
    let shutdown = CancellationToken::new();
    let environment = Environment::simulated(1, 0);
    let forwarder = SpanForwarder::start(script.client(), environment, shutdown.clone());
    let recorder = trace::Recorder::new(forwarder.clone() as Arc<dyn Sink>);
    recorder.record("u1", span("RunPodSandbox"));
    recorder.record("u1", span("StartContainer"));
    settle().await;
    recorder.record("u2", span("late"));
    shutdown.cancel();
    settle().await;
    let requests = script.requests();
    let both = concat!(
        r#"POST /coracle/v1/spans [{"uid":"u1","span":{"hop":10,"name":"RunPodSandbox","component":"kubelet","start":1,"queue_us":2,"work_us":3,"bytes":4}},"#,
        r#"{"uid":"u1","span":{"hop":10,"name":"StartContainer","component":"kubelet","start":1,"queue_us":2,"work_us":3,"bytes":4}}]"#
    );
    assert_eq!(requests[0], both);
    assert_eq!(requests[1], both);
    assert!(requests[2].contains("u2"));
    assert_eq!(requests.len(), 3);
}
