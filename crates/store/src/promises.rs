//! Histories against a model: what clients and watchers were answered, and whether what a store says
//! happened can be explained by it. One checker for every engine, and for the API server above them.
//!
//! Every transaction has a number that its values carry, so that it is recognised in the history
//! no matter whether its answer arrived. [`Promises::check`] is pure; [`write_at_random`], [`follow`] and
//! [`read_history`] drive a [`Store`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use environment::Environment;
use futures::StreamExt;
use parking_lot::Mutex;

use crate::{
    Compare, Error, Event, KeyRange, KeyValue, Operation, RangeRequest, Revision, Store,
    Transaction, TransactionResult, WatchItem, WatchStream,
};

/// A change without what the store adds to it: the value, or `None` for a deletion.
pub type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// What happened, by revision.
pub type History = BTreeMap<Revision, Changes>;

/// All answers that clients and watchers got, across all lives of a store.
#[derive(Default)]
pub struct Promises {
    next: u64,
    /// Every transaction ever asked for.
    asked: BTreeMap<u64, Changes>,
    acknowledged: BTreeMap<Revision, u64>,
    /// Surely not done: a condition failed, or the store said that it did nothing.
    refused: BTreeSet<u64>,
    /// No answer, or the answer that the outcome is unknown.
    unknown: BTreeSet<u64>,
    /// What each watcher saw, and from which revision it watched.
    watched: Vec<(Revision, History)>,
    /// Reads: at this revision the key had that mod revision, 0 for absent.
    observed: Vec<(Revision, Bytes, Revision)>,
}

/// Which watcher.
#[derive(Clone, Copy, Debug)]
pub struct Watcher(usize);

impl Promises {
    /// A number for a transaction that will be asked for.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A value that carries a transaction's number.
    pub fn value(number: u64, padding: usize) -> Bytes {
        format!("{number}:{}", "x".repeat(padding)).into()
    }

    /// To be called before the store is.
    pub fn ask(&mut self, number: u64, changes: Changes) {
        self.asked.insert(number, changes);
    }

    pub fn acknowledge(&mut self, number: u64, revision: Revision) {
        let twice = self.acknowledged.insert(revision, number);
        assert_eq!(twice, None, "revision {revision} is given twice");
    }

    pub fn refuse(&mut self, number: u64) {
        self.refused.insert(number);
    }

    pub fn lose(&mut self, number: u64) {
        self.unknown.insert(number);
    }

    pub fn observe(&mut self, at: Revision, key: Bytes, mod_revision: Revision) {
        self.observed.push((at, key, mod_revision));
    }

    /// A client watches from `from` on.
    pub fn watch(&mut self, from: Revision) -> Watcher {
        self.watched.push((from, History::new()));
        Watcher(self.watched.len() - 1)
    }

    /// A watcher is shown a revision.
    pub fn show(&mut self, watcher: Watcher, revision: Revision, changes: Changes) {
        let (from, seen) = &mut self.watched[watcher.0];
        let last = seen.last_key_value().map_or(*from - 1, |(last, _)| *last);
        assert!(
            revision > last,
            "a watcher is shown {revision} after {last}"
        );
        seen.insert(revision, changes);
    }

    pub fn watchers(&self) -> impl Iterator<Item = Watcher> + use<> {
        (0..self.watched.len()).map(Watcher)
    }

    /// All that a watcher was shown.
    pub fn seen(&self, watcher: Watcher) -> &History {
        &self.watched[watcher.0].1
    }

