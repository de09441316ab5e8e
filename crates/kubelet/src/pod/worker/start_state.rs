//! The starts of containers: restart back-offs, failed starts, and why containers wait.

use std::collections::{BTreeMap, BTreeSet};

use crate::{backoff::Backoff, pod::status::Waiting};

const SECOND: i64 = 1_000_000;
/// A container that could not be created or started is tried again after this time, unless something
/// changes before.
const START_RETRY: i64 = 10 * SECOND;

/// All of it is by container name.
#[derive(Default)]
pub(super) struct StartState {
    restarts: BTreeMap<String, Backoff>,
    /// Until when failed starts wait.
    failures: BTreeMap<String, i64>,
    /// The containers that were killed to be replaced by a new one, regardless of their restart policy.
    replacing: BTreeSet<String>,
    waiting: BTreeMap<String, Waiting>,
}

impl StartState {
    pub fn restarts(&self) -> &BTreeMap<String, Backoff> {
        &self.restarts
    }

    pub fn failures(&self) -> &BTreeMap<String, i64> {
        &self.failures
    }

    pub fn replacing(&self) -> &BTreeSet<String> {
        &self.replacing
    }

    pub fn waiting(&self) -> &BTreeMap<String, Waiting> {
        &self.waiting
    }

    /// Lengthens the back-off of a container whose last run ended at `ended`.
    pub fn restarts_after(&mut self, container: &str, ended: i64, now: i64, longest: i64) {
        let backoff = self.restarts.entry(container.to_owned()).or_default();
        backoff.next(ended, now, longest);
    }

    pub fn started(&mut self, container: &str) {
        self.waiting.remove(container);
        self.failures.remove(container);
    }

    /// Returns when the start is tried again.
    pub fn failed(&mut self, container: &str, waiting: Waiting, now: i64) -> i64 {
        let until = now + START_RETRY;
        self.waiting.insert(container.to_owned(), waiting);
        self.failures.insert(container.to_owned(), until);
        until
    }

    /// Something changed that may have made starts fail: they are tried again at once.
    pub fn retry_failed(&mut self) {
        self.failures.clear();
    }

    /// Shows why a container waits. Returns false if that was shown before.
    pub fn show_waiting(&mut self, container: &str, waiting: Waiting) -> bool {
        if self.waiting.get(container) == Some(&waiting) {
            return false;
        }
        self.waiting.insert(container.to_owned(), waiting);
        true
    }

    /// The image is there: the container no longer waits for it, unless its start failed.
    pub fn image_is_there(&mut self, container: &str, now: i64) {
        let failed = self.failures.get(container);
        if failed.is_none_or(|until| now >= *until) {
            self.waiting.remove(container);
        }
    }

    /// The container is killed so that a new one takes its place. A container whose definition has
    /// changed starts without a back-off.
    pub fn replace(&mut self, container: &str, forget_backoff: bool) {
        self.replacing.insert(container.to_owned());
        if forget_backoff {
            self.restarts.remove(container);
        }
    }

    pub fn replaced(&mut self, container: &str) {
        self.replacing.remove(container);
    }

    pub fn retain_replacing(&mut self, stays: impl Fn(&str) -> bool) {
        self.replacing.retain(|container| stays(container));
    }

    pub fn replace_nothing(&mut self) {
        self.replacing.clear();
    }

    /// The clock was set: what waits for a time is tried again.
    pub fn forget_waits(&mut self) {
        self.restarts.clear();
        self.failures.clear();
    }
}
