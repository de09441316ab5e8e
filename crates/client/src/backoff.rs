//! Exponential back-off with injected jitter. The caller decides what to repeat.

use std::time::Duration;

use environment::Environment;

/// Delays that double from `first` to `longest`, each increased by up to its own length at random, so
/// that clients which failed together do not retry together.
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff {
            first,
            longest,
            next: first,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    pub(crate) fn delay(&mut self, environment: &Environment) -> Duration {
        let base = self.next;
        self.next = (base * 2).min(self.longest);
        base + jitter(environment, base)
    }
}

/// A random duration in `0..=most`.
pub(crate) fn jitter(environment: &Environment, most: Duration) -> Duration {
    let micros = most.as_micros() as u64;
    Duration::from_micros(environment.random_u64() % (micros + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_the_limit_and_can_be_reset() {
        let environment = Environment::simulated(1, 0);
        let (first, longest) = (Duration::from_millis(50), Duration::from_millis(300));
        let mut backoff = Backoff::new(first, longest);
        for base in [50, 100, 200, 300, 300] {
            let delay = backoff.delay(&environment).as_millis();
            assert!((base..=2 * base).contains(&delay), "{delay} for {base}");
        }
        backoff.reset();
        assert!(backoff.delay(&environment) <= 2 * first);
    }
}
