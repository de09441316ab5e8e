//! Crash histories against a model: clients write at random, the power fails at random moments,
//! and what the store holds afterwards must be explainable by what it promised (`store::promises`).
//!
//! One thread, paused time, one seed per history: `SEED=n cargo test -p store --test history`
//! repeats a failure, `SEEDS=n` runs more of them.

use std::sync::Arc;
use std::time::Duration;

use environment::Environment;
use parking_lot::Mutex;
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options, Window};
use store::promises::{Client, History, Promises, follow, read_history, write_at_random};
use store::{KeyRange, Store};

const CLIENT: Client = Client {
    keys: 12,
    longest_padding: 80,
};
const CLIENTS: usize = 5;
const LIVES: usize = 6;
/// The revision of an empty store.
const START: u64 = 1;

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

/// Runs one history and returns what happened in it.
fn run(seed: u64) -> History {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("runtime");
    runtime.block_on(history(seed))
}

async fn history(seed: u64) -> History {
    let environment = Environment::simulated(seed, 0);
    let disk = SimulatedDisk::new(seed).slow_syncs(Duration::from_micros(500));
    let promises = Arc::new(Mutex::new(Promises::default()));
    let mut known = History::new();
    for _ in 0..LIVES {
        let store = open(&disk, &environment).await;
        known = check(&*store, known, &promises).await;
        live(&store, &disk, &environment, &promises).await;
        drop(store);
        match environment.random_u64() % 3 {
            0 => disk.kill(),
            _ => disk.crash(),
        }
    }
    let store = open(&disk, &environment).await;
    check(&*store, known, &promises).await
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
    let watcher = promises.lock().watch(from);
    tasks.spawn(follow(watch, watcher, promises.clone()));
    for _ in 0..CLIENTS {
        let (store, environment) = (store.clone(), environment.clone());
        tasks.spawn(write_at_random(
            store,
            environment,
            promises.clone(),
            CLIENT,
        ));
    }
    tokio::time::sleep(Duration::from_micros(environment.random_u64() % 20_000)).await;
    tasks.shutdown().await;
}

/// Holds the store after a restart against the promises and against what it said before.
async fn check(store: &dyn Store, known: History, promises: &Mutex<Promises>) -> History {
    let history = read_history(store, START).await;
    for (revision, changes) in &known {
        let found = history.get(revision);
        assert_eq!(found, Some(changes), "{revision} was rewritten");
    }
    promises.lock().check(&history);
    history
}
