//! Histories through the API: writers and watchers run while the server, and its etcd, are killed with
//! `kill -9`. The final state must be consistent with all responses that they got
//! (`store::promises`).
//!
//! `SEED=n` determines the writes, `ROUNDS=n` the number of kills.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use environment::Environment;
use futures::StreamExt;
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::disk::RealDisk;
use store::embedded::{self, Embedded};
use store::promises::{Changes, History, Promises, Watcher};
use store::{Event, KeyRange, Store, WatchItem};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, eventually};
use crate::etcd::Etcd;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SELECTED: &str = "labelSelector=history%3Dyes";
const PARTS: &str = "scheduler,node,proxy,dns";
const WRITERS: usize = 4;
const WATCHERS: usize = 2;
const KEYS: u64 = 8;
const ROUNDS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_killed_server_loses_no_acknowledged_write() {
    let cluster = Cluster::prepared();
    cluster.up(&["--disable", PARTS, "--compaction-interval", "0"]);
    let lived = live(&cluster, || {});
    cluster.down();
    let happened = lived.runtime.block_on(async {
        let disk = RealDisk::new(cluster.data_dir().join("store")).expect("the store is free");
        let options = embedded::Options::default();
        let store = Embedded::open(Arc::new(disk), Environment::system(), options).await;
        let store = store.expect("store");
        let happened = happened(&*store, lived.start).await;
        store.close().await.expect("closed");
        happened
    });
    lived.check(&happened);
}

#[test]
fn a_killed_server_with_a_killed_etcd_loses_no_acknowledged_write() {
    let mut etcd = Etcd::start(1);
    let cluster = Cluster::prepared();
    let endpoints = etcd.endpoints();
    cluster.up(&[
        "--disable",
        PARTS,
        "--compaction-interval",
        "0",
        "--store",
        "etcd",
        "--etcd-servers",
        &endpoints,
    ]);
    let lived = live(&cluster, || {
        etcd.kill(0);
        etcd.restart(0);
    });
    let happened = lived.runtime.block_on(async {
        let store = store::etcd::Etcd::connect(store::etcd::Options::new(vec![endpoints])).await;
        let store = apiserver::Enveloped::new(store.expect("etcd"));
        happened(&store, lived.start).await
    });
    lived.check(&happened);
}

/// The responses that writers and watchers got while servers were killed.
struct Lived {
    runtime: tokio::runtime::Runtime,
    /// The revision before the first write.
    start: u64,
    promises: Arc<Mutex<Promises>>,
    /// The final list and its revision.
    list: (u64, Vec<Value>),
}

/// Kills the server in every round, and then calls `also`, which may kill etcd.
fn live(cluster: &Cluster, mut also: impl FnMut()) -> Lived {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("runtime");
    let environment = Environment::simulated(number("SEED").unwrap_or(11), 0);
    let promises = Arc::new(Mutex::new(Promises::default()));
    let client = runtime
        .block_on(client::connect::from_kubeconfig(cluster.kubeconfig()))
        .expect("client");
    let list = || eventually("a list", || runtime.block_on(list(&client)));
    let (start, _) = list();
    let (mut writers, mut watchers) = (JoinSet::new(), JoinSet::new());
    for _ in 0..WATCHERS {
        let watch = watch(client.clone(), promises.clone());
        watchers.spawn_on(watch, runtime.handle());
    }
    for _ in 0..WRITERS {
        let write = write(client.clone(), environment.clone(), promises.clone());
        writers.spawn_on(write, runtime.handle());
    }
    let progress = |what: &str| {
        let enough = promises.lock().acknowledged() + 40;
        eventually(what, || {
            (promises.lock().acknowledged() >= enough).then_some(())
        });
    };
    progress("the first writes");
    for _ in 0..number("ROUNDS").unwrap_or(ROUNDS) {
        let server = eventually("a server", || cluster.server_pid());
        kill(Pid::from_raw(server), Signal::SIGKILL).expect("kill");
        progress("writes after the server was killed");
        also();
        progress("writes after its store was killed");
    }
    runtime.block_on(writers.shutdown());
    let list = list();
    let last = list.1.iter().map(revision).max();
    let last = last.expect("something was written");
    eventually("the watchers to see the end", || {
        let promises = promises.lock();
        let ended = promises
            .watchers()
            .filter(|seen| promises.shown(*seen) >= last);
        (ended.count() >= WATCHERS).then_some(())
    });
    runtime.block_on(watchers.shutdown());
    Lived {
        runtime,
        start,
        promises,
        list,
    }
}

impl Lived {
    fn check(&self, happened: &History) {
        let promises = self.promises.lock();
        promises.check(happened);
        // A write whose response was lost may have taken effect after the list.
        let (at, items) = &self.list;
        for item in items {
            let (key, value) = change(item);
            let mut newest_first = happened.range(..=at).rev();
            let newest = newest_first.find_map(|(_, changes)| changes.get(&key));
            assert_eq!(
                newest,
                Some(&value),
                "{key:?} is not as it was last written"
            );
        }
        println!("{}", promises.summary(happened));
    }
}

