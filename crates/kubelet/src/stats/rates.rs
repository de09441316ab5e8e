//! CPU rates from cumulative CPU time: the difference of two samples. Bounded: what was not
//! sampled for a while is forgotten.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Samples closer together say little.
const SHORTEST: i64 = 5_000_000;
const FORGET: i64 = 600_000_000;

#[derive(Default)]
pub struct Rates(Mutex<BTreeMap<String, Last>>);

#[derive(Clone, Copy)]
struct Last {
    at: i64,
    total: u64,
    rate: Option<u64>,
}

impl Rates {
    /// Takes a sample of `total` nanoseconds of CPU time at `now` (microseconds); the rate in
    /// nanoseconds per second, once it is known.
    pub fn sample(&self, key: &str, total: u64, now: i64) -> Option<u64> {
        let mut known = self.0.lock();
        // A sample from a time yet to come was taken before the clock was set.
        known.retain(|_, last| (0..FORGET).contains(&(now - last.at)));
        let Some(last) = known.get_mut(key) else {
            let first = Last {
                at: now,
                total,
                rate: None,
            };
            known.insert(key.to_owned(), first);
            return None;
        };
        let passed = now - last.at;
        if passed >= SHORTEST {
            let used = u128::from(total.saturating_sub(last.total));
            let rate = (used * 1_000_000 / passed as u128) as u64;
            *last = Last {
                at: now,
                total,
                rate: Some(rate),
            };
        }
        last.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_two_samples_some_time_apart() {
        let rates = Rates::default();
        let second = 1_000_000;
        assert_eq!(rates.sample("a", 100, 0), None);
        assert_eq!(rates.sample("a", 200, second), None, "too soon");
        assert_eq!(
            rates.sample("a", 10_000_000_100, 10 * second),
            Some(1_000_000_000)
        );
        assert_eq!(
            rates.sample("a", 10_000_000_200, 11 * second),
            Some(1_000_000_000)
        );
        assert_eq!(rates.sample("b", 5, 700 * second), None);
        assert_eq!(rates.sample("a", 6, 701 * second), None, "forgotten");
    }
}
