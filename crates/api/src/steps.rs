//! Counts the steps of loops over user data, so that tests can assert how a cost grows with its
//! input. Outside of this crate's tests nothing is counted.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Notes comparisons made, elements moved or nodes visited.
#[inline]
pub(crate) fn count(steps: usize) {
    #[cfg(test)]
    TAKEN.set(TAKEN.get() + steps as u64);
    #[cfg(not(test))]
    let _ = steps;
}

/// How many steps `work` takes.
#[cfg(test)]
pub(crate) fn of(work: impl FnOnce()) -> u64 {
    let before = TAKEN.get();
    work();
    TAKEN.get() - before
}

/// Asserts that ten times the input takes at most about ten times the steps, the logarithm
/// included. A quadratic cost takes a hundred times as many.
#[cfg(test)]
pub(crate) fn assert_n_log_n(cost: impl Fn(usize) -> u64) {
    const FEW: usize = 1_000;
    let (few, many) = (cost(FEW), cost(10 * FEW));
    assert!(few > 0, "nothing was counted");
    assert!(
        few <= 100 * FEW as u64,
        "{few} steps for {FEW} elements: more than n log n"
    );
    assert!(
        many <= 20 * few,
        "{few} steps for {FEW} elements, {many} for ten times as many"
    );
}
