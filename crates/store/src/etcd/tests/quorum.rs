//! Three members: one fails, two fail, all come back. One client lives through it.

use std::time::Duration;

use super::members::Members;
use super::*;

async fn try_write(store: &Etcd, value: &str) -> Result<TransactionResult, Error> {
    let limit = Duration::from_secs(120);
    let written = store.transact(unconditionally(vec![put("a", value)]));
    tokio::time::timeout(limit, written)
        .await
        .expect("a write hangs")
}

/// Members that choose a leader, as they may at any time, have no answer for a while.
async fn until_written(store: &Etcd, value: &str) -> Revision {
    loop {
        match try_write(store, value).await {
            Ok(TransactionResult::Committed { revision, .. }) => return revision,
            Err(Error::Unavailable(_) | Error::OutcomeUnknown(_)) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_is_lost_and_regained_under_one_client() {
    let mut members = Members::start(3).await;
    let store = Etcd::connect(members.options()).await.expect("connect");
    let first = until_written(&store, "1").await;
    let everything = KeyRange::prefix("");
    let mut watch = store.watch(everything.clone(), first).await.expect("watch");
    assert_eq!(revisions(&mut watch, 1).await, [first]);

    // The endpoint in use goes away; the others still have a quorum.
    members.kill(0);
    let mut acknowledged = vec![until_written(&store, "2").await];

    members.kill(1);
    // The first refusal may come before the members know that they are alone.
    let refusal = loop {
        match try_write(&store, "refused").await {
            Err(Error::OutcomeUnknown(_)) => {}
            Err(Error::Unavailable(reason)) => break reason,
            other => panic!("written without a quorum: {other:?}"),
        }
    };
    assert!(!refusal.is_empty());
    assert!(matches!(store.revision().await, Err(Error::Unavailable(_))));
    // What is known is still served.
    let mut old = store.watch(everything, first).await.expect("watch");
    assert_eq!(revisions(&mut old, 1).await, [first]);

    members.restart(0);
    members.restart(1);
    let last = until_written(&store, "3").await;
    acknowledged.push(last);
    // Every revision once and in order, those with an unknown outcome included.
    let mut seen = first;
    while seen < last {
        let [revision] = revisions(&mut watch, 1).await[..] else {
            unreachable!("one was asked for");
        };
        assert_eq!(revision, seen + 1, "a gap or a repetition");
        seen = revision;
    }
    assert!(acknowledged.iter().all(|revision| *revision <= seen));
}
