//! The contract suite: what every engine must do, regardless of its implementation. An engine's tests call
//! [`check_all`] with a function that opens a fresh, empty store.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt};

use crate::{
    Compare, Error, Event, KeyRange, KeyValue, LeaseId, MAX_REQUEST_BYTES, Operation, RangeRequest,
    Revision, Store, Transaction, TransactionResult, WatchItem, WatchStream,
};

type Shared = Arc<dyn Store>;

/// Runs every check, each on its own fresh store.
pub async fn check_all<Open, Opening>(open: Open)
where
    Open: Fn() -> Opening,
    Opening: Future<Output = Shared>,
{
    puts_and_deletes_are_revisioned(open().await).await;
    conditions_guard_transactions(open().await).await;
    a_key_changes_once_per_transaction(open().await).await;
    ranges_are_ordered_limited_and_counted(open().await).await;
    ranges_read_the_past(open().await).await;
    watches_replay_and_follow(open().await).await;
    watches_see_only_their_range(open().await).await;
    compaction_forgets(open().await).await;
    leases_delete_their_keys(open().await).await;
    concurrent_writers_get_distinct_revisions(open().await).await;
    transactions_that_are_too_large_are_refused(open().await).await;
}

pub fn put(key: &str, value: &str) -> Operation {
    Operation::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        lease: None,
    }
}

pub fn delete(key: &str) -> Operation {
    Operation::Delete {
        key: Bytes::copy_from_slice(key.as_bytes()),
    }
}

pub fn unconditionally(then: Vec<Operation>) -> Transaction {
    Transaction {
        compare: Vec::new(),
        then,
    }
}

fn when(key: &str, revision: Revision, then: Vec<Operation>) -> Transaction {
    let key = Bytes::copy_from_slice(key.as_bytes());
    Transaction {
        compare: vec![Compare::ModRevision { key, revision }],
        then,
    }
}

async fn commit(store: &Shared, then: Vec<Operation>) -> (Revision, Vec<Option<KeyValue>>) {
    match store.transact(unconditionally(then)).await {
        Ok(TransactionResult::Committed { revision, previous }) => (revision, previous),
        other => panic!("not committed: {other:?}"),
    }
}

/// `key=value` of every key with the prefix, at a revision.
async fn read(store: &Shared, prefix: &'static str, revision: Option<Revision>) -> Vec<String> {
    let request = RangeRequest {
        range: KeyRange::prefix(prefix),
        revision,
        limit: 0,
    };
    let result = store.range(request).await.expect("range");
    assert_eq!(result.count, result.items.len());
    result.items.iter().map(show).collect()
}

fn show(item: &KeyValue) -> String {
    format!(
        "{}={}",
        String::from_utf8_lossy(&item.key),
        String::from_utf8_lossy(&item.value)
    )
}

/// The next `count` events as text, progress left out.
async fn events(stream: &mut WatchStream, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let item = tokio::time::timeout(Duration::from_secs(20), stream.next())
            .await
            .expect("the watch is silent")
            .expect("the watch ended")
            .expect("the watch failed");
        if let WatchItem::Events { revision, events } = item {
            seen.extend(events.iter().map(|event| match event {
                Event::Put { item, previous } => {
                    assert_eq!(item.mod_revision, revision);
                    let before = previous.as_ref().map_or("none".to_owned(), show);
                    format!("{revision} put {} was {before}", show(item))
                }
                Event::Delete {
                    key,
                    revision: at,
                    previous,
                } => {
                    assert_eq!(*at, revision);
                    assert_eq!(previous.as_ref().map(|item| &item.key), Some(key));
                    format!("{revision} delete {}", String::from_utf8_lossy(key))
                }
            }));
        }
    }
    seen
}

