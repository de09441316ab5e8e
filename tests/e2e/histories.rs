//! Histories through the API: writers and watchers at work while the server, and its etcd, are killed
//! with `kill -9`. What happened must be explainable by what they were told (`store::promises`).
//!
//! `SEED=n` chooses what the writers do, `ROUNDS=n` how often something is killed.

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
use store::promises::{Changes, Promises, Watcher};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, eventually};
use crate::etcd::Etcd;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SELECTED: &str = "labelSelector=history%3Dyes";
const WRITERS: usize = 4;
const WATCHERS: usize = 2;
const KEYS: u64 = 8;
const ROUNDS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_killed_server_keeps_its_promises() {
    let cluster = Cluster::prepared();
    cluster.up(&["--disable", "scheduler,node,proxy,dns"]);
    history(&cluster, || {});
}

#[test]
fn a_killed_server_and_a_killed_etcd_keep_their_promises() {
    let mut etcd = Etcd::start(1);
    let cluster = Cluster::prepared();
    cluster.up(&[
        "--disable",
        "scheduler,node,proxy,dns",
        "--store",
        "etcd",
        "--etcd-servers",
        &etcd.endpoints(),
    ]);
    history(&cluster, || {
        etcd.kill(0);
        etcd.restart(0);
    });
}

/// Kills the server and then, by `also`, what it stands on, in every round.
fn history(cluster: &Cluster, mut also: impl FnMut()) {
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
    let all = format!("{MAPS}?{SELECTED}");
    let (_, list) = runtime
        .block_on(ask(&client, Method::GET, &all, None))
        .expect("list");
    let start = revision(&list);

    let (mut writers, mut watchers) = (JoinSet::new(), JoinSet::new());
    let _entered = runtime.enter();
    for _ in 0..WATCHERS {
        watchers.spawn(watch(client.clone(), start, promises.clone()));
    }
    for _ in 0..WRITERS {
        writers.spawn(write(client.clone(), environment.clone(), promises.clone()));
    }
    let progress = |what: &str| {
        let enough = promises.lock().acknowledged() + 40;
        eventually(what, PATIENCE, || {
            (promises.lock().acknowledged() >= enough).then_some(())
        });
    };
    progress("the first writes");
    for _ in 0..number("ROUNDS").unwrap_or(ROUNDS) {
        let server = eventually("a server", PATIENCE, || cluster.server_pid());
        kill(Pid::from_raw(server), Signal::SIGKILL).expect("kill");
        progress("writes after the server was killed");
        also();
        progress("writes after its store was killed");
    }
    runtime.block_on(writers.shutdown());

    // All that happened, by one fresh watch from the beginning.
    let (_, list) = eventually("the list", PATIENCE, || {
        let list = ask(&client, Method::GET, &all, None);
        runtime.block_on(list).filter(|(code, _)| *code == 200)
    });
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let last = items
        .iter()
        .map(revision)
        .max()
        .expect("something was written");
    let truth = Arc::new(Mutex::new(Promises::default()));
    let everything = truth.lock().watch(start + 1);
    let reading = runtime.spawn(follow(client.clone(), start, everything, truth.clone()));
    eventually("all of the history", PATIENCE, || {
        (truth.lock().shown(everything) >= last).then_some(())
    });
    reading.abort();
    let happened = truth.lock().seen(everything).clone();
    eventually("the watchers to see the end", PATIENCE, || {
        let promises = promises.lock();
        let all = promises.watchers().all(|seen| promises.shown(seen) >= last);
        all.then_some(())
    });
    runtime.block_on(watchers.shutdown());

    let promises = promises.lock();
    promises.check(&happened);
    for item in &items {
        let (key, value) = change(item);
        let newest = happened
            .values()
            .rev()
            .find_map(|changes| changes.get(&key));
        assert_eq!(
            newest,
            Some(&value),
            "{key:?} is not as it was last written"
        );
    }
    println!("{}", promises.summary(&happened));
}

/// Creates and replaces ConfigMaps, sometimes on condition that nobody else did.
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
            // It exists already, or was changed meanwhile: read it for the next try.
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

/// Watches from `start` on, and again from where it was when the connection ends.
async fn watch(client: kube::Client, start: u64, promises: Arc<Mutex<Promises>>) {
    let watcher = promises.lock().watch(start + 1);
    follow(client, start, watcher, promises).await;
}

async fn follow(
    client: kube::Client,
    start: u64,
    watcher: Watcher,
    promises: Arc<Mutex<Promises>>,
) {
    loop {
        let from = promises.lock().shown(watcher).max(start);
        let path = format!("{MAPS}?watch=1&{SELECTED}&resourceVersion={from}");
        let request = Request::get(path).body(Body::empty()).expect("request");
        if let Ok(response) = client.send(request).await
            && response.status().is_success()
        {
            let mut parts = response.into_body().into_data_stream();
            let mut line = Vec::new();
            while let Some(Ok(part)) = parts.next().await {
                for piece in part.split_inclusive(|byte| *byte == b'\n') {
                    line.extend_from_slice(piece);
                    if line.ends_with(b"\n") {
                        let event: Value = serde_json::from_slice(&line).expect("an event");
                        let kind = event["type"].as_str().unwrap_or_default();
                        assert!(matches!(kind, "ADDED" | "MODIFIED"), "{event}");
                        let object = &event["object"];
                        let changes = Changes::from([change(object)]);
                        promises.lock().show(watcher, revision(object), changes);
                        line.clear();
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The code and the document of an answer; `None` when there was none.
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
