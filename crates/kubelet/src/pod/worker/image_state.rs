//! The state of the images of the pod's containers, and how failed pulls are shown.

use std::collections::BTreeMap;

use crate::{
    backoff::{self, Backoff},
    image::Image,
    images::PullFailure,
    pod::plan::Step,
};

#[derive(Default)]
pub(super) struct ImageState {
    /// By container name.
    steps: BTreeMap<String, Step<Image>>,
    failures: BTreeMap<String, ShownFailure>,
    backoffs: BTreeMap<String, Backoff>,
}

/// A failed pull and how it is shown.
struct ShownFailure {
    failure: PullFailure,
    /// From this time on it is shown as ImagePullBackOff.
    backoff_from: i64,
    is_announced: bool,
}

impl ImageState {
    pub fn steps(&self) -> &BTreeMap<String, Step<Image>> {
        &self.steps
    }

    pub fn pull_begins(&mut self, container: &str) {
        self.steps.insert(container.to_owned(), Step::Busy);
    }

    pub fn pull_succeeded(&mut self, container: String, image: Image) {
        self.failures.remove(&container);
        self.backoffs.remove(&container);
        self.steps.insert(container, Step::Done(image));
    }

    /// Returns when the pull is tried again.
    pub fn pull_failed(&mut self, container: String, failure: PullFailure, now: i64) -> i64 {
        let backoff = self.backoffs.entry(container.clone()).or_default();
        backoff.next(now, now, backoff::MAXIMUM);
        let until = backoff.until();
        self.steps.insert(container.clone(), Step::Failed { until });
        let shown = ShownFailure {
            failure,
            backoff_from: now + (until - now) / 2,
            is_announced: false,
        };
        self.failures.insert(container, shown);
        until
    }

    /// The container was started with its image: the next start looks for it again.
    pub fn used(&mut self, container: &str) {
        self.steps.remove(container);
    }

    /// The failed pulls that are to be shown as a back-off from now on, by container, each only once;
    /// and the times at which others will be.
    pub fn new_backoffs(&mut self, now: i64) -> (Vec<(String, PullFailure)>, Vec<i64>) {
        let (mut due, mut later) = (Vec::new(), Vec::new());
        for (container, shown) in &mut self.failures {
            if shown.is_announced || !shown.failure.was_pulled {
                continue;
            }
            if now < shown.backoff_from {
                later.push(shown.backoff_from);
                continue;
            }
            shown.is_announced = true;
            due.push((container.clone(), shown.failure.clone()));
        }
        (due, later)
    }

    /// The tasks that pulled were aborted.
    pub fn pulls_aborted(&mut self) {
        for step in self.steps.values_mut().filter(|step| **step == Step::Busy) {
            *step = Step::Idle;
        }
    }

    /// The clock was set: what waits for a time is tried again.
    pub fn forget_waits(&mut self) {
        self.backoffs.clear();
        for step in self.steps.values_mut() {
            if matches!(step, Step::Failed { .. }) {
                *step = Step::Idle;
            }
        }
    }
}
