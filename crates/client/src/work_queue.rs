//! The work queue of controllers: each key at most once in the queue and with one worker at a time,
//! delayed and rate-limited additions. Its size is bounded by the number of distinct keys.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use environment::work;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

const FIRST_RETRY: Duration = Duration::from_millis(5);
const LONGEST_RETRY: Duration = Duration::from_secs(1000);

/// Cheap to clone; all clones are the same queue.
pub struct WorkQueue<Key> {
    shared: Arc<Shared<Key>>,
}

impl<Key> Clone for WorkQueue<Key> {
    fn clone(&self) -> WorkQueue<Key> {
        WorkQueue {
            shared: self.shared.clone(),
        }
    }
}

struct Shared<Key> {
    state: Mutex<State<Key>>,
    /// One permit is enough: a worker that leaves keys in the queue wakes the next one.
    wake: Notify,
}

struct State<Key> {
    ready: VecDeque<Key>,
    /// Waiting for a worker, or to be queued again when their worker is done.
    dirty: BTreeSet<Key>,
    processing: BTreeSet<Key>,
    delayed: BTreeSet<(Instant, Key)>,
    due: BTreeMap<Key, Instant>,
    failures: BTreeMap<Key, u32>,
}

impl<Key: Ord + Clone> Default for WorkQueue<Key> {
    fn default() -> WorkQueue<Key> {
        WorkQueue::new()
    }
}

