//! How long to wait before trying again: 10 s doubling to 300 s (or less, where the configuration
//! says so), forgotten once the thing has been well for ten minutes. Pure: times are passed in, in microseconds since the epoch.

use environment::go_duration;

const INITIAL: i64 = 10_000_000;
pub const MAXIMUM: i64 = 300_000_000;
const FORGOTTEN: i64 = 600_000_000;

/// One thing's history of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// The present delay in microseconds; 0 when it never failed.
    delay: i64,
    updated: i64,
}

impl Backoff {
    /// Until when to wait after an event (a container's end) at `event`, if that is not over by
    /// `now`.
    pub fn waits_since(&self, event: i64, now: i64) -> Option<i64> {
        if self.delay == 0 || self.expired(event) {
            return None;
        }
        let until = event + self.delay;
        (now < until).then_some(until)
    }

    /// Counts one more try whose cause was an event at `event`. `longest`: the longest delay.
    pub fn next(&mut self, event: i64, now: i64, longest: i64) {
        self.delay = if self.delay == 0 || self.expired(event) {
            INITIAL.min(longest)
        } else {
            (self.delay * 2).min(longest)
        };
        self.updated = now;
    }

    /// When the present delay, counted from the last [`Backoff::next`], is over.
    pub fn until(&self) -> i64 {
        self.updated + self.delay
    }

    /// The present delay as Go prints a duration (`10s`, `1m20s`, `5m0s`).
    pub fn text(&self) -> String {
        go_duration::format(self.delay * 1000)
    }

    fn expired(&self, event: i64) -> bool {
        event - self.updated > FORGOTTEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn the_first_restart_is_at_once_then_ten_seconds_doubling() {
        let mut backoff = Backoff::default();
        let mut now = 1_000 * SECOND;
        assert_eq!(backoff.waits_since(now, now), None);
        let mut delays = Vec::new();
        for _ in 0..7 {
            backoff.next(now, now, MAXIMUM);
            now += SECOND;
            let until = backoff.waits_since(now, now).expect("in backoff");
            delays.push((until - now) / SECOND);
            now = until;
            assert_eq!(
                backoff.waits_since(now - delays[delays.len() - 1] * SECOND, now),
                None
            );
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.text(), "5m0s");
    }

    #[test]
    fn ten_good_minutes_reset_the_back_off() {
        let mut backoff = Backoff::default();
        backoff.next(0, SECOND, MAXIMUM);
        backoff.next(0, SECOND, MAXIMUM);
        let end = SECOND + 601 * SECOND;
        assert_eq!(backoff.waits_since(end, end), None);
        backoff.next(end, end, MAXIMUM);
        assert_eq!(backoff.text(), "10s");
    }

    #[test]
    fn the_configuration_may_shorten_the_longest_back_off() {
        let mut backoff = Backoff::default();
        backoff.next(0, 0, 2 * SECOND);
        assert_eq!(backoff.text(), "2s");
        backoff.next(SECOND, SECOND, 2 * SECOND);
        assert_eq!(backoff.until(), 3 * SECOND);
    }
}
