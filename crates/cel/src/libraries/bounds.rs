//! How much one call may build. The language counts the cost of a call when it is over, so a single
//! one could take all memory before it is stopped; these are refused before.

use crate::function::EvalError;
use crate::libraries::declare::message;

/// The largest text that a function makes.
const TEXT_BYTES: usize = 64 << 20;
/// The longest list that a function makes where its cost does not count the items.
const ITEMS: usize = 4_000_000;
/// No cost limit is above this, so what costs more need not be done to be refused.
const COST: u64 = 20_000_000;

pub(crate) fn check_text(function: &str, bytes: usize) -> Result<(), EvalError> {
    match bytes <= TEXT_BYTES {
        true => Ok(()),
        false => Err(message(format!(
            "{function}: the result would be longer than {TEXT_BYTES} bytes"
        ))),
    }
}

pub(crate) fn check_items(function: &str, items: usize) -> Result<(), EvalError> {
    match items <= ITEMS {
        true => Ok(()),
        false => Err(message(format!(
            "{function}: the result would have more than {ITEMS} items"
        ))),
    }
}

/// For functions whose cost is at least the product of two sizes.
pub(crate) fn check_product(left: usize, right: usize) -> Result<(), EvalError> {
    match (left as u64).saturating_mul(right as u64) <= COST {
        true => Ok(()),
        false => Err(EvalError::CostExceeded),
    }
}
