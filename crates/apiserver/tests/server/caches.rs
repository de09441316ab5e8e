//! Bytes in caches: whatever many readers want is made once. Counted, not timed.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use api::Value;
use bytes::Bytes;
use environment::Environment;
use http_body_util::BodyExt;
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options};
use store::{Operation, Store, Transaction};

use crate::harness::{Authority, Client, Cluster, config_map, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const OBJECTS: usize = 10_000;

/// What `/metrics` counts of our own.
async fn made(admin: &Client) -> BTreeMap<String, u64> {
    let answer = admin.get("/metrics").await;
    let text = String::from_utf8(answer.bytes.to_vec()).unwrap();
    text.lines()
        .filter(|line| line.starts_with("coracle_"))
        .filter_map(|line| {
            let (name, number) = line.rsplit_once(' ')?;
            Some((name.to_string(), number.parse().unwrap()))
        })
        .collect()
}

fn form(name: &str) -> String {
    format!("coracle_forms_made_total{{form=\"{name}\"}}")
}

/// A server whose store had this many ConfigMaps before it began.
async fn cluster_with_maps(count: usize) -> Cluster {
    let environment = Environment::simulated(1, 1_800_000_000_000_000);
    let disk = SimulatedDisk::new(1).mount();
    let store: Arc<dyn Store> = Embedded::open(disk, environment.clone(), Options::default())
        .await
        .unwrap();
    let numbers: Vec<usize> = (0..count).collect();
    for some in numbers.chunks(100) {
        let then = some
            .iter()
            .map(|number| {
                let name = format!("map-{number:05}");
                let object = api::document!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{number}")},
                    "data": {"number": number.to_string()},
                });
                Operation::Put {
                    key: format!("/registry/configmaps/default/{name}").into(),
                    value: object.to_json().into(),
                    lease: None,
                }
            })
            .collect();
        let compare = Vec::new();
        store.transact(Transaction { compare, then }).await.unwrap();
    }
    Cluster::over(store, Authority::new(), environment).await
}

fn unpacked(compressed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(compressed)
        .read_to_end(&mut plain)
        .unwrap();
    plain
}

#[tokio::test(start_paused = true)]
async fn a_list_of_ten_thousand_makes_nothing_the_second_time() {
    let cluster = cluster_with_maps(OBJECTS).await;
    let admin = cluster.admin();
    for accept in ["application/json", PROTOBUF, METADATA] {
        let plain = admin.clone().with_header("accept", accept);
        let packed = plain.clone().with_header("accept-encoding", "gzip");
        let expected = plain.get(MAPS).await.bytes;
        let first = packed.get(MAPS).await;
        assert_eq!(first.headers["content-encoding"], "gzip");
        assert!(unpacked(&first.bytes) == expected, "{accept}");

        let before = made(&admin).await;
        let second = packed.get(MAPS).await;
        assert!(second.bytes == first.bytes, "{accept}");
        assert!(plain.get(MAPS).await.bytes == expected, "{accept}");
        assert_eq!(made(&admin).await, before, "{accept}");
    }
    let list = admin.get(MAPS).await.expect(200);
    let items = list.get("items").and_then(Value::as_array).unwrap();
    assert_eq!(items.len(), OBJECTS);

    // A change makes one piece anew, and what is one object's own.
    let before = made(&admin).await;
    let patch = api::document!({"data": {"number": "none"}});
    let path = format!("{MAPS}/map-04711");
    admin.merge(&path, &patch).await.expect(200);
    let packed = admin.clone().with_header("accept", PROTOBUF);
    let packed = packed.with_header("accept-encoding", "gzip");
    packed.get(MAPS).await;
    let after = made(&admin).await;
    let grown = |name: &str| after[&form(name)] - before[&form(name)];
    assert_eq!((grown("protobuf"), grown("gzip_piece")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_to_a_thousand_watchers_is_made_once_per_form() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let path = format!("{MAPS}?watch=true");
    let metadata = METADATA.replace("List", "");
    let mut watches = Vec::new();
    for (accept, number) in [
        ("application/json", 1000),
        (PROTOBUF, 100),
        (metadata.as_str(), 100),
    ] {
        let client = admin.clone().with_header("accept", accept);
        let mut bodies = Vec::new();
        for _ in 0..number {
            let response = client.open("GET", &path, "", b"").await;
            assert_eq!(response.status(), 200);
            bodies.push(response.into_body());
        }
        watches.push(bodies);
    }
    let before = made(&admin).await;
    admin.post(MAPS, &config_map("a")).await.expect(201);
    for bodies in &mut watches {
        let mut shared: Option<Bytes> = None;
        for body in bodies {
            let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
            let first = shared.get_or_insert(event.clone());
            assert_eq!(
                event.as_ptr(),
                first.as_ptr(),
                "everyone gets the same bytes"
            );
        }
    }
    let after = made(&admin).await;
    let grown = |name: &str| after[&form(name)] - before[&form(name)];
    assert_eq!(grown("watch_event"), 3, "one per form");
    assert_eq!(grown("protobuf"), 1);
    assert_eq!(grown("gzip_piece"), 0);
    let visits = "coracle_watch_visits_total";
    assert_eq!(after[visits] - before[visits], 1200);
}

#[tokio::test(start_paused = true)]
async fn an_event_visits_only_the_watcher_of_its_node() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let mut watches = Vec::new();
    for number in 0..2000 {
        let selector = format!("fieldSelector=spec.nodeName%3Dnode-{number}");
        let path = format!("/api/v1/pods?watch=true&{selector}");
        watches.push(admin.watch(&path).await);
    }
    let before = made(&admin).await;
    for number in [7, 1999] {
        let mut pod = pod(&format!("pod-{number}"));
        pod.set(&["spec", "nodeName"], format!("node-{number}"));
        admin.post(PODS, &pod).await.expect(201);
        let expected = format!("ADDED pod-{number}");
        assert_eq!(watches[number].summary().await, expected);
    }
    let visits = "coracle_watch_visits_total";
    let after = made(&admin).await;
    assert_eq!(after[visits] - before[visits], 2);
}
