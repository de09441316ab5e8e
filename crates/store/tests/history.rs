//! Crash histories against a model: clients write at random, the power fails at random moments,
//! and what the store holds afterwards must be explainable by what it promised.
//!
//! One thread, paused time, one seed per history: `SEED=n cargo test -p store --test history`
//! repeats a failure, `SEEDS=n` runs more of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use environment::Environment;
use futures::{FutureExt, StreamExt};
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options, Window};
use store::{
    Compare, Error, Event, KeyRange, KeyValue, Operation, RangeRequest, Revision, Store,
    Transaction, TransactionResult, WatchItem,
};

const KEYS: u64 = 12;
const CLIENTS: usize = 5;
const LIVES: usize = 6;

/// A change without what the store adds to it: the value, or `None` for a deletion.
type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// What clients and watchers were told, across all lives of the store.
#[derive(Default)]
struct Promises {
    /// Every transaction ever asked for, by the number its values carry.
    asked: BTreeMap<u64, Changes>,
    acknowledged: BTreeMap<Revision, u64>,
    /// Transactions that certainly did not happen.
    refused: BTreeSet<u64>,
    /// Everything any watcher was shown.
    watched: BTreeMap<Revision, Changes>,
    /// Conditions that failed: at this revision the key had that mod revision.
    observed: Vec<(Revision, Bytes, Revision)>,
    next: u64,
}

