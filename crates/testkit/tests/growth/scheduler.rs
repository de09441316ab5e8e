//! The scheduler: a pod is placed, a node comes and changes, among a hundred, a thousand and ten
//! thousand nodes with pods, Services and ReplicaSets.

use std::time::Duration;

use client::Informers;
use environment::{Environment, work};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::fake_api::FakeApi;
use crate::world::{World, labels, name, object};
use crate::{SIZES, assert_does_not_grow};

const SOON: Duration = Duration::from_millis(100);
const KINDS: &[&str] = &["nodes", "pods", "services", "replicasets"];
const SLACK: u64 = 20;

/// A pod that waits for a node.
fn pending(name: &str, labels: Value, owner: Option<usize>) -> Value {
    let mut pod = object("pods", 0).unwrap_or_default();
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["uid"] = json!(format!("uid-{name}"));
    pod["metadata"]["labels"] = labels;
    pod["metadata"]["ownerReferences"] = match owner {
        Some(n) => json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true,
            "name": crate::world::name("replicasets", n), "uid": format!("replicasets-{n}")}]),
        None => Value::Null,
    };
    pod["spec"]["nodeName"] = Value::Null;
    pod["spec"]["volumes"] = json!([]);
    pod["status"] = json!({"phase": "Pending"});
    pod
}

struct Counts {
    plain: u64,
    of_replica_set: u64,
    node_added: u64,
    plain_after_node: u64,
    spread_after_node: u64,
    pod_deleted: u64,
}

fn measure(size: usize) -> Counts {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let api = FakeApi::new(World { size, kinds: KINDS });
        let environment = Environment::simulated(1, 1_767_225_600_000_000);
        let informers = Informers::new(api.client(), environment.clone());
        let recorder = trace::Recorder::off();
        let stop = CancellationToken::new();
        let scheduler = scheduler::Scheduler::new(api.client(), informers, environment, recorder);
        tokio::spawn(scheduler.run(stop.clone()));
        tokio::time::sleep(SOON).await;
        // What the scheduler learns of all nodes for the first pod of a shape it keeps.
        let alone = || json!({"app": "alone"});
        place(&api, pending("first", alone(), None)).await;
        let plain = place(&api, pending("second", alone(), None)).await;
        place(&api, pending("third", labels(2), Some(2))).await;
        let of_replica_set = place(&api, pending("fourth", labels(2), Some(2))).await;
        let node_added = cost(|| {
            let node = object("nodes", size).unwrap_or_default();
            api.put("nodes", node);
        })
        .await;
        let plain_after_node = place(&api, pending("fifth", alone(), None)).await;
        let spread_after_node = place(&api, pending("sixth", labels(2), Some(2))).await;
        let pod_deleted = cost(|| api.delete("pods", "default", &name("pods", 3))).await;
        stop.cancel();
        Counts {
            plain,
            of_replica_set,
            node_added,
            plain_after_node,
            spread_after_node,
            pod_deleted,
        }
    })
}

async fn cost(cause: impl FnOnce()) -> u64 {
    let before = work::visited();
    cause();
    tokio::time::sleep(SOON).await;
    work::visited() - before
}

/// What it costs to give the pod a node.
async fn place(api: &FakeApi, pod: Value) -> u64 {
    let name = pod["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let counted = cost(|| api.put("pods", pod)).await;
    let pod = api.get("pods", "default", &name).unwrap_or_default();
    assert!(pod["spec"]["nodeName"].is_string(), "{name} has no node");
    counted
}

#[test]
fn the_scheduler_visits_only_affected_objects() {
    let counts: Vec<(usize, Counts)> = SIZES.iter().map(|size| (*size, measure(*size))).collect();
    let of = |read: fn(&Counts) -> u64| -> Vec<(usize, u64)> {
        counts
            .iter()
            .map(|(size, counts)| (*size, read(counts)))
            .collect()
    };
    let check = |what: &str, read: fn(&Counts) -> u64| {
        assert_does_not_grow(what, &of(read), SIZES[0], SLACK);
    };
    check("a pod is placed", |counts| counts.plain);
    check("a node is added", |counts| counts.node_added);
    check("a pod is placed after that", |counts| {
        counts.plain_after_node
    });
    check("a pod is deleted", |counts| counts.pod_deleted);
    // Of large clusters a sample is scored, whose size is the same for a thousand nodes and more.
    for (what, read) in [
        (
            "a pod of a ReplicaSet is placed",
            (|counts| counts.of_replica_set) as fn(&Counts) -> u64,
        ),
        (
            "a pod of a ReplicaSet is placed after a node came",
            |counts| counts.spread_after_node,
        ),
    ] {
        assert_does_not_grow(what, &of(read), SIZES[1], SLACK);
    }
}
