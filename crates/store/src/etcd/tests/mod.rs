//! The etcd engine against a real etcd (`etcd` on the PATH, or the one that `ETCD` names): the
//! contract, other users of the same etcd, slow watchers, TLS and users. Crashes are in
//! [`histories`], lost quorum in [`quorum`].

mod histories;
mod members;
mod quorum;
mod users;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;

use super::*;
use crate::contract::{check_all, put, unconditionally};
use crate::{Event, WatchItem};
use members::Members;

async fn write(store: &dyn Store, key: &str, value: &str) -> Revision {
    let put = unconditionally(vec![put(key, value)]);
    match store.transact(put).await {
        Ok(TransactionResult::Committed { revision, .. }) => revision,
        other => panic!("not written: {other:?}"),
    }
}

async fn item(watch: &mut WatchStream) -> WatchItem {
    let item = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
    let item = item.expect("the watch is silent");
    item.expect("the watch ended").expect("the watch failed")
}

/// The revisions of the next `count` items with events.
async fn revisions(watch: &mut WatchStream, count: usize) -> Vec<Revision> {
    let mut seen = Vec::new();
    while seen.len() < count {
        if let WatchItem::Events { revision, .. } = item(watch).await {
            seen.push(revision);
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_holds_on_a_real_etcd() {
    let members = Members::start(1).await;
    let opened = AtomicUsize::new(0);
    check_all(|| async {
        let mut options = members.options();
        let number = opened.fetch_add(1, Ordering::Relaxed);
        options.prefix = format!("/contract{number}/");
        Etcd::connect(options).await.expect("connect") as Arc<dyn Store>
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_reaches_revisions_that_others_made() {
    let members = Members::start(1).await;
    let mut options = members.options();
    options.prefix = "/ours/".to_owned();
    options.root = "/registry/".to_owned();
    let ours = Etcd::connect(options).await.expect("connect");
    let theirs = Etcd::connect(members.options()).await.expect("connect");
    let from = ours.revision().await.expect("revision") + 1;
    let everything = KeyRange::prefix("/registry/");
    let mut watch = ours.watch(everything.clone(), from).await.expect("watch");
    write(&*theirs, "/foreign", "1").await;
    let newest = write(&*theirs, "/foreign", "2").await;
    assert_eq!(ours.revision().await.expect("revision"), newest);
    loop {
        match item(&mut watch).await {
            WatchItem::Progress { revision } if revision == newest => break,
            WatchItem::Progress { revision } => assert!(revision < newest),
            events => panic!("not ours: {events:?}"),
        }
    }
    let at = write(&*ours, "/registry/a", "v").await;
    match item(&mut watch).await {
        WatchItem::Events { revision, events } => {
            assert_eq!(revision, at);
            assert_eq!(&events[0].key()[..], b"/registry/a");
        }
        other => panic!("no event: {other:?}"),
    }
    let request = |range| RangeRequest {
        range,
        revision: None,
        limit: 0,
    };
    let found = ours.range(request(everything)).await.expect("range");
    assert_eq!((found.items.len(), found.count), (1, 1));
    let moved = request(KeyRange::single("/ours/a"));
    assert_eq!(theirs.range(moved).await.expect("range").items.len(), 1);
    let outside = ours
        .transact(unconditionally(vec![put("/foreign", "x")]))
        .await;
    assert!(matches!(outside, Err(Error::Refused(_))), "{outside:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_range_is_one_snapshot() {
    let members = Members::start(1).await;
    let store = Etcd::connect(members.options()).await.expect("connect");
    let count = 2 * PAGE + 7;
    let keys: Vec<String> = (0..count).map(|number| format!("k{number:05}")).collect();
    for some in keys.chunks(100) {
        let puts = some.iter().map(|key| put(key, "v")).collect();
        store.transact(unconditionally(puts)).await.expect("put");
    }
    let mut request = RangeRequest {
        range: KeyRange::prefix("k"),
        revision: None,
        limit: 0,
    };
    let all = store.range(request.clone()).await.expect("range");
    assert_eq!(all.count, count);
    assert!(
        all.items
            .iter()
            .map(|item| &item.key[..])
            .eq(keys.iter().map(String::as_bytes))
    );
    request.limit = PAGE + 3;
    let some = store.range(request).await.expect("range");
    assert_eq!((some.items.len(), some.count), (PAGE + 3, count));
    assert_eq!(some.items[..], all.items[..PAGE + 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_watcher_catches_up_until_history_is_gone() {
    let members = Members::start(1).await;
    let mut options = members.options();
    options.window.revisions = 8;
    let store = Etcd::connect(options).await.expect("connect");
    let other = Etcd::connect(members.options()).await.expect("connect");
    let start = store.revision().await.expect("revision");
    let everything = KeyRange::prefix("");
    let mut patient = store
        .watch(everything.clone(), start + 1)
        .await
        .expect("watch");
    let mut overtaken = store
        .watch(everything.clone(), start + 1)
        .await
        .expect("watch");
    for number in 0..100 {
        write(&*store, "a", &number.to_string()).await;
    }
    let expected: Vec<Revision> = (start + 1..=start + 100).collect();
    assert_eq!(revisions(&mut patient, 100).await, expected);
    // Another process compacts: this one is not told.
    other.compact(start + 50).await.expect("compact");
    let late = store.watch(everything.clone(), start + 20).await;
    assert!(matches!(late, Err(Error::Compacted { .. })));
    let end = tokio::time::timeout(Duration::from_secs(60), overtaken.next()).await;
    let end = end.expect("the watch is silent");
    assert!(matches!(end, Some(Err(Error::SlowWatcher))), "{end:?}");
    let mut kept = store.watch(everything, start + 50).await.expect("watch");
    assert_eq!(revisions(&mut kept, 51).await, expected[49..]);
    write(&*store, "a", "newest").await;
    assert_eq!(revisions(&mut patient, 1).await, [start + 101]);
    assert_eq!(revisions(&mut kept, 1).await, [start + 101]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_at_the_compacted_revision_is_still_watched() {
    let members = Members::start(1).await;
    let store = Etcd::connect(members.options()).await.expect("connect");
    write(&*store, "a", "1").await;
    let delete = unconditionally(vec![crate::contract::delete("a")]);
    let at = match store.transact(delete).await {
        Ok(TransactionResult::Committed { revision, .. }) => revision,
        other => panic!("not deleted: {other:?}"),
    };
    write(&*store, "b", "1").await;
    store.compact(at).await.expect("compact");
    // A fresh client has no window and reads etcd's own history.
    let fresh = Etcd::connect(members.options()).await.expect("connect");
    let mut watch = fresh.watch(KeyRange::prefix(""), at).await.expect("watch");
    match item(&mut watch).await {
        WatchItem::Events { revision, events } => {
            assert_eq!(revision, at);
            let [Event::Delete { previous, .. }] = &events[..] else {
                panic!("no deletion: {events:?}");
            };
            assert_eq!(
                previous.as_ref().map(|item| &item.value[..]),
                Some(&b"1"[..])
            );
        }
        other => panic!("no event: {other:?}"),
    }
    let older = fresh.watch(KeyRange::prefix(""), at - 1).await;
    assert!(matches!(older, Err(Error::Compacted { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_etcd_splits_is_delivered_whole() {
    let members = Members::start(1).await;
    let store = Etcd::connect(members.options()).await.expect("connect");
    let start = store.revision().await.expect("revision");
    let mut live = store
        .watch(KeyRange::prefix(""), start + 1)
        .await
        .expect("watch");
    // With its previous values, the second one is more than etcd sends in one message.
    for letter in ["x", "y"] {
        let value = letter.repeat(700 << 10);
        let both = vec![put("a", &value), put("b", &value)];
        store.transact(unconditionally(both)).await.expect("put");
    }
    let fresh = Etcd::connect(members.options()).await.expect("connect");
    let mut late = fresh
        .watch(KeyRange::prefix(""), start + 1)
        .await
        .expect("watch");
    for watch in [&mut live, &mut late] {
        for revision in [start + 1, start + 2] {
            match item(watch).await {
                WatchItem::Events {
                    revision: at,
                    events,
                } => {
                    assert_eq!((at, events.len()), (revision, 2));
                }
                other => panic!("no events: {other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_was_away_too_long_lists_again() {
    let members = Members::start(1).await;
    let options = members.options();
    let store = Etcd::connect(options.clone()).await.expect("connect");
    let away = store.revision().await.expect("revision");
    for number in 0..20 {
        write(&*store, "a", &number.to_string()).await;
    }
    store.compact(away + 15).await.expect("compact");
    // As after a long time without a connection: the window ends where etcd has forgotten.
    let client = Arc::new(Client::new(&options).expect("client"));
    let window = Arc::new(Window::new(options.window, away));
    let everything = KeyRange::prefix("");
    let mut watch = cursor::stream(client.clone(), window.clone(), everything, away + 1, None);
    let mut tasks = JoinSet::new();
    tasks.spawn(follower::follow(client, window.clone()));
    let end = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
    let end = end.expect("the watch is silent");
    assert!(matches!(end, Some(Err(Error::SlowWatcher))), "{end:?}");
    assert_eq!(window.head(), away + 20);
}

#[tokio::test]
async fn an_unreachable_etcd_is_a_clear_error() {
    let port = members::free_port();
    let options = Options::new(vec![format!("http://127.0.0.1:{port}")]);
    let refused = Etcd::connect(options).await.err();
    assert!(
        matches!(refused, Some(Error::Unavailable(_))),
        "{refused:?}"
    );
    for endpoint in ["ftp://x", "https://127.0.0.1:1", "http://"] {
        let wrong = Etcd::connect(Options::new(vec![endpoint.to_owned()]))
            .await
            .err();
        assert!(matches!(wrong, Some(Error::Refused(_))), "{wrong:?}");
    }
}
