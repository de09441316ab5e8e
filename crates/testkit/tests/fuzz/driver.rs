//! Runs a target on many inputs, each of which follows from the seed and its number alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::random::Random;

/// The stack of the server's own threads.
const STACK: usize = 2 << 20;
const INPUTS: u64 = 2_000;
const SEED: u64 = 2_026;
/// How much of an input a failure shows.
const SHOWN: usize = 4_096;

/// What a target may allocate for one input, growth included.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Whatever the input.
    pub bytes: u64,
    pub bytes_per_byte: u64,
}

impl Bound {
    /// For what reads its input and makes nothing out of it that is much larger.
    pub const READING: Bound = Bound {
        bytes: 4 << 20,
        bytes_per_byte: 4_000,
    };
}

/// Makes inputs and has them checked.
pub fn run(
    target: &'static str,
    bound: Bound,
    make: impl Fn(&mut Random) -> Vec<u8> + Send + 'static,
    mut check: impl FnMut(&[u8]) + Send + 'static,
) {
    let seed = number("FUZZ_SEED").unwrap_or(SEED);
    let first = number("FUZZ_FIRST").unwrap_or(0);
    let inputs = number("FUZZ_INPUTS").unwrap_or(INPUTS);
    let is_traced = number("FUZZ_TRACE").is_some();
    println!("{target}: FUZZ_SEED={seed} FUZZ_FIRST={first} FUZZ_INPUTS={inputs}");
    let work = move || {
        for index in first..first + inputs {
            let input = make(&mut Random::new(seed.wrapping_add(index), target));
            if is_traced {
                println!("{target}: FUZZ_FIRST={index}, {} bytes", input.len());
            }
            let mut result = Ok(());
            let allocated = allocation_counter::measure(|| {
                result = catch_unwind(AssertUnwindSafe(|| check(&input)));
            });
            let most = bound.bytes + bound.bytes_per_byte * input.len() as u64;
            let problem = match result {
                Err(_) => Some("panics".to_string()),
                Ok(()) if allocated.bytes_total > most => Some(format!(
                    "allocates {} bytes, more than {most}",
                    allocated.bytes_total
                )),
                Ok(()) => None,
            };
            if let Some(problem) = problem {
                let shown = &input[..input.len().min(SHOWN)];
                panic!(
                    "{target} {problem}: FUZZ_SEED={seed} FUZZ_FIRST={index} FUZZ_INPUTS=1, {} bytes of input: {:?}",
                    input.len(),
                    String::from_utf8_lossy(shown)
                );
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name(target.to_string())
        .stack_size(STACK)
        .spawn(work)
        .expect("a thread");
    if thread.join().is_err() {
        panic!("{target}: see above");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