async fn puts_and_deletes_are_revisioned(store: Shared) {
    let start = store.revision().await.expect("revision");
    assert!(start >= 1, "revision 0 means absence");
    let (first, previous) = commit(&store, vec![put("a", "1"), put("b", "1")]).await;
    assert_eq!((first, previous), (start + 1, vec![None, None]));
    let (second, previous) = commit(&store, vec![put("a", "2")]).await;
    assert_eq!(second, first + 1);
    assert_eq!(previous[0].as_ref().map(show).as_deref(), Some("a=1"));
    let item = store
        .range(RangeRequest {
            range: KeyRange::single("a"),
            revision: None,
            limit: 0,
        })
        .await
        .expect("range")
        .items
        .remove(0);
    assert_eq!(
        (item.create_revision, item.mod_revision, item.version),
        (first, second, 2)
    );

    let (third, previous) = commit(&store, vec![delete("a"), delete("absent")]).await;
    assert_eq!(third, second + 1);
    assert!(previous[0].is_some() && previous[1].is_none());
    let (unchanged, _) = commit(&store, vec![delete("a")]).await;
    assert_eq!(unchanged, third, "deleting nothing makes no revision");
    let (fourth, _) = commit(&store, vec![put("a", "again")]).await;
    assert_eq!(fourth, third + 1);
    assert_eq!(store.revision().await.expect("revision"), fourth);
    assert_eq!(read(&store, "", None).await, ["a=again", "b=1"]);
}

async fn conditions_guard_transactions(store: Shared) {
    let created = when("a", 0, vec![put("a", "1"), put("b", "1")]);
    let revision = match store.transact(created.clone()).await {
        Ok(TransactionResult::Committed { revision, .. }) => revision,
        other => panic!("not created: {other:?}"),
    };
    match store.transact(created).await {
        Ok(TransactionResult::Failed {
            revision: at,
            current,
        }) => {
            assert_eq!(at, revision);
            assert_eq!(current[0].as_ref().map(show).as_deref(), Some("a=1"));
        }
        other => panic!("created twice: {other:?}"),
    }
    let stale = when("a", revision - 1, vec![delete("a")]);
    assert!(matches!(
        store.transact(stale).await,
        Ok(TransactionResult::Failed { .. })
    ));
    let fresh = when("a", revision, vec![put("a", "2"), delete("b")]);
    assert!(matches!(
        store.transact(fresh).await,
        Ok(TransactionResult::Committed { .. })
    ));
    assert_eq!(read(&store, "", None).await, ["a=2"]);
    let both = Transaction {
        compare: vec![
            Compare::ModRevision {
                key: "a".into(),
                revision: revision + 1,
            },
            Compare::ModRevision {
                key: "b".into(),
                revision,
            },
        ],
        then: vec![delete("a")],
    };
    match store.transact(both).await {
        Ok(TransactionResult::Failed { current, .. }) => {
            assert!(current[0].is_some() && current[1].is_none());
        }
        other => panic!("one of two conditions was enough: {other:?}"),
    }
}

async fn a_key_changes_once_per_transaction(store: Shared) {
    let before = store.revision().await.expect("revision");
    let twice = unconditionally(vec![put("a", "1"), delete("a")]);
    assert!(matches!(
        store.transact(twice).await,
        Err(Error::DuplicateKey)
    ));
    assert_eq!(store.revision().await.expect("revision"), before);
    assert!(read(&store, "", None).await.is_empty());
}

async fn transactions_that_are_too_large_are_refused(store: Shared) {
    let room = MAX_REQUEST_BYTES - 4096;
    commit(&store, vec![put("/a", &"x".repeat(room))]).await;
    for then in [
        vec![put("/a", &"x".repeat(MAX_REQUEST_BYTES + 1))],
        vec![put("/b", &"x".repeat(room)), put("/c", &"x".repeat(room))],
        // Beyond what etcd's listener takes.
        vec![put("/b", &"x".repeat(2 * MAX_REQUEST_BYTES))],
    ] {
        let refused = store.transact(unconditionally(then)).await;
        assert!(matches!(refused, Err(Error::TooLarge)), "{refused:?}");
    }
    assert_eq!(read(&store, "/", None).await.len(), 1);
}