#[test]
fn acknowledged_writes_survive_whatever_crashes_when() {
    let seeds: Vec<u64> = match number("SEED") {
        Some(seed) => vec![seed],
        None => (0..number("SEEDS").unwrap_or(150)).collect(),
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        if let Err(panic) = outcome {
            eprintln!("SEED={seed} reproduces this");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_seed_fixes_the_history() {
    assert_eq!(run(42), run(42));
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs one history and returns its final model.
fn run(seed: u64) -> BTreeMap<Revision, Changes> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("runtime");
    runtime.block_on(history(seed))
}

async fn history(seed: u64) -> BTreeMap<Revision, Changes> {
    let environment = Environment::simulated(seed, 0);
    let disk = SimulatedDisk::new(seed).slow_syncs(Duration::from_micros(500));
    let promises = Arc::new(Mutex::new(Promises::default()));
    let mut model = BTreeMap::new();
    for _ in 0..LIVES {
        let store = open(&disk, &environment).await;
        check(&store, &mut model, &promises).await;
        live(&store, &disk, &environment, &promises).await;
        drop(store);
        match environment.random_u64() % 3 {
            0 => disk.kill(),
            _ => disk.crash(),
        }
    }
    let store = open(&disk, &environment).await;
    check(&store, &mut model, &promises).await;
    model
}

async fn open(disk: &SimulatedDisk, environment: &Environment) -> Arc<Embedded> {
    let options = Options {
        checkpoint_bytes: 1_500,
        history: Window {
            revisions: 100_000,
            bytes: 100 << 20,
        },
        queue: 3,
        batch_bytes: 300,
    };
    // A crash while recovering must not hurt either.
    if environment.random_u64().is_multiple_of(3) {
        let opening = Embedded::open(disk.mount(), environment.clone(), options);
        let patience = Duration::from_micros(environment.random_u64() % 1500);
        drop(tokio::time::timeout(patience, opening).await);
        disk.crash();
    }
    Embedded::open(disk.mount(), environment.clone(), options)
        .await
        .expect("a crash never makes a store unreadable")
}

/// Clients and a watcher at work for a random time; some lives end with a failing sync.
async fn live(
    store: &Arc<Embedded>,
    disk: &SimulatedDisk,
    environment: &Environment,
    promises: &Arc<Mutex<Promises>>,
) {
    if environment.random_u64().is_multiple_of(4) {
        disk.fail_sync_after((environment.random_u64() % 20) as u32);
    }
    let mut tasks = tokio::task::JoinSet::new();
    let from = store.revision().await.expect("revision") + 1;
    let watch = store
        .watch(KeyRange::prefix(""), from)
        .await
        .expect("watch");
    tasks.spawn(follow(watch, promises.clone()));
    for _ in 0..CLIENTS {
        tasks.spawn(client(store.clone(), environment.clone(), promises.clone()));
    }
    tokio::time::sleep(Duration::from_micros(environment.random_u64() % 20_000)).await;
    tasks.shutdown().await;
}

async fn follow(mut watch: store::WatchStream, promises: Arc<Mutex<Promises>>) {
    let mut last = 0;
    while let Some(Ok(item)) = watch.next().await {
        if let WatchItem::Events { revision, events } = item {
            assert!(revision > last, "revisions strictly increase");
            last = revision;
            let changes = events.iter().map(change).collect();
            promises
                .lock()
                .expect("lock")
                .watched
                .insert(revision, changes);
        }
    }
}

async fn client(store: Arc<Embedded>, environment: Environment, promises: Arc<Mutex<Promises>>) {
    let mut known: BTreeMap<Bytes, Revision> = BTreeMap::new();
    loop {
        let mut transaction = Transaction::default();
        let number = {
            let mut promises = promises.lock().expect("lock");
            promises.next += 1;
            promises.next
        };
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
            if environment.random_u64().is_multiple_of(5) {
                changes.insert(key.clone(), None);
                transaction.then.push(Operation::Delete { key });
            } else {
                let padding = "x".repeat((environment.random_u64() % 80) as usize);
                let value = Bytes::from(format!("{number}:{padding}"));
                changes.insert(key.clone(), Some(value.clone()));
                transaction.then.push(Operation::Put {
                    key,
                    value,
                    lease: None,
                });
            }
        }
        // A transaction that only deletes could not be recognised in the history.
        if changes.values().all(Option::is_none) {
            continue;
        }
        promises
            .lock()
            .expect("lock")
            .asked
            .insert(number, changes.clone());
        let compared: Vec<Bytes> = transaction
            .compare
            .iter()
            .map(|Compare::ModRevision { key, .. }| key.clone())
            .collect();
        let result = store.transact(transaction).await;
        let mut promises = promises.lock().expect("lock");
        match result {
            Ok(TransactionResult::Committed { revision, .. }) => {
                let twice = promises.acknowledged.insert(revision, number);
                assert_eq!(twice, None, "a revision is given once");
                for (key, value) in changes {
                    known.insert(key, if value.is_some() { revision } else { 0 });
                }
            }
            Ok(TransactionResult::Failed { revision, current }) => {
                promises.refused.insert(number);
                for (key, current) in compared.into_iter().zip(current) {
                    let at = current.map_or(0, |item| item.mod_revision);
                    known.insert(key.clone(), at);
                    promises.observed.push((revision, key, at));
                }
            }
            Err(Error::Closed(_)) => return,
            Err(error) => panic!("unexpected {error}"),
        }
    }
}

/// Reads the whole history after a restart and holds it against the promises.
async fn check(
    store: &Arc<Embedded>,
    model: &mut BTreeMap<Revision, Changes>,
    promises: &Arc<Mutex<Promises>>,
) {
    let newest = store.revision().await.expect("revision");
    let mut watch = store.watch(KeyRange::prefix(""), 1).await.expect("watch");
    let mut history = BTreeMap::new();
    let mut state: BTreeMap<Bytes, KeyValue> = BTreeMap::new();
    let mut states = vec![(1, state.clone())];
    while let Some(Some(item)) = watch.next().now_or_never() {
        if let WatchItem::Events { revision, events } = item.expect("history") {
            assert_eq!(
                revision,
                states.last().map_or(1, |(at, _)| *at) + 1,
                "a gap"
            );
            for event in &events {
                replay(&mut state, event);
            }
            history.insert(revision, events.iter().map(change).collect::<Changes>());
            states.push((revision, state.clone()));
        }
    }
    assert_eq!(states.last().map(|(at, _)| *at), Some(newest));
    for (revision, expected) in model.iter() {
        assert_eq!(
            history.get(revision),
            Some(expected),
            "{revision} was rewritten"
        );
    }

    for (revision, state) in states.iter().step_by(7).chain(states.last()) {
        let request = RangeRequest {
            range: KeyRange::prefix("key"),
            revision: Some(*revision),
            limit: 0,
        };
        let items = store.range(request).await.expect("range").items;
        assert!(items.iter().eq(state.values()), "range at {revision}");
    }

    let promises = promises.lock().expect("lock");
    for (revision, changes) in &promises.watched {
        assert_eq!(
            history.get(revision),
            Some(changes),
            "{revision} was watched, then lost"
        );
    }
    for (revision, number) in &promises.acknowledged {
        let found = history.get(revision).and_then(written_by);
        assert_eq!(
            found,
            Some(*number),
            "acknowledged revision {revision} is lost"
        );
    }
    let mut seen = BTreeSet::new();
    let mut before = &states[0].1;
    for (revision, changes) in &history {
        let number = written_by(changes).expect("every revision holds a number");
        assert!(seen.insert(number), "transaction {number} happened twice");
        assert!(!promises.refused.contains(&number), "{number} was refused");
        // Atomic: all it asked for, less deletions of absent keys.
        let mut asked = promises.asked[&number].clone();
        asked.retain(|key, value| value.is_some() || before.contains_key(key));
        assert_eq!(
            changes, &asked,
            "transaction {number} at {revision} is torn"
        );
        before = &states[(*revision - 1) as usize].1;
    }
    for (revision, key, at) in &promises.observed {
        let held = states[(*revision - 1) as usize].1.get(key);
        assert_eq!(
            held.map_or(0, |item| item.mod_revision),
            *at,
            "read of {revision}"
        );
    }
    *model = history;
}

fn replay(state: &mut BTreeMap<Bytes, KeyValue>, event: &Event) {
    match event {
        Event::Put { item, previous } => {
            let old = state.insert(item.key.clone(), item.clone());
            assert_eq!(&old, previous);
            let (created, version) = old.map_or((item.mod_revision, 0), |old| {
                (old.create_revision, old.version)
            });
            assert_eq!((item.create_revision, item.version), (created, version + 1));
        }
        Event::Delete { key, previous, .. } => {
            assert_eq!(&state.remove(key), previous);
            assert!(previous.is_some());
        }
    }
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
    let text = std::str::from_utf8(value).ok()?;
    text.split(':').next()?.parse().ok()
}