    /// The newest revision the watcher was shown.
    pub fn shown(&self, watcher: Watcher) -> Revision {
        let seen = &self.watched[watcher.0].1;
        seen.last_key_value().map_or(0, |(last, _)| *last)
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    pub fn last_acknowledged(&self) -> Revision {
        let last = self.acknowledged.last_key_value();
        last.map_or(0, |(revision, _)| *revision)
    }

    /// Compares a history that began with no keys with all answers.
    pub fn check(&self, history: &History) {
        for (revision, number) in &self.acknowledged {
            let found = history.get(revision).and_then(written_by);
            assert_eq!(found, Some(*number), "acknowledged {revision} is lost");
        }
        for (from, seen) in &self.watched {
            // Everything in its range, once and in order; how far it came is its own affair.
            if let Some((last, _)) = seen.last_key_value() {
                let happened: Vec<_> = history.range(from..=last).collect();
                let seen: Vec<_> = seen.iter().collect();
                assert_eq!(seen, happened, "a watcher from {from} saw something else");
            }
        }
        let mut seen = BTreeSet::new();
        let mut states = vec![(0, BTreeMap::new())];
        for (revision, changes) in history {
            let number = written_by(changes).expect("every revision holds a number");
            assert!(seen.insert(number), "transaction {number} happened twice");
            assert!(!self.refused.contains(&number), "{number} was refused");
            let before = &states[states.len() - 1].1;
            // Atomic: all it asked for, less deletions of absent keys.
            let mut asked = self.asked[&number].clone();
            asked.retain(|key, value| value.is_some() || before.contains_key(key));
            assert_eq!(
                changes, &asked,
                "transaction {number} at {revision} is torn"
            );
            let mut after = before.clone();
            for (key, value) in changes {
                match value {
                    Some(_) => after.insert(key.clone(), *revision),
                    None => after.remove(key),
                };
            }
            states.push((*revision, after));
        }
        for (at, key, mod_revision) in &self.observed {
            let index = states.partition_point(|(revision, _)| revision <= at) - 1;
            let held = states[index].1.get(key).copied().unwrap_or(0);
            assert_eq!(held, *mod_revision, "read of {key:?} at {at}");
        }
    }

    /// One line about how much was tried.
    pub fn summary(&self, history: &History) -> String {
        let acknowledged = self.acknowledged.len();
        format!(
            "{acknowledged} acknowledged, {} refused, {} unknown, {} done without an answer, {} watchers",
            self.refused.len(),
            self.unknown.len(),
            history.len() - acknowledged,
            self.watched.len(),
        )
    }
}

/// The number of the transaction that made these changes.
pub fn written_by(changes: &Changes) -> Option<u64> {
    let value = changes.values().flatten().next()?;
    let text = std::str::from_utf8(value).ok()?;
    text.split(':').next()?.parse().ok()
}

/// How a client behaves.
#[derive(Clone, Copy)]
pub struct Client {
    pub keys: u64,
    pub longest_padding: u64,
}

/// Writes at random until the store is closed or the task ended.
pub async fn write_at_random(
    store: Arc<dyn Store>,
    environment: Environment,
    promises: Arc<Mutex<Promises>>,
    client: Client,
) {
    let chance = |one_in: u64| environment.random_u64().is_multiple_of(one_in);
    let mut known: BTreeMap<Bytes, Revision> = BTreeMap::new();
    loop {
        let number = promises.lock().number();
        let (mut transaction, mut changes) = (Transaction::default(), Changes::new());
        for _ in 0..1 + environment.random_u64() % 3 {
            let key = Bytes::from(format!("key{}", environment.random_u64() % client.keys));
            if changes.contains_key(&key) {
                continue;
            }
            if chance(3) {
                let revision = known.get(&key).copied().unwrap_or(0);
                let key = key.clone();
                transaction
                    .compare
                    .push(Compare::ModRevision { key, revision });
            }
            // The first change is always a put: it carries the number.
            if !changes.is_empty() && chance(3) {
                changes.insert(key.clone(), None);
                transaction.then.push(Operation::Delete { key });
            } else {
                let padding = environment.random_u64() % client.longest_padding.max(1);
                let value = Promises::value(number, padding as usize);
                changes.insert(key.clone(), Some(value.clone()));
                let lease = None;
                transaction.then.push(Operation::Put { key, value, lease });
            }
        }
        promises.lock().ask(number, changes.clone());
        let compared = transaction.compare.clone();
        let result = store.transact(transaction).await;
        let mut promises = promises.lock();
        match result {
            Ok(TransactionResult::Committed { revision, .. }) => {
                promises.acknowledge(number, revision);
                for (key, value) in changes {
                    known.insert(key, if value.is_some() { revision } else { 0 });
                }
            }
            Ok(TransactionResult::Failed { revision, current }) => {
                promises.refuse(number);
                for (Compare::ModRevision { key, .. }, current) in compared.into_iter().zip(current)
                {
                    let at = current.map_or(0, |item| item.mod_revision);
                    known.insert(key.clone(), at);
                    promises.observe(revision, key, at);
                }
            }
            Err(Error::Unavailable(_)) => promises.refuse(number),
            Err(Error::OutcomeUnknown(_)) => promises.lose(number),
            Err(Error::Closed(_)) => return promises.lose(number),
            Err(error) => panic!("unexpected {error}"),
        }
    }
}

/// Writes down what a watch from `from` on shows, until it ends.
pub async fn follow(mut watch: WatchStream, watcher: Watcher, promises: Arc<Mutex<Promises>>) {
    while let Some(item) = watch.next().await {
        match item {
            Ok(WatchItem::Events { revision, events }) => {
                let changes = events.iter().map(change).collect();
                promises.lock().show(watcher, revision, changes);
            }
            Ok(WatchItem::Progress { .. }) => {}
            Err(Error::Closed(_)) => return,
            Err(error) => panic!("the watch failed: {error}"),
        }
    }
}

/// Reads all that happened after `start`, when there were no keys, and checks what the store itself
/// must keep: revisions without a gap, versions that count, ranges of the past.
pub async fn read_history(store: &dyn Store, start: Revision) -> History {
    let newest = store.revision().await.expect("revision");
    let everything = KeyRange::prefix("");
    let watch = store.watch(everything.clone(), start + 1).await;
    let mut watch = watch.expect("watch");
    let mut history = History::new();
    let mut state: BTreeMap<Bytes, KeyValue> = BTreeMap::new();
    let mut states = vec![(start, state.clone())];
    while states.last().is_some_and(|(last, _)| *last < newest) {
        let item = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
        let item = item.expect("the watch is silent").expect("the watch ended");
        if let WatchItem::Events { revision, events } = item.expect("the watch failed") {
            let expected = states.last().map_or(start, |(last, _)| *last) + 1;
            assert_eq!(revision, expected, "a gap or a repetition");
            for event in &events {
                replay(&mut state, event);
            }
            history.insert(revision, events.iter().map(change).collect());
            states.push((revision, state.clone()));
        }
    }
    for (revision, state) in states.iter().step_by(7).chain(states.last()) {
        let request = RangeRequest {
            range: everything.clone(),
            revision: Some(*revision),
            limit: 0,
        };
        let items = store.range(request).await.expect("range").items;
        assert!(items.iter().eq(state.values()), "range at {revision}");
    }
    history
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

#[cfg(test)]
mod tests {
    use super::*;

    fn put(number: u64) -> Changes {
        Changes::from([("key".into(), Some(Promises::value(number, 0)))])
    }

    /// Two acknowledged writes, both watched.
    fn kept_promises() -> (Promises, History) {
        let mut promises = Promises::default();
        let watcher = promises.watch(2);
        let mut history = History::new();
        for revision in [2, 3] {
            let number = promises.number();
            promises.ask(number, put(number));
            promises.acknowledge(number, revision);
            promises.show(watcher, revision, put(number));
            history.insert(revision, put(number));
        }
        (promises, history)
    }

    fn is_refuted(break_it: impl FnOnce(&mut Promises, &mut History)) -> bool {
        let (mut promises, mut history) = kept_promises();
        promises.check(&history);
        break_it(&mut promises, &mut history);
        let check = std::panic::AssertUnwindSafe(|| promises.check(&history));
        std::panic::catch_unwind(check).is_err()
    }

    #[test]
    fn the_checker_finds_every_kind_of_broken_promise() {
        assert!(is_refuted(|_, history| drop(history.remove(&3))), "a loss");
        assert!(
            is_refuted(|promises, history| {
                promises.ask(9, put(9));
                history.insert(4, put(9));
                history.insert(5, put(9));
            }),
            "a repetition"
        );
        assert!(
            is_refuted(|promises, history| {
                let watcher = promises.watch(2);
                promises.show(watcher, 3, history[&3].clone());
            }),
            "an event that a watcher was not shown"
        );
        assert!(
            is_refuted(|promises, history| {
                promises.ask(9, put(9));
                promises.refuse(9);
                history.insert(4, put(9));
            }),
            "a refused write that happened"
        );
        assert!(
            is_refuted(|promises, history| {
                let mut both = put(9);
                both.insert("other".into(), Some(Promises::value(9, 0)));
                promises.ask(9, both);
                history.insert(4, put(9));
            }),
            "a torn transaction"
        );
        assert!(
            is_refuted(|promises, _| promises.observe(2, "key".into(), 3)),
            "a stale read"
        );
        let shown = std::panic::catch_unwind(|| {
            let (mut promises, history) = kept_promises();
            promises.show(Watcher(0), 3, history[&3].clone());
        });
        assert!(shown.is_err(), "the same event twice");
    }
}
