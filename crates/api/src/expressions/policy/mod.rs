//! Policies of admission: what they say, compiled once, and evaluated for each request that they are
//! about.
//!
//! - [`Compiler`] compiles the expressions of one policy. Its variables come first, in their order;
//!   each is known to what is compiled after it, with its type.
//! - [`Evaluation`] evaluates expressions of one policy with one input. A variable is evaluated when it
//!   is read first, and kept for the other expressions of the same evaluation.
//! - [`MatchConditions`] decide whether a policy is about a request.
//! - [`ValidatingPolicy`] is all of it for policies that refuse. Mutating policies are put together of
//!   the same parts.
//!
//! Which requests a policy is asked about, its bindings and parameters are the server's.

mod compiler;
mod conditions;
mod evaluation;
mod uses;
mod validating;

#[cfg(test)]
mod tests;

pub use compiler::{Compiler, Expression, Variables};
pub(in crate::expressions) use compiler::{VARIABLES, VariableTypes};
pub use conditions::{MatchConditions, Matched};
pub use evaluation::{Evaluation, OutOfBudget};
pub use uses::Uses;
pub use validating::{Annotation, Decision, Judged, Said, ValidatingPolicy};

/// What the expressions of a policy may cost together, for one binding and parameter.
pub const BUDGET: u64 = 10_000_000;

/// What the match conditions of a policy may cost together.
pub const CONDITIONS_BUDGET: u64 = 2_500_000;

/// What one expression, or one variable, may cost.
pub const CALL_LIMIT: u64 = 1_000_000;
