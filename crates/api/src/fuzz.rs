//! Property tests with seeds: random documents of every built-in type, and damaged input for
//! everything that reads what strangers send. A few seconds in `make test`; `FUZZ_ROUNDS` makes
//! campaigns of it (see `scripts/soak`), `FUZZ_SEED` repeats one.

mod documents;
mod input;
mod random;
mod readers;
mod wire;

pub(crate) use documents::document;
pub(crate) use random::Random;

/// How often each test goes through its inputs.
fn rounds() -> u64 {
    number("FUZZ_ROUNDS").unwrap_or(1)
}

/// A source of randomness for one round of one test.
fn random(test: &str, round: u64) -> Random {
    let seed = number("FUZZ_SEED").unwrap_or(2_026).wrapping_add(round);
    println!("{test}: FUZZ_SEED={seed}");
    Random::new(seed, test)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