impl<Key: Ord + Clone> WorkQueue<Key> {
    pub fn new() -> WorkQueue<Key> {
        WorkQueue {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    ready: VecDeque::new(),
                    dirty: BTreeSet::new(),
                    processing: BTreeSet::new(),
                    delayed: BTreeSet::new(),
                    due: BTreeMap::new(),
                    failures: BTreeMap::new(),
                }),
                wake: Notify::new(),
            }),
        }
    }

    /// Queues a key unless it is queued already. A key that is being processed is queued again
    /// afterwards.
    pub fn add(&self, key: Key) {
        let woken = self.shared.state.lock().add(key);
        if woken {
            self.shared.wake.notify_one();
        }
    }

    /// Queues a key after a delay; of several delays the one that ends first counts.
    pub fn add_after(&self, key: Key, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let at = Instant::now() + delay;
        let mut state = self.shared.state.lock();
        match state.due.get(&key) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => {
                let entry = (*later, key.clone());
                state.delayed.remove(&entry);
            }
            None => {}
        }
        state.due.insert(key.clone(), at);
        state.delayed.insert((at, key));
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Queues a key after a delay that doubles with each call, from 5 ms to 1000 s.
    pub fn add_rate_limited(&self, key: Key) {
        let mut state = self.shared.state.lock();
        let failures = state.failures.entry(key.clone()).or_default();
        let delay = FIRST_RETRY
            .saturating_mul(1_u32.checked_shl(*failures).unwrap_or(u32::MAX))
            .min(LONGEST_RETRY);
        *failures = (*failures + 1).min(31);
        drop(state);
        self.add_after(key, delay);
    }

    /// The key has succeeded: its next rate-limited addition begins at 5 ms again.
    pub fn forget(&self, key: &Key) {
        self.shared.state.lock().failures.remove(key);
    }

    /// How often the key was added rate-limited since it was last forgotten.
    pub fn failures(&self, key: &Key) -> u32 {
        let state = self.shared.state.lock();
        state.failures.get(key).copied().unwrap_or(0)
    }

    /// Waits for the next key. The caller must call [`WorkQueue::done`] with it. Dropping the future
    /// loses nothing.
    pub async fn next_key(&self) -> Key {
        loop {
            let due = {
                let mut state = self.shared.state.lock();
                state.release(Instant::now());
                if let Some(key) = state.ready.pop_front() {
                    work::visit(1);
                    state.dirty.remove(&key);
                    state.processing.insert(key.clone());
                    if !state.ready.is_empty() || !state.delayed.is_empty() {
                        self.shared.wake.notify_one();
                    }
                    return key;
                }
                state.delayed.first().map(|(at, _)| *at)
            };
            match due {
                Some(at) => tokio::select! {
                    biased;
                    () = self.shared.wake.notified() => {}
                    () = sleep_until(at) => {}
                },
                None => self.shared.wake.notified().await,
            }
        }
    }

    /// The worker has finished with the key.
    pub fn done(&self, key: &Key) {
        let mut state = self.shared.state.lock();
        state.processing.remove(key);
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.shared.wake.notify_one();
        }
    }

    /// How many keys wait for a worker now.
    pub fn len(&self) -> usize {
        self.shared.state.lock().ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<Key: Ord + Clone> State<Key> {
    /// Whether a worker can take it now.
    fn add(&mut self, key: Key) -> bool {
        if !self.dirty.insert(key.clone()) || self.processing.contains(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    fn release(&mut self, now: Instant) {
        while self.delayed.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.delayed.pop_first() {
                self.due.remove(&key);
                self.add(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn takes_within(
        queue: &WorkQueue<&'static str>,
        limit: Duration,
    ) -> Option<&'static str> {
        tokio::time::timeout(limit, queue.next_key()).await.ok()
    }

    const SOON: Duration = Duration::from_micros(1);

    #[tokio::test(start_paused = true)]
    async fn a_queued_key_is_not_queued_twice() {
        let queue = WorkQueue::new();
        queue.add("a");
        queue.add("b");
        queue.add("a");
        assert_eq!(queue.next_key().await, "a");
        assert_eq!(queue.next_key().await, "b");
        assert_eq!(takes_within(&queue, SOON).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_it_is_processed_is_queued_again_afterwards() {
        let queue = WorkQueue::new();
        queue.add("a");
        assert_eq!(queue.next_key().await, "a");
        queue.add("a");
        queue.add("a");
        assert_eq!(takes_within(&queue, SOON).await, None);
        queue.done(&"a");
        assert_eq!(takes_within(&queue, SOON).await, Some("a"));
        queue.done(&"a");
        assert_eq!(takes_within(&queue, SOON).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_shortest_delay_counts() {
        let queue = WorkQueue::new();
        queue.add_after("a", Duration::from_secs(9));
        queue.add_after("a", Duration::from_secs(2));
        queue.add_after("a", Duration::from_secs(5));
        let began = Instant::now();
        assert_eq!(queue.next_key().await, "a");
        assert_eq!(began.elapsed().as_secs(), 2);
        queue.done(&"a");
        assert_eq!(takes_within(&queue, Duration::from_secs(60)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_delay_wakes_a_waiting_worker() {
        let queue = WorkQueue::new();
        queue.add_after("late", Duration::from_secs(9));
        let taker = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next_key().await }
        });
        tokio::task::yield_now().await;
        queue.add_after("early", Duration::from_secs(1));
        assert_eq!(taker.await.expect("taker"), "early");
    }

    #[tokio::test(start_paused = true)]
    async fn each_failure_doubles_the_delay_until_the_key_is_forgotten() {
        let queue = WorkQueue::new();
        for expected in [5, 10, 20, 40] {
            let began = Instant::now();
            queue.add_rate_limited("a");
            queue.next_key().await;
            queue.done(&"a");
            assert_eq!(began.elapsed().as_millis(), expected);
        }
        queue.forget(&"a");
        assert_eq!(queue.failures(&"a"), 0);
        for _ in 0..40 {
            queue.add_rate_limited("a");
        }
        let began = Instant::now();
        queue.next_key().await;
        assert_eq!(began.elapsed().as_millis(), 5, "the first of the delays");
        queue.done(&"a");
        queue.add_rate_limited("a");
        queue.next_key().await;
        assert_eq!(began.elapsed().as_secs(), 1000, "the longest delay");
    }

    #[tokio::test(start_paused = true)]
    async fn every_waiting_worker_gets_work() {
        let queue = WorkQueue::new();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next_key().await })
            })
            .collect();
        tokio::task::yield_now().await;
        for key in ["a", "b", "c"] {
            queue.add(key);
        }
        let mut taken = Vec::new();
        for worker in workers {
            taken.push(worker.await.expect("worker"));
        }
        taken.sort();
        assert_eq!(taken, ["a", "b", "c"]);
    }
}
