//! Concurrent writers and a watcher while etcd is killed and started again: afterwards etcd's
//! history must be explainable by what clients and watchers saw (`crate::promises`).
//!
//! `SEED=n` chooses what the clients do, `ROUNDS=n` how often members are killed; the moments of the
//! kills are the machine's.

use std::time::Duration;

use environment::Environment;
use parking_lot::Mutex;

use super::members::Members;
use super::*;
use crate::promises::{Client, Promises, follow, read_history, write_at_random};

const CLIENT: Client = Client {
    keys: 10,
    longest_padding: 20,
};
const CLIENTS: usize = 6;
const ROUNDS: u64 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_and_watches_survive_kills_of_one_member() {
    history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_and_watches_survive_kills_among_three_members() {
    history(3).await;
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

async fn history(count: usize) {
    let environment = Environment::simulated(number("SEED").unwrap_or(7), 0);
    let mut members = Members::start(count).await;
    let store = Etcd::connect(members.options()).await.expect("connect");
    let start = store.revision().await.expect("revision");
    let promises = Arc::new(Mutex::new(Promises::default()));
    let watch = store.watch(KeyRange::prefix(""), start + 1).await;
    let watcher = promises.lock().watch(start + 1);
    let mut writers = JoinSet::new();
    let mut watchers = JoinSet::new();
    watchers.spawn(follow(watch.expect("watch"), watcher, promises.clone()));
    for _ in 0..CLIENTS {
        let (store, environment) = (store.clone(), environment.clone());
        writers.spawn(write_at_random(
            store,
            environment,
            promises.clone(),
            CLIENT,
        ));
    }
    for round in 0..number("ROUNDS").unwrap_or(ROUNDS) as usize {
        progress(&promises).await;
        members.kill(round % count);
        members.restart(round % count);
    }
    progress(&promises).await;
    writers.shutdown().await;
    let last = loop {
        match store.revision().await {
            Ok(revision) => break revision,
            Err(Error::Unavailable(_)) => {}
            Err(error) => panic!("unexpected {error}"),
        }
    };
    until(&promises, |promises| promises.shown(watcher) >= last).await;
    watchers.shutdown().await;
    let fresh = Etcd::connect(members.options()).await.expect("connect");
    let history = read_history(&*fresh, start).await;
    let promises = promises.lock();
    promises.check(&history);
    println!("{}", promises.summary(&history));
}

/// Waits for 50 more acknowledged writes.
async fn progress(promises: &Mutex<Promises>) {
    let enough = promises.lock().acknowledged() + 50;
    until(promises, |promises| promises.acknowledged() >= enough).await;
}

async fn until(promises: &Mutex<Promises>, done: impl Fn(&Promises) -> bool) {
    let waiting = async {
        while !done(&promises.lock()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let limit = Duration::from_secs(120);
    tokio::time::timeout(limit, waiting)
        .await
        .expect("no progress");
}