async fn ranges_are_ordered_limited_and_counted(store: Shared) {
    for key in ["b/2", "a/1", "b/1", "c", "b/3"] {
        commit(&store, vec![put(key, "v")]).await;
    }
    assert_eq!(read(&store, "b/", None).await, ["b/1=v", "b/2=v", "b/3=v"]);
    let range = |start: &'static str, end: &'static str, limit| {
        let store = store.clone();
        async move {
            let request = RangeRequest {
                range: KeyRange {
                    start: start.into(),
                    end: end.into(),
                },
                revision: None,
                limit,
            };
            let result = store.range(request).await.expect("range");
            let items: Vec<String> = result.items.iter().map(show).collect();
            (items.join(" "), result.count)
        }
    };
    assert_eq!(range("a/1", "b/3", 2).await, ("a/1=v b/1=v".into(), 3));
    assert_eq!(range("b/2", "", 0).await, ("b/2=v b/3=v c=v".into(), 3));
    assert_eq!(range("x", "a", 0).await, (String::new(), 0));
}

async fn ranges_read_the_past(store: Shared) {
    let (first, _) = commit(&store, vec![put("a", "1"), put("b", "1")]).await;
    let (second, _) = commit(&store, vec![delete("a"), put("c", "1")]).await;
    let (third, _) = commit(&store, vec![put("a", "2"), put("b", "2")]).await;
    assert_eq!(read(&store, "", Some(first)).await, ["a=1", "b=1"]);
    assert_eq!(read(&store, "", Some(second)).await, ["b=1", "c=1"]);
    assert_eq!(read(&store, "", Some(third)).await, ["a=2", "b=2", "c=1"]);
    assert_eq!(read(&store, "a", Some(second)).await, [""; 0]);
    let future = RangeRequest {
        range: KeyRange::prefix(""),
        revision: Some(third + 1),
        limit: 0,
    };
    assert!(matches!(
        store.range(future).await,
        Err(Error::Future { .. })
    ));
    let limited = RangeRequest {
        range: KeyRange::prefix(""),
        revision: Some(first),
        limit: 1,
    };
    let result = store.range(limited).await.expect("range");
    assert_eq!(
        (result.items.len(), result.count, result.revision),
        (1, 2, third)
    );
}

async fn watches_replay_and_follow(store: Shared) {
    let (first, _) = commit(&store, vec![put("a", "1")]).await;
    let (second, _) = commit(&store, vec![put("a", "2"), put("b", "1")]).await;
    let everything = KeyRange::prefix("");
    let mut all = store
        .watch(everything.clone(), first)
        .await
        .expect("watch from the past");
    let mut new = store
        .watch(everything.clone(), second + 1)
        .await
        .expect("watch from now");
    assert!(matches!(
        store.watch(everything, second + 2).await,
        Err(Error::Future { .. })
    ));
    assert!(new.next().now_or_never().is_none(), "nothing has happened");
    let (third, _) = commit(&store, vec![delete("a")]).await;
    assert_eq!(
        events(&mut all, 4).await,
        [
            format!("{first} put a=1 was none"),
            format!("{second} put a=2 was a=1"),
            format!("{second} put b=1 was none"),
            format!("{third} delete a"),
        ]
    );
    assert_eq!(events(&mut new, 1).await, [format!("{third} delete a")]);
}

async fn watches_see_only_their_range(store: Shared) {
    let from = store.revision().await.expect("revision") + 1;
    let mut stream = store
        .watch(KeyRange::prefix("b/"), from)
        .await
        .expect("watch");
    commit(&store, vec![put("a", "1")]).await;
    let (inside, _) = commit(&store, vec![put("a", "2"), put("b/1", "1")]).await;
    let (outside, _) = commit(&store, vec![put("c", "1")]).await;
    assert_eq!(
        events(&mut stream, 1).await,
        [format!("{inside} put b/1=1 was none")]
    );
    let progress = loop {
        match stream.next().await.expect("the watch ended") {
            Ok(WatchItem::Progress { revision }) if revision > inside => break revision,
            Ok(WatchItem::Progress { .. }) => {}
            other => panic!("unexpected {other:?}"),
        }
    };
    assert_eq!(progress, outside, "the end of the stream is known");
}

