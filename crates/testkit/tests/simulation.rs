//! Whatever crashes when: every applied workload converges, no promise is broken on the way, and no
//! acknowledged write is lost.
//!
//! `SEED=n cargo test -p testkit --test simulation` repeats a failure (`RUST_LOG=info` tells what
//! happened), `SEEDS=n` runs more of them.

/// How many seeds run without being asked for more: a bounded share of the test time.
const SEEDS: u64 = 6;

#[test]
fn workloads_converge_after_crashes_and_network_faults() {
    start_logging();
    let seeds: Vec<u64> = match number("SEED") {
        Some(seed) => vec![seed],
        None => (0..number("SEEDS").unwrap_or(SEEDS)).collect(),
    };
    for seed in seeds {
        match std::panic::catch_unwind(|| testkit::simulation::run(seed)) {
            Ok(Ok(report)) => println!("seed {seed}: {report:?}"),
            Ok(Err(error)) => panic!("SEED={seed} reproduces this: {error:?}"),
            Err(panic) => {
                eprintln!("SEED={seed} reproduces this");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn equal_seeds_give_equal_simulations() {
    let run = || testkit::simulation::run(1_000).expect("simulation");
    assert_eq!(run(), run());
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    // A second test of this process may have been first.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_test_writer()
        // The machine's clock means nothing in simulated time.
        .without_time()
        .try_init();
}
