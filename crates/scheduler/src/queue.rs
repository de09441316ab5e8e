//! The pods that wait for a node: ready to be tried, backing off, or waiting for a change.
//!
//! Pure: time is passed in. Ready pods come by priority, then by how long they have waited.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use environment::work;
use tokio::time::Instant;

use crate::PodInfo;

/// The safety net: after this long a pod is tried even if nothing seems to have changed for it.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

type ActiveKey = (Reverse<i64>, Instant, u64, String);

/// Who may be tried, in which order, and how long those wait that failed.
pub(crate) struct Rules {
    pub(crate) may_enter: Box<dyn Fn(&PodInfo) -> bool + Send>,
    pub(crate) rank: Box<dyn Fn(&PodInfo) -> i64 + Send>,
    pub(crate) first_backoff: Duration,
    pub(crate) longest_backoff: Duration,
}

pub(crate) struct Queue {
    rules: Rules,
    pods: BTreeMap<String, Waiting>,
    active: BTreeSet<ActiveKey>,
    backing_off: BTreeSet<(Instant, String)>,
    /// Backing off because something went wrong.
    after_error: BTreeSet<(Instant, String)>,
    unschedulable: BTreeSet<(Instant, String)>,
    /// How many of `unschedulable` each plugin rejected; the empty name counts those that no plugin
    /// rejected.
    turned_away: BTreeMap<&'static str, usize>,
    additions: u64,
}

/// A pod in the queue or taken from it.
pub(crate) struct Queued {
    pub(crate) pod: Arc<PodInfo>,
    /// Decisions made so far, the one it was taken for included.
    pub(crate) attempts: u32,
    /// When it entered the queue last, by the wall clock.
    pub(crate) since_micros: i64,
}

struct Waiting {
    queued: Queued,
    rank: i64,
    since: Instant,
    number: u64,
    place: Place,
}

#[derive(Clone)]
enum Place {
    /// Has scheduling gates; not tried until they are gone.
    Gated,
    Active,
    BackingOff {
        until: Instant,
        /// Whether an attempt went wrong: then the time is waited for in any case.
        after_error: bool,
    },
    /// Waits for an event that one of the plugins hopes for.
    Unschedulable {
        rejected_by: BTreeSet<&'static str>,
    },
}

impl Queue {
    pub(crate) fn new(rules: Rules) -> Queue {
        Queue {
            rules,
            pods: BTreeMap::new(),
            active: BTreeSet::new(),
            backing_off: BTreeSet::new(),
            after_error: BTreeSet::new(),
            unschedulable: BTreeSet::new(),
            turned_away: BTreeMap::new(),
            additions: 0,
        }
    }

    /// Adds a pod, or takes over its new state. Whether it was new.
    pub(crate) fn set(&mut self, pod: Arc<PodInfo>, now: Instant, now_micros: i64) -> bool {
        let uid = pod.uid.clone();
        let Some(waiting) = self.detach(&uid) else {
            let queued = Queued {
                pod,
                attempts: 0,
                since_micros: now_micros,
            };
            self.attach(queued, now, Place::Active);
            return true;
        };
        let Waiting {
            mut queued,
            since,
            place,
            ..
        } = waiting;
        let changed = queued.pod.pod.spec != pod.pod.spec
            || queued.pod.pod.metadata.labels != pod.pod.metadata.labels;
        queued.pod = pod;
        let place = match place {
            Place::Gated => Place::Active,
            Place::Unschedulable { .. } if changed => self.retry(&queued, since, now),
            place => place,
        };
        self.attach(queued, since, place);
        false
    }

    pub(crate) fn remove(&mut self, uid: &str) {
        self.detach(uid);
    }

