//! The embedded engine's own behaviour: the contract on both disks, group commit, failed syncs,
//! checkpoints, bounds and damaged files. Crash histories are in `tests/history.rs`.

mod formats;
mod snapshots;

use std::sync::Arc;
use std::time::Duration;

use environment::Environment;
use futures::StreamExt;

use super::*;
use crate::Operation;
use crate::contract::{check_all, put, unconditionally};
use crate::disk::{RealDisk, SimulatedDisk};

fn small() -> Options {
    Options {
        checkpoint_bytes: 2_000,
        history: Window {
            revisions: 8,
            bytes: 1 << 20,
        },
        ..Options::default()
    }
}

async fn open(disk: &SimulatedDisk, options: Options) -> Result<Arc<Embedded>, Error> {
    Embedded::open(disk.mount(), Environment::simulated(1, 0), options).await
}

async fn write(store: &Embedded, key: &str, value: &str) -> Result<Revision, Error> {
    let result = store
        .transact(unconditionally(vec![put(key, value)]))
        .await?;
    match result {
        TransactionResult::Committed { revision, .. } => Ok(revision),
        TransactionResult::Failed { .. } => unreachable!("unconditional"),
    }
}

async fn count(store: &Embedded) -> usize {
    let request = RangeRequest {
        range: KeyRange::prefix(""),
        revision: None,
        limit: 1,
    };
    store.range(request).await.expect("range").count
}

#[tokio::test(start_paused = true)]
async fn the_contract_holds_on_the_simulated_disk() {
    check_all(|| async {
        let disk = SimulatedDisk::new(3).slow_syncs(Duration::from_millis(2));
        open(&disk, Options::default()).await.expect("open") as Arc<dyn Store>
    })
    .await;
}

#[tokio::test]
async fn the_contract_holds_on_a_real_disk() {
    let parent = tempfile::tempdir().expect("temporary directory");
    let number = std::cell::Cell::new(0);
    check_all(|| {
        number.set(number.get() + 1);
        let directory = parent.path().join(number.get().to_string());
        async move {
            let disk = RealDisk::new(directory).expect("disk");
            Embedded::open(Arc::new(disk), Environment::system(), Options::default())
                .await
                .expect("open") as Arc<dyn Store>
        }
    })
    .await;
}

#[tokio::test]
async fn a_real_directory_is_locked_and_survives_reopening() {
    let parent = tempfile::tempdir().expect("temporary directory");
    let directory = parent.path().join("store");
    let open = || async {
        let disk = RealDisk::new(&directory).map_err(|error| error.kind())?;
        Ok::<_, std::io::ErrorKind>(
            Embedded::open(Arc::new(disk), Environment::system(), small())
                .await
                .expect("open"),
        )
    };
    let store = open().await.expect("first");
    assert_eq!(
        open().await.err(),
        Some(std::io::ErrorKind::ResourceBusy),
        "the second opener is refused"
    );
    for number in 0..100 {
        write(&store, &format!("key{number}"), "some value")
            .await
            .expect("write");
    }
    store.close().await.expect("close");
    assert!(matches!(
        write(&store, "a", "1").await,
        Err(Error::Closed(_))
    ));
    assert!(store.counters().checkpoints > 0);
    let store = open().await.expect("closing has let go of the directory");
    assert_eq!(count(&store).await, 100);
    assert_eq!(store.revision().await.expect("revision"), 101);
}

