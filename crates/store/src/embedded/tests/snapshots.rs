//! Snapshots: taken while writers are at work, whole or refused, and restored so that revisions go on
//! and watchers begin anew.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use super::*;
use crate::KeyValue;

const BUMP: Revision = 1_000_000;

async fn collect(store: &Embedded) -> Vec<u8> {
    let mut parts = store.snapshot().await.expect("snapshot");
    let mut bytes = Vec::new();
    while let Some(part) = parts.next().await {
        bytes.extend_from_slice(&part.expect("part"));
        // Whoever keeps it is slow.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bytes
}

async fn items(store: &Embedded, revision: Option<Revision>) -> Vec<KeyValue> {
    let request = RangeRequest {
        range: KeyRange::prefix(""),
        revision,
        limit: 0,
    };
    store.range(request).await.expect("range").items
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_under_load_holds_all_that_was_acknowledged() {
    let disk = SimulatedDisk::new(23).slow_syncs(Duration::from_micros(200));
    let store = open(&disk, Options::default()).await.expect("open");
    let lease = store.grant_lease(60).await.expect("grant");
    let leased = Operation::Put {
        key: "leased".into(),
        value: "v".into(),
        lease: Some(lease),
    };
    let put = unconditionally(vec![leased]);
    store.transact(put).await.expect("put");
    let acknowledged = Arc::new(Mutex::new(BTreeMap::<Bytes, Revision>::new()));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (store, acknowledged) = (store.clone(), acknowledged.clone());
        writers.spawn(async move {
            for number in 0.. {
                let key = format!("key-{writer}-{}", number % 500);
                let value = "x".repeat(200 + number % 50);
                match write(&store, &key, &value).await {
                    Ok(revision) => acknowledged.lock().insert(key.into(), revision),
                    Err(_) => return,
                };
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    let before = acknowledged.lock().clone();
    let bytes = collect(&store).await;
    let grown = acknowledged.lock().values().max() > before.values().max();
    assert!(grown, "writers went on meanwhile");
    writers.shutdown().await;

    let contents = verify("f", &bytes).expect("whole");
    assert!(Some(&contents.revision) >= before.values().max());
    let restored = SimulatedDisk::new(29);
    let environment = Environment::simulated(2, 0);
    let made = restore(restored.mount(), &environment, "f", &bytes, BUMP).await;
    let made = made.expect("restore");
    assert_eq!(made.revision, contents.revision + BUMP);
    // It is durable, not only written.
    restored.crash();
    let again = open(&restored, Options::default()).await.expect("open");
    let found = items(&again, None).await;
    assert_eq!(found, items(&store, Some(contents.revision)).await);
    for (key, revision) in before {
        let item = found.iter().find(|item| item.key == key);
        let item = item.expect("an acknowledged key is lost");
        assert!(item.mod_revision >= revision, "{key:?} is older");
    }
    assert_eq!(again.revision().await.expect("revision"), made.revision);
    for from in [
        1,
        contents.revision,
        contents.revision + 1,
        made.revision - 1,
    ] {
        let old = again.watch(KeyRange::prefix(""), from).await.err();
        assert!(matches!(old, Some(Error::Compacted { .. })), "{old:?}");
    }
    assert_eq!(
        write(&again, "new", "v").await.expect("write"),
        made.revision + 1
    );
    tokio::time::sleep(Duration::from_secs(61)).await;
    let leased = items(&again, None).await;
    assert!(!leased.iter().any(|item| item.key == "leased"), "it ended");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_or_cut_snapshot_is_refused() {
    let disk = SimulatedDisk::new(31);
    let store = open(&disk, Options::default()).await.expect("open");
    for number in 0..20 {
        write(&store, &format!("key{number}"), "some value")
            .await
            .expect("write");
    }
    let whole = collect(&store).await;
    assert_eq!(verify("f", &whole).expect("whole").keys, 20);
    for length in 0..whole.len() {
        assert!(verify("f", &whole[..length]).is_err(), "cut at {length}");
    }
    for offset in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[offset] ^= 0x10;
        assert!(verify("f", &damaged).is_err(), "damaged at {offset}");
    }
    let environment = Environment::simulated(2, 0);
    let refused = restore(disk.mount(), &environment, "f", &whole, BUMP).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    let empty = SimulatedDisk::new(37);
    let refused = restore(empty.mount(), &environment, "f", &whole, u64::MAX - 3).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert!(empty.names().is_empty(), "nothing was written");
}
