//! The cost sheet of `SPECIFICATION.md`: what one pod costs hop by hop, in syncs, transactions,
//! bytes and allocations, counted and held under bounds. Counts are stable where times are not.
//!
//! `cargo test -p testkit --test costs -- --nocapture` prints the sheet as it is measured. A bound
//! lies a tenth above what was measured when it was set: lower it when the code has become better.

mod meter;
mod pods;
mod sheet;

use bytes::Bytes;
use futures::future::join_all;
use http::Method;
use meter::{Cost, Meter, median};
use sheet::{Bound, Row};
use testkit::{Cluster, Part};
use trace::Hop;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Each row is the difference that one more part makes to the cost of one pod.
#[test]
fn each_hop_of_a_pod_costs_what_the_table_says() {
    let server = Meter::start(Cluster::builder());
    let admitted = pods::cost_of_dry_run(&server);
    let created = pods::cost_of_one(&server);

    let watched = Meter::start(Cluster::builder());
    let _informer = pods::follow(&watched, "");
    let seen = pods::cost_of_one(&watched);

    let scheduled = start_with_idle_node();
    let bound = pods::cost_of_one(&scheduled);

    let received = start_with_idle_node();
    let _informer = pods::follow(&received, "spec.nodeName=node-0");
    let taken = pods::cost_of_one(&received);

    let whole = start_with_node();
    let running = pods::cost_of_one(&whole);
    let wire = |hop| pods::span_bytes(&whole.cluster, "web-0", hop);

    sheet::check(&[
        Row {
            hops: "2",
            what: "admission",
            cost: admitted,
            wire: wire(Hop::Admission),
            bound: Bound {
                fsyncs: 0,
                transactions: 0,
                disk_bytes: 0,
                allocations: 920,
            },
        },
        Row {
            hops: "3–5",
            what: "put, revision, watch cache, 201",
            cost: created - admitted,
            wire: wire(Hop::Created),
            bound: Bound {
                fsyncs: 1,
                transactions: 1,
                disk_bytes: 2750,
                allocations: 60,
            },
        },
        Row {
            hops: "6",
            what: "watch to scheduler",
            cost: seen - created,
            wire: wire(Hop::WatchScheduler),
            bound: Bound {
                fsyncs: 0,
                transactions: 0,
                disk_bytes: 0,
                allocations: 70,
            },
        },
        Row {
            hops: "7–8",
            what: "schedule, bind, event Scheduled",
            cost: bound - seen,
            wire: wire(Hop::Bind),
            bound: Bound {
                fsyncs: 2,
                transactions: 2,
                disk_bytes: 4050,
                allocations: 1250,
            },
        },
        Row {
            hops: "9",
            what: "watch to node",
            cost: taken - bound,
            wire: wire(Hop::WatchNode),
            bound: Bound {
                fsyncs: 0,
                transactions: 0,
                disk_bytes: 0,
                allocations: 75,
            },
        },
        Row {
            hops: "11",
            what: "status Running, seen by all",
            cost: running - taken,
            wire: wire(Hop::Status),
            bound: Bound {
                fsyncs: 1,
                transactions: 1,
                disk_bytes: 4350,
                allocations: 2520,
            },
        },
        Row {
            hops: "2–11",
            what: "the whole pod",
            cost: running,
            wire: [
                Hop::Admission,
                Hop::Created,
                Hop::WatchScheduler,
                Hop::Bind,
                Hop::WatchNode,
                Hop::Status,
            ]
            .map(wire)
            .iter()
            .sum(),
            bound: Bound {
                fsyncs: 4,
                transactions: 4,
                disk_bytes: 11000,
                allocations: 4900,
            },
        },
    ]);
}

#[test]
fn concurrent_creations_share_syncs() {
    const WRITES: u64 = 64;
    let meter = Meter::start(Cluster::builder());
    let writes = (0..WRITES).map(|number| meter.send(Method::POST, MAPS, map(number)));
    let (_, cost) = meter.measure(join_all(writes));
    println!("{WRITES} concurrent creations: {cost:?}");
    assert_eq!(cost.transactions, WRITES);
    // One for the first, one for all that queued meanwhile; a third for stragglers.
    assert!(cost.fsyncs <= 3, "{cost:?}");
}