async fn compaction_forgets(store: Shared) {
    let (first, _) = commit(&store, vec![put("a", "1")]).await;
    let (second, _) = commit(&store, vec![put("a", "2")]).await;
    let (third, _) = commit(&store, vec![put("a", "3")]).await;
    let everything = KeyRange::prefix("");
    let mut slow = store.watch(everything.clone(), first).await.expect("watch");
    assert!(matches!(
        store.compact(third + 1).await,
        Err(Error::Future { .. })
    ));
    store.compact(second).await.expect("compact");
    assert_eq!(read(&store, "", Some(second)).await, ["a=2"]);
    let past = RangeRequest {
        range: everything.clone(),
        revision: Some(first),
        limit: 0,
    };
    match store.range(past).await {
        Err(Error::Compacted { requested, oldest }) => {
            assert_eq!((requested, oldest), (first, second));
        }
        other => panic!("the past is still there: {other:?}"),
    }
    assert!(matches!(
        store.watch(everything.clone(), first).await,
        Err(Error::Compacted { .. })
    ));
    let mut kept = store.watch(everything, second).await.expect("watch");
    assert_eq!(events(&mut kept, 2).await.len(), 2);
    assert!(matches!(slow.next().await, Some(Err(Error::SlowWatcher))));
    assert!(slow.next().await.is_none(), "an error ends the stream");
    store
        .compact(first)
        .await
        .expect("compacting again is fine");
}

async fn leases_delete_their_keys(store: Shared) {
    let leased = |key: &'static str, lease: LeaseId| Operation::Put {
        key: key.into(),
        value: "v".into(),
        lease: Some(lease),
    };
    assert!(matches!(
        store.transact(unconditionally(vec![leased("x", 77)])).await,
        Err(Error::LeaseNotFound(77))
    ));
    assert!(matches!(
        store.keep_lease_alive(77).await,
        Err(Error::LeaseNotFound(77))
    ));
    let short = store.grant_lease(1).await.expect("grant");
    let long = store.grant_lease(3600).await.expect("grant");
    let (at, _) = commit(
        &store,
        vec![leased("a", short), leased("b", short), leased("c", long)],
    )
    .await;
    // Put again without the lease: the key no longer belongs to it.
    let (freed, _) = commit(&store, vec![put("b", "free")]).await;
    let mut stream = store
        .watch(KeyRange::prefix(""), at + 2)
        .await
        .expect("watch");
    assert_eq!(
        events(&mut stream, 1).await,
        [format!("{} delete a", freed + 1)]
    );
    assert_eq!(read(&store, "", None).await, ["b=free", "c=v"]);
    assert!(matches!(
        store.keep_lease_alive(short).await,
        Err(Error::LeaseNotFound(_))
    ));
    store.keep_lease_alive(long).await.expect("keep alive");
}

async fn concurrent_writers_get_distinct_revisions(store: Shared) {
    let start = store.revision().await.expect("revision");
    let writers: Vec<_> = (0..32)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let (revision, _) = commit(&store, vec![put(&format!("w{writer}"), "v")]).await;
                assert!(store.revision().await.expect("revision") >= revision);
                revision
            })
        })
        .collect();
    let mut revisions = Vec::new();
    for writer in writers {
        revisions.push(writer.await.expect("writer"));
    }
    revisions.sort_unstable();
    let expected: Vec<Revision> = (start + 1..=start + 32).collect();
    assert_eq!(revisions, expected);
    assert_eq!(read(&store, "w", None).await.len(), 32);
}