    /// The pod to be tried next.
    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let uid = match self.active.first() {
            Some(first) => first.3.clone(),
            None => self.backing_off.first()?.1.clone(),
        };
        let mut queued = self.detach(&uid)?.queued;
        queued.attempts += 1;
        Some(queued)
    }

    #[cfg(test)]
    fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Whether there is a pod to be tried. When none is ready, those that only back off are, since
    /// no other pod would be tried instead.
    pub(crate) fn has_ready(&self) -> bool {
        !self.active.is_empty() || !self.backing_off.is_empty()
    }

    /// No node is feasible: the pod waits for a change.
    pub(crate) fn give_up(
        &mut self,
        queued: Queued,
        rejected_by: BTreeSet<&'static str>,
        now: Instant,
        now_micros: i64,
    ) {
        let queued = Queued {
            since_micros: now_micros,
            ..queued
        };
        self.attach(queued, now, Place::Unschedulable { rejected_by });
    }

    /// The attempt failed for another reason: try again after a while.
    pub(crate) fn try_later(&mut self, queued: Queued, now: Instant, now_micros: i64) {
        let until = now + self.backoff(queued.attempts);
        let queued = Queued {
            since_micros: now_micros,
            ..queued
        };
        let after_error = true;
        self.attach(queued, now, Place::BackingOff { until, after_error });
    }

    /// Whether no unschedulable pod was rejected by one of these plugins or without any plugin.
    pub(crate) fn is_empty_of(&self, plugins: impl Fn() -> BTreeSet<&'static str>) -> bool {
        if self.turned_away.is_empty() {
            return true;
        }
        let plugins = plugins();
        let mut turned_away = self.turned_away.keys();
        !turned_away.any(|plugin| plugin.is_empty() || plugins.contains(plugin))
    }

    /// Lets every unschedulable pod try again for which `may_help` says so.
    pub(crate) fn wake(
        &mut self,
        now: Instant,
        may_help: impl Fn(&PodInfo, &BTreeSet<&'static str>) -> bool,
    ) {
        let woken: Vec<String> = self
            .unschedulable
            .iter()
            .filter(|(_, uid)| {
                work::visit(1);
                self.pods
                    .get(uid)
                    .is_some_and(|waiting| match &waiting.place {
                        Place::Unschedulable { rejected_by } => {
                            may_help(&waiting.queued.pod, rejected_by)
                        }
                        _ => false,
                    })
            })
            .map(|(_, uid)| uid.clone())
            .collect();
        for uid in woken {
            if let Some(Waiting { queued, since, .. }) = self.detach(&uid) {
                let place = self.retry(&queued, since, now);
                self.attach(queued, since, place);
            }
        }
    }

    /// Makes ready what has waited its time.
    pub(crate) fn release(&mut self, now: Instant) {
        let over = |entry: Option<&(Instant, String)>, wait: Duration| {
            entry
                .filter(|(since, _)| *since + wait <= now)
                .map(|(_, uid)| uid.clone())
        };
        while let Some(uid) = over(self.backing_off.first(), Duration::ZERO)
            .or_else(|| over(self.after_error.first(), Duration::ZERO))
            .or_else(|| over(self.unschedulable.first(), LONGEST_WAIT))
        {
            if let Some(Waiting { queued, since, .. }) = self.detach(&uid) {
                self.attach(queued, since, Place::Active);
            }
        }
    }

    /// When `release` has something to do next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let backing_off = self.backing_off.first().into_iter();
        let backing_off = backing_off.chain(self.after_error.first());
        let backing_off = backing_off.map(|(until, _)| *until);
        let unschedulable = self.unschedulable.first();
        let unschedulable = unschedulable.map(|(since, _)| *since + LONGEST_WAIT);
        backing_off.chain(unschedulable).min()
    }

    /// Where a pod goes that may succeed now: it has to sit out the backoff of its last failure.
    fn retry(&self, queued: &Queued, failed: Instant, now: Instant) -> Place {
        let until = failed + self.backoff(queued.attempts);
        let after_error = false;
        match until > now {
            true => Place::BackingOff { until, after_error },
            false => Place::Active,
        }
    }

    fn backoff(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(10);
        let backoff = self.rules.first_backoff * (1 << doublings);
        backoff.min(self.rules.longest_backoff)
    }

    fn backing_off_in(&mut self, after_error: bool) -> &mut BTreeSet<(Instant, String)> {
        match after_error {
            true => &mut self.after_error,
            false => &mut self.backing_off,
        }
    }

    fn attach(&mut self, queued: Queued, since: Instant, place: Place) {
        self.additions += 1;
        let rank = (self.rules.rank)(&queued.pod);
        let uid = queued.pod.uid.clone();
        let place = match place {
            Place::Active if !(self.rules.may_enter)(&queued.pod) => Place::Gated,
            place => place,
        };
        match &place {
            Place::Gated => {}
            Place::Active => {
                let key = (Reverse(rank), since, self.additions, uid.clone());
                self.active.insert(key);
            }
            Place::BackingOff { until, after_error } => {
                self.backing_off_in(*after_error)
                    .insert((*until, uid.clone()));
            }
            Place::Unschedulable { rejected_by } => {
                self.unschedulable.insert((since, uid.clone()));
                for plugin in names(rejected_by) {
                    *self.turned_away.entry(plugin).or_default() += 1;
                }
            }
        }
        let waiting = Waiting {
            queued,
            rank,
            since,
            number: self.additions,
            place,
        };
        self.pods.insert(uid, waiting);
    }

    fn detach(&mut self, uid: &str) -> Option<Waiting> {
        let waiting = self.pods.remove(uid)?;
        let uid = uid.to_owned();
        match &waiting.place {
            Place::Gated => {}
            Place::Active => {
                let key = (Reverse(waiting.rank), waiting.since, waiting.number, uid);
                self.active.remove(&key);
            }
            Place::BackingOff { until, after_error } => {
                self.backing_off_in(*after_error).remove(&(*until, uid));
            }
            Place::Unschedulable { rejected_by } => {
                self.unschedulable.remove(&(waiting.since, uid));
                for plugin in names(rejected_by) {
                    if let Some(count) = self.turned_away.get_mut(plugin) {
                        *count -= 1;
                        if *count == 0 {
                            self.turned_away.remove(plugin);
                        }
                    }
                }
            }
        }
        Some(waiting)
    }
}

