//! Concurrent writers and a watcher while etcd is killed and started again: afterwards etcd's
//! history must be explainable by what clients and watchers were told.
//!
//! `SEED=n` chooses what the clients do; the moments of the kills are the machine's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use environment::Environment;
use parking_lot::Mutex;

use super::members::Members;
use super::*;
use crate::{Compare, Operation};

const KEYS: u64 = 10;
const CLIENTS: usize = 6;
const KILLS: usize = 4;

/// A change without what the store adds to it: the value, or `None` for a deletion.
type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// What clients and watchers were told.
#[derive(Default)]
struct Promises {
    next: u64,
    acknowledged: BTreeMap<Revision, u64>,
    /// Surely not done: a condition failed, or etcd was not available.
    not_done: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
    watched: BTreeMap<Revision, Changes>,
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_and_watches_survive_kills_of_one_member() {
    history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_and_watches_survive_kills_among_three_members() {
    history(3).await;
}

async fn history(count: usize) {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let environment = Environment::simulated(seed.unwrap_or(7), 0);
    let mut members = Members::start(count).await;
    let store = Etcd::connect(members.options()).await.expect("connect");
    let start = store.revision().await.expect("revision");
    let promises = Arc::new(Mutex::new(Promises::default()));
    let watch = store
        .watch(KeyRange::prefix(""), start + 1)
        .await
        .expect("watch");
    let mut tasks = JoinSet::new();
    tasks.spawn(follow(watch, promises.clone()));
    for _ in 0..CLIENTS {
        tasks.spawn(client(store.clone(), environment.clone(), promises.clone()));
    }
    for kill in 0..KILLS {
        let before = promises.lock().acknowledged.len();
        progress(&promises, before + 50).await;
        members.kill(kill % count);
        members.restart(kill % count);
    }
    let before = promises.lock().acknowledged.len();
    progress(&promises, before + 50).await;
    // The watcher ends by itself once it has seen what is there when the clients have ended.
    let last = loop {
        match store.revision().await {
            Ok(revision) => break revision,
            Err(Error::Unavailable(_)) => {}
            Err(error) => panic!("unexpected {error}"),
        }
    };
    until(&promises, |promises| {
        promises
            .watched
            .last_key_value()
            .is_some_and(|(seen, _)| *seen >= last)
    })
    .await;
    tasks.shutdown().await;
    let fresh = Etcd::connect(members.options()).await.expect("connect");
    let told = std::mem::take(&mut *promises.lock());
    check(&fresh, start, &told).await;
}

async fn progress(promises: &Mutex<Promises>, acknowledged: usize) {
    until(promises, |promises| {
        promises.acknowledged.len() >= acknowledged
    })
    .await;
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

async fn follow(mut watch: WatchStream, promises: Arc<Mutex<Promises>>) {
    let mut last = 0;
    while let Some(item) = watch.next().await {
        if let WatchItem::Events { revision, events } = item.expect("the watch failed") {
            assert!(revision > last, "revisions strictly increase");
            last = revision;
            let changes = events.iter().map(change).collect();
            promises.lock().watched.insert(revision, changes);
        }
    }
}

async fn client(store: Arc<Etcd>, environment: Environment, promises: Arc<Mutex<Promises>>) {
    let mut known: BTreeMap<Bytes, Revision> = BTreeMap::new();
    loop {
        let number = {
            let mut promises = promises.lock();
            promises.next += 1;
            promises.next
        };
        let mut transaction = Transaction::default();
        let mut changes = Changes::new();
        for _ in 0..1 + environment.random_u64() % 3 {
            let key = Bytes::from(format!("key{}", environment.random_u64() % KEYS));
            if changes.contains_key(&key) {
                continue;
            }
            if environment.random_u64().is_multiple_of(3) {
                let revision = known.get(&key).copied().unwrap_or(0);
                let key = key.clone();
                transaction
                    .compare
                    .push(Compare::ModRevision { key, revision });
            }
            // The first change is always a put: it carries the number.
            if !changes.is_empty() && environment.random_u64().is_multiple_of(3) {
                changes.insert(key.clone(), None);
                transaction.then.push(Operation::Delete { key });
            } else {
                let value = Bytes::from(number.to_string());
                changes.insert(key.clone(), Some(value.clone()));
                let lease = None;
                transaction.then.push(Operation::Put { key, value, lease });
            }
        }
        let compared = transaction.compare.clone();
        let result = store.transact(transaction).await;
        let mut promises = promises.lock();
        match result {
            Ok(TransactionResult::Committed { revision, .. }) => {
                let twice = promises.acknowledged.insert(revision, number);
                assert_eq!(twice, None, "a revision is given once");
                for (key, value) in changes {
                    known.insert(key, if value.is_some() { revision } else { 0 });
                }
            }
            Ok(TransactionResult::Failed { current, .. }) => {
                promises.not_done.insert(number);
                for (Compare::ModRevision { key, .. }, current) in compared.into_iter().zip(current)
                {
                    known.insert(key, current.map_or(0, |item| item.mod_revision));
                }
            }
            Err(Error::Unavailable(_)) => {
                promises.not_done.insert(number);
            }
            Err(Error::OutcomeUnknown(_)) => {
                promises.unknown.insert(number);
            }
            Err(error) => panic!("unexpected {error}"),
        }
    }
}

/// Reads etcd's whole history by a watch from its beginning and holds it against the promises.
async fn check(store: &Etcd, start: Revision, promises: &Promises) {
    let newest = store.revision().await.expect("revision");
    let mut watch = store
        .watch(KeyRange::prefix(""), start + 1)
        .await
        .expect("watch");
    let mut history: BTreeMap<Revision, Changes> = BTreeMap::new();
    while history
        .last_key_value()
        .is_none_or(|(last, _)| *last < newest)
    {
        if let WatchItem::Events { revision, events } = item(&mut watch).await {
            let expected = history.last_key_value().map_or(start, |(last, _)| *last) + 1;
            assert_eq!(revision, expected, "a gap or a repetition");
            history.insert(revision, events.iter().map(change).collect());
        }
    }
    let end = promises
        .watched
        .last_key_value()
        .map_or(start, |(last, _)| *last);
    let watched: Vec<_> = promises.watched.iter().collect();
    let happened: Vec<_> = history.range(..=end).collect();
    assert_eq!(watched, happened, "the watcher saw something else");
    for (revision, number) in &promises.acknowledged {
        let found = history.get(revision).and_then(written_by);
        assert_eq!(found, Some(*number), "acknowledged {revision} is lost");
    }
    let acknowledged: BTreeSet<u64> = promises.acknowledged.values().copied().collect();
    let mut seen = BTreeSet::new();
    for changes in history.values() {
        let number = written_by(changes).expect("every revision holds a number");
        assert!(seen.insert(number), "transaction {number} happened twice");
        assert!(!promises.not_done.contains(&number), "{number} was refused");
    }
    let silent = seen.difference(&acknowledged).count();
    println!(
        "{} acknowledged, {} surely not done, {} unknown, {silent} of them or interrupted ones done",
        acknowledged.len(),
        promises.not_done.len(),
        promises.unknown.len(),
    );
}

fn change(event: &Event) -> (Bytes, Option<Bytes>) {
    match event {
        Event::Put { item, .. } => (item.key.clone(), Some(item.value.clone())),
        Event::Delete { key, .. } => (key.clone(), None),
    }
}

/// The number of the transaction that made these changes.
fn written_by(changes: &Changes) -> Option<u64> {
    let value = changes.values().flatten().next()?;
    std::str::from_utf8(value).ok()?.parse().ok()
}