/// The complete history from the store.
async fn happened(store: &dyn Store, start: u64) -> History {
    let newest = store.revision().await.expect("revision");
    let range = KeyRange::prefix("/registry/configmaps/default/key");
    let mut watch = store.watch(range, start + 1).await.expect("watch");
    let (mut history, mut reached) = (History::new(), start);
    while reached < newest {
        let item = tokio::time::timeout(PATIENCE, watch.next()).await;
        match item.expect("the watch is silent").expect("the watch ended") {
            Ok(WatchItem::Progress { revision }) => reached = revision,
            Ok(WatchItem::Events { revision, events }) => {
                let events = events.iter().map(|event| match event {
                    Event::Put { item, .. } => {
                        let object: Value = serde_json::from_slice(&item.value).expect("JSON");
                        change(&object)
                    }
                    Event::Delete { key, .. } => panic!("nobody deleted {key:?}"),
                });
                history.insert(revision, events.collect());
                reached = revision;
            }
            Err(error) => panic!("the watch failed: {error}"),
        }
    }
    history
}

/// Creates and replaces ConfigMaps, sometimes conditionally on their resource version.
async fn write(client: kube::Client, environment: Environment, promises: Arc<Mutex<Promises>>) {
    let mut known: std::collections::BTreeMap<String, u64> = Default::default();
    loop {
        let key = format!("key{}", environment.random_u64() % KEYS);
        let number = promises.lock().number();
        let value = Promises::value(number, (environment.random_u64() % 30) as usize);
        let text = String::from_utf8_lossy(&value).into_owned();
        let mut object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": key, "labels": {"history": "yes"}}, "data": {"value": text},
        });
        let (method, path) = match known.get(&key) {
            None => (Method::POST, MAPS.to_owned()),
            Some(version) => {
                if environment.random_u64().is_multiple_of(2) {
                    object["metadata"]["resourceVersion"] = version.to_string().into();
                }
                (Method::PUT, format!("{MAPS}/{key}"))
            }
        };
        let changes = Changes::from([(Bytes::from(key.clone()), Some(value))]);
        promises.lock().ask(number, changes);
        match ask(&client, method, &path, Some(object)).await {
            Some((200 | 201, answer)) => {
                let at = revision(&answer);
                promises.lock().acknowledge(number, at);
                known.insert(key, at);
            }
            // It exists already, or was changed meanwhile: read it for the next attempt.
            Some((409, _)) => {
                promises.lock().refuse(number);
                let path = format!("{MAPS}/{key}");
                if let Some((200, found)) = ask(&client, Method::GET, &path, None).await {
                    known.insert(key, revision(&found));
                }
            }
            _ => {
                promises.lock().lose(number);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Lists, watches from the list's resource version, and resumes when the connection ends. It lists
/// again when a restarted server no longer has the resource version.
async fn watch(client: kube::Client, promises: Arc<Mutex<Promises>>) {
    loop {
        let Some((at, items)) = list(&client).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let watcher = {
            let mut promises = promises.lock();
            for key in (0..KEYS).map(|key| format!("key{key}")) {
                let named = |item: &&Value| item["metadata"]["name"] == key;
                let held = items.iter().find(named).map_or(0, revision);
                promises.observe(at, key.into(), held);
            }
            promises.watch(at + 1)
        };
        let mut from = at;
        while follow(&client, from, watcher, &promises).await {
            from = promises.lock().shown(watcher).max(at);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Whether the server still has the resource version.
async fn follow(
    client: &kube::Client,
    from: u64,
    watcher: Watcher,
    promises: &Mutex<Promises>,
) -> bool {
    let path = format!("{MAPS}?watch=1&{SELECTED}&resourceVersion={from}");
    let request = Request::get(path).body(Body::empty()).expect("request");
    let Ok(response) = client.send(request).await else {
        return true;
    };
    if !response.status().is_success() {
        return response.status().as_u16() != 410;
    }
    let mut parts = response.into_body().into_data_stream();
    let mut line = Vec::new();
    while let Some(Ok(part)) = parts.next().await {
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if !line.ends_with(b"\n") {
                continue;
            }
            let event: Value = serde_json::from_slice(&line).expect("an event");
            line.clear();
            let object = &event["object"];
            match event["type"].as_str() {
                Some("ADDED" | "MODIFIED") => {
                    let changes = Changes::from([change(object)]);
                    promises.lock().show(watcher, revision(object), changes);
                }
                Some("ERROR") if object["code"] == 410 => return false,
                _ => panic!("unexpected {event}"),
            }
        }
    }
    true
}

/// The ConfigMaps and the revision at which they were read. `None` without a successful response.
async fn list(client: &kube::Client) -> Option<(u64, Vec<Value>)> {
    let answer = ask(client, Method::GET, &format!("{MAPS}?{SELECTED}"), None).await;
    let (_, list) = answer.filter(|(code, _)| *code == 200)?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Some((revision(&list), items))
}

/// The code and the document of a response. `None` without one.
async fn ask(
    client: &kube::Client,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Option<(u16, Value)> {
    let bytes = body
        .map(|body| body.to_string().into_bytes())
        .unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(bytes))
        .expect("request");
    let response = client.send(request).await.ok()?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.ok()?.to_bytes();
    Some((code, serde_json::from_slice(&bytes).unwrap_or_default()))
}

fn change(object: &Value) -> (Bytes, Option<Bytes>) {
    let text = |value: &Value| Bytes::from(value.as_str().unwrap_or_default().to_owned());
    let key = text(&object["metadata"]["name"]);
    (key, Some(text(&object["data"]["value"])))
}

fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).expect("a revision")
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
