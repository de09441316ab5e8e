//! How long the replacement of a failed pod waits. A pod may fail again and again for a reason that
//! its controller cannot change, for example because its node rejects it; without a pause every
//! failure would create the next pod at once. The first failed pod is replaced at once, and each
//! further replacement waits twice as long as the one before.

use std::collections::BTreeMap;
use std::time::Duration;

use client::ObjectKey;
use parking_lot::Mutex;
use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Replacements in a row: when the last one was made, and how long the next one waits after it.
#[derive(Clone, Copy, Debug)]
pub struct Streak {
    at: Instant,
    pause: Duration,
    /// Pods of a changed spec do not wait for the failures of the former one.
    generation: Option<i64>,
}

impl Streak {
    /// A first replacement is made now.
    pub fn begin(generation: Option<i64>) -> Streak {
        Streak {
            at: Instant::now(),
            pause: FIRST_PAUSE,
            generation,
        }
    }

    /// How long the next replacement still has to wait.
    pub fn remaining(&self, generation: Option<i64>) -> Duration {
        match self.generation == generation {
            true => self.pause.saturating_sub(self.at.elapsed()),
            false => Duration::ZERO,
        }
    }

    /// One more replacement is made now. Pauses double up to `longest`, and start over after twice
    /// the longest without a failure.
    pub fn next(self, generation: Option<i64>, longest: Duration) -> Streak {
        if self.is_over(longest) || self.generation != generation {
            return Streak::begin(generation);
        }
        Streak {
            at: Instant::now(),
            pause: (2 * self.pause).min(longest),
            generation,
        }
    }

    fn is_over(&self, longest: Duration) -> bool {
        self.at.elapsed() > 2 * longest
    }
}

/// The streaks of owners whose pods have fixed places: a node, or an ordinal. Bounded by the owners
/// and places there are.
pub struct FailuresByPlace {
    longest: Duration,
    streaks: Mutex<BTreeMap<ObjectKey, BTreeMap<String, Streak>>>,
}

impl FailuresByPlace {
    pub fn new(longest: Duration) -> FailuresByPlace {
        FailuresByPlace {
            longest,
            streaks: Mutex::default(),
        }
    }

    /// How long the replacement of a failed pod in this place still has to wait.
    pub fn remaining(&self, owner: &ObjectKey, place: &str, generation: Option<i64>) -> Duration {
        let streaks = self.streaks.lock();
        let streak = streaks.get(owner).and_then(|places| places.get(place));
        streak.map_or(Duration::ZERO, |streak| streak.remaining(generation))
    }

    /// The failed pod in this place is replaced now.
    pub fn replaced(&self, owner: &ObjectKey, place: &str, generation: Option<i64>) {
        let mut streaks = self.streaks.lock();
        let places = streaks.entry(owner.clone()).or_default();
        let streak = match places.get(place) {
            Some(streak) => streak.next(generation, self.longest),
            None => Streak::begin(generation),
        };
        places.insert(place.to_owned(), streak);
        places.retain(|_, streak| !streak.is_over(self.longest));
    }

    pub fn forget(&self, owner: &ObjectKey) {
        self.streaks.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_to_the_longest_and_start_over_with_another_spec_or_after_a_quiet_time() {
        let longest = Duration::from_secs(10);
        let failures = FailuresByPlace::new(longest);
        let owner = ObjectKey::new("default", "web");
        let remaining = |generation| failures.remaining(&owner, "a", Some(generation)).as_secs();
        assert_eq!(remaining(1), 0, "the first replacement does not wait");
        for pause in [1, 2, 4, 8, 10, 10] {
            failures.replaced(&owner, "a", Some(1));
            assert_eq!(remaining(1), pause);
            assert_eq!(remaining(2), 0, "another spec");
            tokio::time::advance(Duration::from_secs(pause)).await;
            assert_eq!(remaining(1), 0);
        }
        assert!(failures.remaining(&owner, "b", Some(1)).is_zero());
        failures.replaced(&owner, "a", Some(2));
        assert_eq!(remaining(2), 1);
        failures.replaced(&owner, "a", Some(2));
        tokio::time::advance(3 * longest).await;
        failures.replaced(&owner, "a", Some(2));
        assert_eq!(remaining(2), 1);
    }
}
