//! The work for one changed Service does not grow with the number of others: counted in Services and
//! slices that are looked at and in bytes for the kernel, among a hundred, a thousand and ten
//! thousand of them.

use std::sync::Arc;

use client::Change;
use environment::work;
use serde_json::json;

use super::ledger::Ledger;
use super::tests::from;
use super::*;
use crate::service_index::ServiceIndex;

const SIZES: [usize; 3] = [100, 1_000, 10_000];

fn service(number: usize) -> Arc<Service> {
    let address = format!("10.96.{}.{}", number / 250, 1 + number % 250);
    Arc::new(from(json!({
        "metadata": {"namespace": "default", "name": format!("service-{number}")},
        "spec": {"clusterIP": address, "ports": [{"port": 80}]},
    })))
}

fn slice(number: usize, ready: bool) -> Arc<EndpointSlice> {
    let name = format!("service-{number}");
    let address = |last: usize| format!("10.{}.{}.{last}", 130 + number / 250, number % 250);
    let endpoint = |last: usize, ready: bool| {
        json!({"addresses": [address(last)],
        "conditions": {"ready": ready}})
    };
    Arc::new(from(json!({
        "metadata": {"namespace": "default", "name": format!("{name}-1"),
            "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "ports": [{"port": 8080}],
        "endpoints": [endpoint(2, true), endpoint(3, ready)],
    })))
}

/// What is looked at, and how many bytes are written, when one endpoint of one Service goes.
fn measure(size: usize) -> (u64, usize, usize) {
    let ranges = Ranges {
        cluster_id: "0a1b2c".to_owned(),
        services: "10.96.0.0/12".parse().unwrap(),
        pods: "10.244.0.0/24".parse().unwrap(),
        gateway: "10.244.0.1".parse().unwrap(),
        node_addresses: Vec::new(),
    };
    let (mut index, mut ledger) = (ServiceIndex::default(), Ledger::default());
    for number in 0..size {
        let key = index.note_service(Change::Added(service(number))).unwrap();
        index.note_slice(Change::Added(slice(number, true)));
        let planned = plan(index.service(&key).unwrap(), index.slices(&key), "node");
        ledger.update(&key, planned);
    }
    let (_, mut installed) = full(&ledger.desired(), &ranges);
    let before = work::visited();
    let (old, new) = (slice(7, true), slice(7, false));
    let mut touched = Vec::new();
    for key in index.note_slice(Change::Modified { old, new }) {
        let planned = plan(index.service(&key).unwrap(), index.slices(&key), "node");
        touched.extend(ledger.update(&key, planned));
    }
    let changes: Vec<_> = touched
        .iter()
        .map(|frontend| (*frontend, ledger.backends(frontend).cloned()))
        .collect();
    let mut batch = Batch::new(Family::Ipv4, names::proxy_table(&ranges.cluster_id));
    installed.follow(changes, &ranges, &mut batch);
    (work::visited() - before, touched.len(), batch.bytes())
}

#[test]
fn the_work_for_one_service_does_not_grow_with_the_others() {
    let counts = SIZES.map(measure);
    assert!(counts[0].0 > 0 && counts[0].2 > 0, "{counts:?}");
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}