#[tokio::test(start_paused = true)]
async fn concurrent_writers_share_a_sync() {
    let disk = SimulatedDisk::new(5).slow_syncs(Duration::from_millis(2));
    let store = open(&disk, Options::default()).await.expect("open");
    let before = store.counters();
    let writers: Vec<_> = (0..64)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { write(&store, &format!("{number}"), "v").await })
        })
        .collect();
    for writer in writers {
        writer.await.expect("task").expect("write");
    }
    let after = store.counters();
    assert_eq!(after.transactions - before.transactions, 64);
    assert!(after.fsyncs - before.fsyncs <= 2, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_sync_closes_the_store_for_good() {
    let disk = SimulatedDisk::new(7);
    let store = open(&disk, Options::default()).await.expect("open");
    let revision = write(&store, "a", "1").await.expect("write");
    let mut watch = store
        .watch(KeyRange::prefix(""), revision + 1)
        .await
        .expect("watch");
    disk.fail_sync_after(0);
    assert!(matches!(
        write(&store, "a", "2").await,
        Err(Error::Closed(_))
    ));
    assert!(matches!(
        write(&store, "a", "3").await,
        Err(Error::Closed(_))
    ));
    assert!(matches!(store.revision().await, Err(Error::Closed(_))));
    assert!(matches!(store.grant_lease(1).await, Err(Error::Closed(_))));
    assert!(matches!(watch.next().await, Some(Err(Error::Closed(_)))));
    assert!(store.closed().await.contains("injected"));
    disk.crash();
    let store = open(&disk, Options::default()).await.expect("open again");
    assert!(store.revision().await.expect("revision") >= revision);
}

#[tokio::test(start_paused = true)]
async fn checkpoints_replace_logs_and_keep_the_history_window() {
    let disk = SimulatedDisk::new(11).slow_syncs(Duration::from_micros(100));
    let store = open(&disk, small()).await.expect("open");
    for number in 0..300 {
        write(&store, &format!("key{}", number % 20), "value")
            .await
            .expect("write");
    }
    store.close().await.expect("close");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(store.counters().checkpoints > 1, "{:?}", store.counters());
    assert!(disk.names().len() <= 3, "{:?}", disk.names());
    disk.crash();

    let store = open(&disk, small()).await.expect("open");
    let newest = store.revision().await.expect("revision");
    assert_eq!((newest, count(&store).await), (301, 20));
    let mut watch = store
        .watch(KeyRange::prefix(""), newest - 7)
        .await
        .expect("the window survives a restart");
    for revision in newest - 7..=newest {
        match watch.next().await {
            Some(Ok(crate::WatchItem::Events { revision: at, .. })) => assert_eq!(at, revision),
            other => panic!("unexpected {other:?}"),
        }
    }
    assert!(matches!(
        store.watch(KeyRange::prefix(""), newest - 8).await,
        Err(Error::Compacted { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_slow_watcher_is_cut_off_and_delays_no_other() {
    let disk = SimulatedDisk::new(13);
    let store = open(&disk, small()).await.expect("open");
    let mut slow = store.watch(KeyRange::prefix(""), 2).await.expect("watch");
    for number in 0..50 {
        write(&store, "key", &number.to_string())
            .await
            .expect("write");
    }
    assert!(matches!(slow.next().await, Some(Err(Error::SlowWatcher))));
    assert!(slow.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn leases_survive_a_restart_with_their_full_time() {
    let disk = SimulatedDisk::new(17);
    let store = open(&disk, small()).await.expect("open");
    let lease = store.grant_lease(10).await.expect("grant");
    let leased = Operation::Put {
        key: "leased".into(),
        value: "v".into(),
        lease: Some(lease),
    };
    store
        .transact(unconditionally(vec![leased]))
        .await
        .expect("put");
    tokio::time::sleep(Duration::from_secs(9)).await;
    disk.crash();
    let store = open(&disk, small()).await.expect("open");
    tokio::time::sleep(Duration::from_secs(9)).await;
    store.keep_lease_alive(lease).await.expect("still there");
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(count(&store).await, 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(count(&store).await, 0, "expired");
    disk.crash();
    let store = open(&disk, small()).await.expect("open");
    assert_eq!(count(&store).await, 0, "the expiry is durable");
    assert!(matches!(
        store.keep_lease_alive(lease).await,
        Err(Error::LeaseNotFound(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn damaged_files_are_reported_and_never_repaired_silently() {
    let disk = SimulatedDisk::new(19);
    let store = open(&disk, Options::default()).await.expect("open");
    for number in 0..5 {
        write(&store, "key", &number.to_string())
            .await
            .expect("write");
    }
    store.close().await.expect("close");
    disk.kill();
    let log = disk.names().remove(0);
    let length = disk.contents(&log).expect("log").len();

    disk.flip_bit(&log, length / 2).expect("flip");
    let error = open(&disk, Options::default()).await.err().expect("damage");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    disk.flip_bit(&log, length / 2).expect("flip back");

    let mut newer = disk.contents(&log).expect("log");
    newer[8] += 1;
    let whole = disk.contents(&log).expect("log");
    disk.overwrite(&log, newer);
    let error = open(&disk, Options::default()).await.err().expect("newer");
    assert!(matches!(error, Error::NewerFormat { .. }), "{error}");

    disk.overwrite(&log, whole[..length - 3].to_vec());
    let store = open(&disk, Options::default()).await.expect("torn tail");
    assert_eq!(store.revision().await.expect("revision"), 5);
    assert_eq!(write(&store, "key", "after").await.expect("write"), 6);
}