#[test]
fn creations_one_after_another_cost_one_sync_each() {
    let meter = Meter::start(Cluster::builder());
    let (_, cost) = meter.measure(async {
        for number in 0..10 {
            meter.send(Method::POST, MAPS, map(number)).await;
        }
    });
    assert_eq!((cost.fsyncs, cost.transactions), (10, 10), "{cost:?}");
}

#[test]
fn a_list_is_assembled_from_cached_bytes() {
    let meter = Meter::start(Cluster::builder());
    let list = || meter.measure(meter.send(Method::GET, MAPS, Bytes::new()));
    let create = |numbers: std::ops::Range<u64>| {
        meter.run(join_all(
            numbers.map(|number| meter.send(Method::POST, MAPS, map(number))),
        ));
        meter.settle();
    };
    create(0..1);
    list();
    let (_, one) = list();
    create(1..500);
    let (chunks, many) = list();
    let body: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    println!("list of 1: {one:?}\nlist of 500 ({body} bytes): {many:?}");
    assert_eq!(many.fsyncs, 0);
    let more = many - one;
    assert!(more.allocations <= 20, "{more:?}");
    // The body once, and a pointer per object.
    assert!(
        more.allocated_bytes <= body + body / 4,
        "{more:?}, body {body}"
    );
}

#[test]
fn a_watch_event_costs_nothing_for_watchers_with_another_selector() {
    let meter = Meter::start(Cluster::builder());
    let without = pods::cost_of_one(&meter);
    let watched = Meter::start(Cluster::builder());
    for node in 0..200 {
        pods::watch_node(&watched, &format!("node-{node}"));
    }
    watched.settle();
    let with = pods::cost_of_one(&watched);
    println!("create without watchers: {without:?}\nwith 200 of other nodes: {with:?}");
    assert!(
        with.allocations <= without.allocations,
        "{with:?} {without:?}"
    );
}

#[test]
fn an_update_that_changes_nothing_writes_nothing() {
    let meter = Meter::start(Cluster::builder());
    meter.run(meter.send(Method::POST, MAPS, map(0)));
    let path = format!("{MAPS}/map-0");
    let same = meter
        .run(meter.send(Method::GET, &path, Bytes::new()))
        .concat();
    let (_, put) = meter.measure(meter.send(Method::PUT, &path, same.into()));
    let patch = Bytes::from_static(br#"{"data":{}}"#);
    let (_, patch) = meter.measure(meter.send(Method::PATCH, &path, patch));
    for cost in [put, patch] {
        assert_eq!((cost.fsyncs, cost.transactions, cost.disk_bytes), (0, 0, 0));
    }
}

/// Reads come from memory: they neither write nor copy the object.
#[test]
fn a_get_shares_the_cached_bytes() {
    let meter = Meter::start(Cluster::builder());
    let large = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"large"}},"data":{{"text":"{}"}}}}"#,
        "x".repeat(500_000)
    );
    meter.run(meter.send(Method::POST, MAPS, large.into()));
    meter.run(meter.send(Method::POST, MAPS, map(0)));
    let get = |name: &str| {
        let path = format!("{MAPS}/{name}");
        let costs: Vec<Cost> = (0..5)
            .map(|_| {
                meter
                    .measure(meter.send(Method::GET, &path, Bytes::new()))
                    .1
            })
            .collect();
        median(&costs)
    };
    let (small, large) = (get("map-0"), get("large"));
    println!("get of 1 KB: {small:?}\nget of 500 KB: {large:?}");
    assert_eq!(large.fsyncs, 0);
    assert_eq!(large.allocations, small.allocations);
    assert!(large.allocated_bytes <= small.allocated_bytes + 100);
}

/// A scheduler and a node. A new node is tainted as not ready; no controller is there to take that
/// away.
fn start_with_node() -> Meter {
    let meter = Meter::start(Cluster::builder().scheduler().nodes(1));
    let ready = Bytes::from_static(br#"{"spec":{"taints":null}}"#);
    meter.run(meter.send(Method::PATCH, "/api/v1/nodes/node-0", ready));
    meter.settle();
    meter
}

/// The node has registered and then fallen silent.
fn start_with_idle_node() -> Meter {
    let mut meter = start_with_node();
    meter.cluster.crash(Part::Node(0));
    meter.settle();
    meter
}

/// A ConfigMap of about 1 KB.
fn map(number: u64) -> Bytes {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"map-{number}"}},"data":{{"text":"{}"}}}}"#,
        "x".repeat(1000)
    )
    .into()
}
