//! Pods come, wait, get their nodes, and fail.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use client::Informers;
use environment::Environment;
use scheduler::{Decisions, SchedulingResult};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use trace::{Sink, Span};

use crate::fake_api::FakeApi;

#[derive(Default)]
struct Spans(Mutex<Vec<(String, Span)>>);

impl Sink for Spans {
    fn record(&self, uid: &str, span: Span) {
        let mut spans = self.0.lock().expect("spans lock");
        spans.push((uid.to_owned(), span));
    }
}

impl Spans {
    fn of(&self, uid: &str) -> Vec<Span> {
        let spans = self.0.lock().expect("spans lock");
        let spans = spans.iter().filter(|(of, _)| of == uid);
        spans.map(|(_, span)| span.clone()).collect()
    }
}

struct Running {
    spans: Arc<Spans>,
    decisions: Decisions,
    _stop: DropGuard,
}

fn start(api: &FakeApi, seed: u64) -> Running {
    let environment = Environment::simulated(seed, 1_700_000_000_000_000);
    let informers = Informers::new(api.client(), environment.clone());
    let (spans, decisions) = (Arc::new(Spans::default()), Decisions::default());
    let stop = CancellationToken::new();
    let recorder = trace::Recorder::new(spans.clone());
    let scheduler = scheduler::Scheduler {
        decisions: decisions.clone(),
        ..scheduler::Scheduler::new(api.client(), informers, environment, recorder)
    };
    tokio::spawn(scheduler.run(stop.clone()));
    Running {
        spans,
        decisions,
        _stop: stop.drop_guard(),
    }
}

fn asking(cpu: &str) -> Value {
    json!({"schedulerName": "default-scheduler", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]})
}

async fn after(duration: Duration) {
    tokio::time::sleep(duration).await;
}

