//! The work of one event does not grow with the number of objects that it does not concern.
//!
//! Counted, not timed: whatever hands out objects (informers' caches and indexes, work queues, the
//! scheduler's table of nodes, the API server's watch cache) reports each to `environment::work`, and
//! everything here runs on one thread. The worlds are the same at every size but for the number of
//! others, all of them in the same namespace. A controller that looks at all objects of a kind for
//! each event makes these counts grow with the size; new controllers are covered as soon as they run.

mod controllers;
mod fake_api;
mod scheduler;
mod world;

/// How many others there are of each kind.
const SIZES: [usize; 3] = [100, 1_000, 10_000];

/// Asserts that no count at a larger size is above the one at `reference`, but for `slack`: caches
/// and batches may begin and end a little differently.
#[track_caller]
fn assert_does_not_grow(what: &str, counted: &[(usize, u64)], reference: usize, slack: u64) {
    let known = counted.iter().find(|(size, _)| *size == reference);
    let bound = known.map_or(0, |(_, count)| *count) + slack;
    for (size, count) in counted {
        assert!(
            *count <= bound,
            "{what}: the work grows with the number of others: {count} of {size}, more than {bound}: {counted:?}"
        );
    }
}
