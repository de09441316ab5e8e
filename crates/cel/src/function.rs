//! How functions are declared: overloads with their types, what they compute, and what they cost.

use crate::ast::Name;
use crate::types::Type;
use crate::value::Value;

/// One overload of a function or operator.
pub struct Overload {
    /// The function's name as calls have it, e.g. `matches` or `_+_`.
    pub function: &'static str,
    /// cel-go's identifier, e.g. `matches_string`.
    pub id: &'static str,
    /// Called as `target.function(…)`; the target's type is the first argument's.
    pub is_member: bool,
    pub arguments: Vec<Type>,
    pub result: Type,
    pub implementation: Implementation,
    pub cost: Cost,
}

/// What an overload computes. Errors of arguments are handled by the evaluator before the call.
pub enum Implementation {
    /// The evaluator's own, such as `_&&_` and `_?_:_`.
    BuiltIn,
    Function(for<'a> fn(&[Value<'a>]) -> Result<Value<'a>, EvalError>),
}

/// What a call costs, as the checker estimates and the evaluator counts it.
pub enum Cost {
    /// One unit.
    Fixed,
    /// Computed by a library's estimator and tracker.
    Library(&'static dyn CostModel),
}

/// The cost of a library's function: an estimate from sizes that are known when the expression is
/// compiled, and the count when it runs. Both are those of upstream's `pkg/cel/library/cost.go`.
pub trait CostModel: Send + Sync {
    fn estimate(&self, overload: &str, arguments: &[SizeEstimate]) -> Option<CallEstimate>;

    fn actual(&self, overload: &str, arguments: &[Value<'_>], result: &Value<'_>) -> Option<u64>;
}

/// The smallest and largest size that a value can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeEstimate {
    pub min: u64,
    pub max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEstimate {
    pub cost_min: u64,
    pub cost_max: u64,
    pub result_size: Option<SizeEstimate>,
}

/// Why an evaluation has no value. The text is cel-go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("{0}")]
    Message(String),
    #[error("no such key: {0}")]
    NoSuchKey(String),
    #[error("no such overload")]
    NoSuchOverload,
    #[error("operation cancelled: actual cost limit exceeded")]
    CostExceeded,
    #[error("operation interrupted")]
    Interrupted,
    #[error("no such attribute(s): {0}")]
    NoSuchAttribute(Name),
}