/// Under which names a rejection is counted.
fn names(rejected_by: &BTreeSet<&'static str>) -> impl Iterator<Item = &'static str> {
    let nobody = rejected_by.is_empty().then_some("");
    rejected_by.iter().copied().chain(nobody)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{pod, pod_asking},
        pod_info::is_gated,
    };

    fn queue() -> Queue {
        Queue::new(Rules {
            may_enter: Box::new(|pod| !is_gated(&pod.pod)),
            rank: Box::new(|pod| i64::from(pod.priority)),
            first_backoff: SECOND,
            longest_backoff: SECOND * 10,
        })
    }

    fn prioritised(name: &str, priority: i32) -> Arc<PodInfo> {
        pod(
            name,
            &format!(r#"{{"containers":[],"priority":{priority}}}"#),
        )
    }

    fn popped(queue: &mut Queue) -> Option<String> {
        queue.pop().map(|queued| queued.pod.key.name.clone())
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pods_are_popped_by_priority_then_by_age() {
        let (mut queue, now) = (queue(), Instant::now());
        queue.set(prioritised("late", 0), now + SECOND, 0);
        queue.set(prioritised("early", 0), now, 0);
        queue.set(prioritised("first", 0), now, 0);
        queue.set(prioritised("urgent", 5), now + SECOND * 2, 0);
        queue.set(prioritised("negative", -1), now, 0);
        let order: Vec<_> = std::iter::from_fn(|| popped(&mut queue)).collect();
        assert_eq!(order, ["urgent", "early", "first", "late", "negative"]);
    }

    #[test]
    fn updates_keep_the_place_and_follow_the_priority() {
        let (mut queue, now) = (queue(), Instant::now());
        assert!(queue.set(prioritised("a", 0), now, 0));
        assert!(queue.set(prioritised("b", 0), now, 0));
        assert!(!queue.set(prioritised("b", 9), now, 0));
        assert_eq!(popped(&mut queue).as_deref(), Some("b"));
        queue.remove("uid-a");
        assert_eq!(popped(&mut queue), None);
        assert!(queue.pods.is_empty() && queue.active.is_empty());
    }

    #[test]
    fn gated_pods_wait_for_their_gates() {
        let (mut queue, now) = (queue(), Instant::now());
        let gated = pod("a", r#"{"containers":[],"schedulingGates":[{"name":"g"}]}"#);
        queue.set(gated.clone(), now, 0);
        assert!(!queue.has_active());
        queue.wake(now, |_, _| true);
        queue.release(now + LONGEST_WAIT * 2);
        assert!(!queue.has_active());
        queue.set(gated, now, 0);
        assert!(!queue.has_active());
        queue.set(pod("a", r#"{"containers":[]}"#), now, 0);
        assert!(queue.has_active());
    }

    #[test]
    fn backoff_doubles_to_ten_seconds() {
        let seconds: Vec<u64> = (1..=6).map(|n| queue().backoff(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
        assert_eq!(queue().backoff(u32::MAX), SECOND * 10);
    }

    fn given_up(now: Instant) -> Queue {
        let mut queue = queue();
        queue.set(pod_asking("a", "1"), now, 0);
        let queued = queue.pop().expect("a");
        queue.give_up(queued, BTreeSet::from(["NodeResourcesFit"]), now, 0);
        assert!(!queue.has_active());
        queue
    }

    #[test]
    fn an_event_that_helps_wakes_after_the_backoff() {
        let now = Instant::now();
        let mut queue = given_up(now);
        queue.wake(now, |_, rejected_by| rejected_by.contains("NodeAffinity"));
        assert_eq!(queue.next_due(), Some(now + LONGEST_WAIT), "not woken");
        queue.wake(now, |_, rejected_by| {
            rejected_by.contains("NodeResourcesFit")
        });
        assert!(!queue.has_active(), "backing off");
        assert_eq!(queue.next_due(), Some(now + SECOND));
        assert!(queue.has_ready(), "nobody else is ready");
        queue.release(now + SECOND);
        assert!(queue.has_active());

        let mut queue = given_up(now);
        queue.wake(now + SECOND, |_, _| true);
        assert!(queue.has_active(), "the backoff is over already");
        let queued = queue.pop().expect("a");
        assert_eq!(queued.attempts, 2);
    }

    #[test]
    fn a_change_of_the_pod_itself_wakes_it_but_a_new_status_does_not() {
        let now = Instant::now();
        let mut queue = given_up(now);
        queue.set(pod_asking("a", "1"), now + SECOND, 0);
        assert!(!queue.has_active());
        queue.set(pod_asking("a", "500m"), now + SECOND, 0);
        assert!(queue.has_active());
    }

    #[test]
    fn no_pod_waits_for_ever() {
        let now = Instant::now();
        let mut queue = given_up(now);
        queue.release(now + LONGEST_WAIT - SECOND);
        assert!(!queue.has_active());
        queue.release(now + LONGEST_WAIT);
        assert!(queue.has_active());
        let queued = queue.pop().expect("a");
        queue.try_later(queued, now, 7);
        assert!(!queue.has_ready(), "something went wrong");
        assert_eq!(
            queue.next_due(),
            Some(now + SECOND * 2),
            "the second attempt"
        );
        queue.remove("uid-a");
        assert_eq!(queue.next_due(), None);
    }
}
