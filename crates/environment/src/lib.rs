//! The wall clock and randomness, which a simulation replaces; and four small things that every
//! crate needs: the printer of error chains, Go's durations, the counter of visited objects, and
//! the record of skipped tests.
//!
//! Timers are tokio's (a simulation pauses them). Wall-clock readings and random bytes come from
//! the [`Environment`] that every component receives, never from the standard library directly.

mod chain;
pub mod go_duration;
mod skip;
pub mod work;

pub use chain::{Chain, chain};
pub use skip::skip_test;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, Ordering},
};

use rand::{Rng, SeedableRng, rngs::StdRng};

/// The injected clock and randomness. Cheap to clone.
#[derive(Clone)]
pub struct Environment {
    clock: Clock,
    entropy: Arc<Mutex<StdRng>>,
}

#[derive(Clone)]
enum Clock {
    System,
    /// The machine's clock, set wrong by so many microseconds.
    Shifted(Arc<AtomicI64>),
    /// Wall time that moves with tokio's (paused) timer clock.
    Simulated {
        origin_micros: i64,
        origin: tokio::time::Instant,
    },
}

impl Environment {
    /// The machine's clock and a generator seeded by the kernel.
    pub fn system() -> Environment {
        Environment {
            clock: Clock::System,
            entropy: Arc::new(Mutex::new(rand::make_rng())),
        }
    }

    /// The machine's clock, which somebody sets: it is wrong by `shift` microseconds.
    pub fn shifted(shift: Arc<AtomicI64>) -> Environment {
        Environment {
            clock: Clock::Shifted(shift),
            ..Environment::system()
        }
    }

    /// A clock that follows tokio's timers from `origin_micros` on, and a generator with `seed`.
    /// Must be called inside a tokio runtime.
    pub fn simulated(seed: u64, origin_micros: i64) -> Environment {
        Environment {
            clock: Clock::Simulated {
                origin_micros,
                origin: tokio::time::Instant::now(),
            },
            entropy: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))),
        }
    }

    /// Microseconds since the Unix epoch.
    pub fn now_micros(&self) -> i64 {
        match &self.clock {
            Clock::System => jiff::Timestamp::now().as_microsecond(),
            Clock::Shifted(shift) => {
                jiff::Timestamp::now().as_microsecond() + shift.load(Ordering::Relaxed)
            }
            Clock::Simulated {
                origin_micros,
                origin,
            } => origin_micros + origin.elapsed().as_micros() as i64,
        }
    }

    /// The wall-clock time.
    pub fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_microsecond(self.now_micros()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
    }

    /// Fills `buffer` with random bytes.
    pub fn fill(&self, buffer: &mut [u8]) {
        self.entropy
            .lock()
            .expect("entropy lock poisoned")
            .fill_bytes(buffer);
    }

    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A random (version 4) UUID in its text form.
    pub fn uuid(&self) -> String {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut text = String::with_capacity(36);
        for (index, byte) in bytes.into_iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            for digit in [byte >> 4, byte & 0x0f] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
            }
        }
        text
    }

    /// `length` characters of the alphabet Kubernetes uses for generated names (no vowels, so that
    /// no word appears by chance).
    pub fn name_suffix(&self, length: usize) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..length)
            .map(|_| ALPHABET[(self.random_u64() % ALPHABET.len() as u64) as usize] as char)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_seed_fixes_time_and_randomness() {
        let (a, b) = (
            Environment::simulated(7, 1_000),
            Environment::simulated(7, 1_000),
        );
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        assert_eq!(a.now_micros(), 3_001_000);
        assert_eq!(a.uuid(), b.uuid());
        assert_ne!(a.uuid(), a.uuid());
    }

    #[test]
    fn uuids_are_version_four() {
        let uuid = Environment::system().uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&uuid.as_bytes()[19]));
    }
}
