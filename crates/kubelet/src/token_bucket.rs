//! A rate that must not be exceeded for long: so many a second, and a burst of so many at once.
//!
//! It is our own because a caller is refused and never waits, and because time is passed in so that
//! the simulation can replace it; the crates of the field read the clock themselves.

use parking_lot::Mutex;

pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    level: Mutex<Level>,
}

struct Level {
    tokens: f64,
    /// When it was last filled, in microseconds.
    filled: i64,
}

impl TokenBucket {
    /// `None` where there is no limit.
    pub fn new(per_second: i32, burst: i32) -> Option<TokenBucket> {
        let burst = f64::from(burst.max(1));
        (per_second > 0).then(|| TokenBucket {
            per_second: per_second.into(),
            burst,
            level: Mutex::new(Level {
                tokens: burst,
                filled: i64::MIN,
            }),
        })
    }

    /// Whether one more may be done at `now`, in microseconds.
    pub fn try_take(&self, now: i64) -> bool {
        let mut level = self.level.lock();
        // A clock that was set back gives nothing.
        let passed = now.saturating_sub(level.filled).max(0) as f64 / 1e6;
        level.tokens = (level.tokens + passed * self.per_second).min(self.burst);
        level.filled = now;
        let may = level.tokens >= 1.0;
        if may {
            level.tokens -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_the_rate() {
        assert!(TokenBucket::new(0, 5).is_none());
        let bucket = TokenBucket::new(2, 3).expect("a limit");
        let taken = |now: i64| (0..10).filter(|_| bucket.try_take(now)).count();
        assert_eq!(taken(0), 3);
        assert_eq!(taken(400_000), 0);
        assert_eq!(taken(1_400_000), 2);
        assert_eq!(taken(0), 0, "the clock was set back");
        assert_eq!(taken(60_000_000), 3);
    }
}
