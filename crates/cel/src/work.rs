//! How much work an evaluation may do that its cost does not count.
//!
//! Comparing two lists costs a tenth of their length, whatever is in them; cel-go then compares for
//! minutes. The steps of comparisons are counted here, for each evaluation of a thread, and an
//! evaluation that has none left ends as one that costs too much.

use std::cell::Cell;

use crate::error::EvalError;

/// Less than a second of comparisons.
const STEPS: u64 = 20_000_000;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(STEPS) };
}

/// Begins an evaluation; answers with what the one around it has left.
pub fn begin() -> u64 {
    LEFT.replace(STEPS)
}

/// Ends an evaluation.
pub fn end(outer: u64) {
    LEFT.set(outer);
}

/// Takes steps; false where none are left, and then what was asked for need not be done.
pub fn spend(steps: u64) -> bool {
    LEFT.with(|left| {
        let now = left.get().saturating_sub(steps);
        left.set(now);
        now > 0
    })
}

pub fn check() -> Result<(), EvalError> {
    match LEFT.get() {
        0 => Err(EvalError::CostExceeded),
        _ => Ok(()),
    }
}