const SOON: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn a_pod_gets_a_node_with_event_spans_and_decision() {
    let api = FakeApi::default();
    api.put_node("small", "1");
    api.put_node("large", "8");
    let running = start(&api, 1);
    after(SOON).await;
    api.create_pod("web", asking("2"));
    after(SOON).await;
    assert_eq!(api.node_of("web").as_deref(), Some("large"));
    assert_eq!(
        api.events("web"),
        ["Scheduled: Successfully assigned default/web to large"]
    );
    let spans = running.spans.of("uid-web");
    let hops: Vec<u8> = spans.iter().map(|span| span.hop as u8).collect();
    assert_eq!(hops, [6, 7, 8]);
    assert!(spans[0].bytes > 0 && spans[2].bytes > 0);
    assert!(spans.iter().all(|span| span.component == "scheduler"));
    let record = running.decisions.latest("default", "web").expect("kept");
    let node = "large".to_owned();
    assert_eq!(record.outcome, SchedulingResult::Placed { node });
    assert_eq!(record.nodes.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_pod_says_why_and_goes_when_it_can() {
    let api = FakeApi::default();
    let running = start(&api, 1);
    api.create_pod("web", asking("2"));
    after(SOON).await;
    assert_eq!(
        api.events("web"),
        ["FailedScheduling: no nodes available to schedule pods"]
    );
    after(Duration::from_secs(2)).await;
    api.put_node("small", "1");
    after(SOON).await;
    let why = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(api.events("web")[1], format!("FailedScheduling: {why}"));
    let condition = &api.pod("web")["status"]["conditions"][0];
    assert_eq!(condition["type"], "PodScheduled");
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "Unschedulable");
    assert_eq!(condition["message"], why);
    // A heartbeat of a node that stays too small tries nothing.
    api.put_node("small", "1");
    after(Duration::from_secs(60)).await;
    assert_eq!(running.decisions.all().len(), 2);
    // The node grows.
    api.put_node("small", "2");
    after(SOON).await;
    assert_eq!(api.node_of("web").as_deref(), Some("small"));
    assert_eq!(api.pod("web")["status"]["conditions"][0]["status"], "True");
    let hops: Vec<u8> = running
        .spans
        .of("uid-web")
        .iter()
        .map(|s| s.hop as u8)
        .collect();
    assert_eq!(hops, [6, 7, 7, 8], "the first attempt and the last");
    assert!(running.spans.of("uid-web")[2].queue_us > 59_000_000);
}

#[tokio::test(start_paused = true)]
async fn a_node_is_not_given_away_twice() {
    let api = FakeApi::default();
    api.put_node("only", "1");
    api.delay_bindings(SOON / 2);
    let _running = start(&api, 1);
    for name in ["a", "b", "c"] {
        api.create_pod(name, asking("400m"));
    }
    after(SOON).await;
    assert_eq!(api.bindings(), ["a only", "b only"]);
    assert_eq!(api.node_of("c"), None);
    after(Duration::from_secs(5)).await;
    api.delete_pod("a");
    after(SOON).await;
    assert_eq!(api.node_of("c").as_deref(), Some("only"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_frees_its_place_and_pods_from_before_count() {
    let api = FakeApi::default();
    api.put_node("only", "1");
    let mut bound = asking("1");
    bound["nodeName"] = json!("only");
    api.create_pod("old", bound);
    let _running = start(&api, 1);
    api.create_pod("web", asking("1"));
    after(Duration::from_secs(5)).await;
    assert_eq!(api.node_of("web"), None);
    let mut old = api.pod("old");
    old["status"]["phase"] = json!("Succeeded");
    api.put("pods", old);
    after(SOON).await;
    assert_eq!(api.node_of("web").as_deref(), Some("only"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_binding_is_forgotten_and_tried_again() {
    let api = FakeApi::default();
    api.put_node("only", "1");
    let running = start(&api, 1);
    api.fail_bindings(2);
    api.create_pod("web", asking("1"));
    after(SOON).await;
    assert_eq!(api.node_of("web"), None);
    let events = api.events("web");
    let event = "FailedScheduling: running Bind plugin \"DefaultBinder\": the disk is on fire";
    assert_eq!(events, [event]);
    assert_eq!(
        api.pod("web")["status"]["conditions"][0]["reason"],
        "SchedulerError"
    );
    // After 1 s and 2 s; had the first attempt stayed on the account, there would be no room.
    after(Duration::from_secs(4)).await;
    assert_eq!(api.node_of("web").as_deref(), Some("only"));
    assert_eq!(running.decisions.all().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn gates_other_schedulers_and_deleted_pods_are_respected() {
    let api = FakeApi::default();
    api.put_node("only", "8");
    let running = start(&api, 1);
    let mut gated = asking("1");
    gated["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    api.create_pod("gated", gated);
    let mut foreign = asking("1");
    foreign["schedulerName"] = json!("other");
    api.create_pod("foreign", foreign);
    let metadata = json!({"namespace": "default", "name": "leaving", "uid": "uid-leaving", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    api.put("pods", json!({"metadata": metadata, "spec": asking("1")}));
    after(Duration::from_secs(600)).await;
    assert!(api.bindings().is_empty());
    assert!(running.decisions.all().is_empty());
    let mut pod = api.pod("gated");
    pod["spec"]["schedulingGates"] = Value::Null;
    api.put("pods", pod);
    after(SOON).await;
    assert_eq!(api.bindings(), ["gated only"]);
}

#[tokio::test(start_paused = true)]
async fn priority_comes_first() {
    let api = FakeApi::default();
    let _running = start(&api, 1);
    for (name, priority) in [("low", 0), ("high", 1000), ("middle", 10)] {
        let mut spec = asking("1");
        spec["priority"] = json!(priority);
        api.create_pod(name, spec);
    }
    after(Duration::from_secs(5)).await;
    api.put_node("n1", "2");
    after(SOON).await;
    assert_eq!(api.bindings(), ["high n1", "middle n1"]);
}

#[tokio::test(start_paused = true)]
async fn a_seed_fixes_every_choice_and_pods_spread() {
    async fn bindings(seed: u64) -> Vec<String> {
        let api = FakeApi::default();
        for number in 0..5 {
            api.put_node(&format!("n{number}"), "4");
        }
        let _running = start(&api, seed);
        for number in 0..10 {
            api.create_pod(&format!("p{number}"), asking("1"));
        }
        after(SOON).await;
        api.bindings()
    }
    let first = bindings(7).await;
    assert_eq!(first.len(), 10);
    assert_eq!(first, bindings(7).await);
    assert_ne!(first, bindings(8).await);
    for number in 0..5 {
        let node = format!(" n{number}");
        let here = first.iter().filter(|binding| binding.ends_with(&node));
        assert_eq!(here.count(), 2, "two pods on each node: {first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_keep_apart_wait_for_each_other_only() {
    let api = FakeApi::default();
    api.put(
        "nodes",
        json!({
            "metadata": {"name": "only", "uid": "uid-only", "labels": {"host": "only"}},
            "spec": {},
            "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
        }),
    );
    let running = start(&api, 1);
    let apart = |name: &str| {
        let term = json!({"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "web"}}});
        let mut spec = asking("1");
        spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!([term]);
        let metadata = json!({"namespace": "default", "name": name, "uid": format!("uid-{name}"), "labels": {"app": "web"}});
        api.put(
            "pods",
            json!({"metadata": metadata, "spec": spec, "status": {}}),
        );
    };
    apart("one");
    after(SOON).await;
    apart("two");
    after(SOON).await;
    assert_eq!(api.node_of("two"), None);
    let why = "FailedScheduling: 0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    assert_eq!(api.events("two"), [why]);
    // Others come and go without it being tried again.
    api.create_pod("other", asking("1"));
    after(Duration::from_secs(5)).await;
    api.delete_pod("other");
    after(Duration::from_secs(5)).await;
    assert_eq!(running.decisions.all().len(), 3);
    api.delete_pod("one");
    after(SOON).await;
    assert_eq!(api.node_of("two").as_deref(), Some("only"));
}
