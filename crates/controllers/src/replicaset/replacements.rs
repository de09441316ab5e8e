//! When failed pods of a set are replaced. See [`crate::owned_pods::failures`] for the pauses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use crate::meta;
use crate::owned_pods::failures::Streak;

const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// What is remembered of sets with failed pods. Bounded by the sets and the failed pods there are.
#[derive(Default)]
pub struct Replacements(Mutex<BTreeMap<ObjectKey, State>>);

#[derive(Default)]
struct State {
    /// `None` before the first replacement.
    streak: Option<Streak>,
    /// UIDs of failed pods that need no replacement any more.
    settled: BTreeSet<String>,
    /// UIDs of failed pods that wait for one. They do so also when somebody has deleted them.
    unsettled: BTreeSet<String>,
    /// The creation time of the youngest failed pod that was replaced, and that waits.
    youngest_settled: i64,
    youngest: i64,
    /// Whether an Event about the present delay has been written.
    announced: bool,
}

/// How many of the missing pods may be created.
#[derive(Debug, Default, PartialEq)]
pub struct Allowance {
    pub create: usize,
    /// When the replacements of failed pods may be created that have to wait.
    pub later: Option<Duration>,
    /// One of the failed pods whose replacements have just begun to wait.
    pub announce: Option<Arc<Pod>>,
}

impl Replacements {
    /// `owned` are all pods of the set, `missing` how many of its replicas there are too few. Pods
    /// that are missing for another reason than a failure never wait.
    pub fn allow(
        &self,
        key: &ObjectKey,
        generation: Option<i64>,
        owned: &[Arc<Pod>],
        missing: usize,
    ) -> Allowance {
        let at_once = Allowance {
            create: missing,
            ..Allowance::default()
        };
        let failed: Vec<&Arc<Pod>> = owned.iter().filter(|pod| has_failed(pod)).collect();
        let mut known = self.0.lock();
        if failed.is_empty() && !known.contains_key(key) {
            return at_once;
        }
        let state = known.entry(key.clone()).or_default();
        let present: BTreeSet<&str> = failed.iter().map(|pod| uid(pod)).collect();
        state.settled.retain(|uid| present.contains(uid.as_str()));
        for pod in &failed {
            if !state.settled.contains(uid(pod)) && state.unsettled.insert(uid(pod).to_owned()) {
                state.youngest = state.youngest.max(meta::created(&pod.metadata));
            }
        }
        if state.unsettled.is_empty() {
            return at_once;
        }
        let streak = state.streak.filter(|_| missing > 0);
        let remaining = streak.map_or(Duration::ZERO, |streak| streak.remaining(generation));
        if !remaining.is_zero() {
            let announce = match std::mem::replace(&mut state.announced, true) {
                true => None,
                false => failed
                    .iter()
                    .find(|pod| state.unsettled.contains(uid(pod)))
                    .copied()
                    .cloned(),
            };
            return Allowance {
                create: missing.saturating_sub(state.unsettled.len()),
                later: Some(remaining),
                announce,
            };
        }
        if missing > 0 {
            // A replacement that works ends the streak.
            let has_recovered = owned.iter().any(|pod| {
                let created = meta::created(&pod.metadata);
                semantics::pod::is_active(pod)
                    && semantics::pod::is_ready(pod)
                    && created > state.youngest_settled
            });
            state.streak = Some(match state.streak {
                Some(streak) if !has_recovered => streak.next(generation, LONGEST_PAUSE),
                _ => Streak::begin(generation),
            });
            state.announced = false;
            state.youngest_settled = state.youngest;
        }
        let settled = std::mem::take(&mut state.unsettled).into_iter();
        let settled = settled.filter(|uid| present.contains(uid.as_str()));
        state.settled.extend(settled);
        at_once
    }

    pub fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}

fn has_failed(pod: &Pod) -> bool {
    semantics::pod::phase(pod) == "Failed"
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn pod(name: &str, phase: &str, created: i64) -> Arc<Pod> {
        let ready = if phase == "Running" { "True" } else { "False" };
        let pod = serde_json::json!({
            "metadata": {"name": name, "uid": name,
                "creationTimestamp": Timestamp::from_second(created).unwrap().to_string()},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn replacements_of_failed_pods_wait_ever_longer() {
        let replacements = Replacements::default();
        let key = ObjectKey::new("default", "web");
        let mut pods = Vec::new();
        let mut created = 0;
        // One replica, which fails the moment it is there.
        let began = tokio::time::Instant::now();
        while began.elapsed() < Duration::from_secs(3600) {
            let allowance = replacements.allow(&key, Some(1), &pods, 1);
            created += allowance.create;
            for _ in 0..allowance.create {
                pods.push(pod(&format!("p{created}"), "Failed", created as i64));
            }
            let pause = allowance.later.unwrap_or(Duration::from_millis(10));
            tokio::time::advance(pause).await;
        }
        // 1, 2, 4 … 256 s take 511 s, then one every 300 s.
        assert_eq!(created, 2 + 9 + (3600 - 511) / 300);
        let allowance = replacements.allow(&key, Some(2), &pods, 1);
        assert_eq!(allowance.create, 1, "another spec starts over");
    }

    #[tokio::test(start_paused = true)]
    async fn only_replacements_of_failed_pods_wait() {
        let replacements = Replacements::default();
        let key = ObjectKey::new("default", "web");
        let mut pods = vec![pod("a", "Failed", 1)];
        assert_eq!(replacements.allow(&key, None, &pods, 1).create, 1);
        pods.push(pod("b", "Failed", 2));
        // Three more were deleted meanwhile.
        let allowance = replacements.allow(&key, None, &pods, 4);
        assert_eq!(allowance.create, 3);
        assert_eq!(allowance.later, Some(Duration::from_secs(1)));
        assert!(allowance.announce.is_some());
        assert_eq!(replacements.allow(&key, None, &pods, 4).announce, None);
        // Who deletes a failed pod does not end the wait.
        assert_eq!(replacements.allow(&key, None, &[], 4).create, 3);
        // With all replicas there, what failed before is of no importance.
        assert_eq!(
            replacements.allow(&key, None, &pods, 0),
            Allowance::default()
        );
        let allowance = replacements.allow(&key, None, &pods, 1);
        assert_eq!((allowance.create, allowance.later), (1, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_replacement_that_runs_resets_the_back_off() {
        let replacements = Replacements::default();
        let key = ObjectKey::new("default", "web");
        let mut pods = Vec::new();
        for number in 1..=6 {
            pods.push(pod(&format!("p{number}"), "Failed", number));
            replacements.allow(&key, None, &pods, 1);
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        pods.push(pod("works", "Running", 10));
        pods.push(pod("p7", "Failed", 5));
        assert_eq!(replacements.allow(&key, None, &pods, 1).create, 1);
        pods.push(pod("p8", "Failed", 11));
        let later = replacements.allow(&key, None, &pods, 1).later;
        assert_eq!(later, Some(Duration::from_secs(1)));
    }
}
