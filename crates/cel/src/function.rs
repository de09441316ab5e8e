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

/// What a function computes from values.
pub type Compute = for<'a> fn(&[Value<'a>]) -> Result<Value<'a>, EvalError>;

/// What an overload computes. Errors of arguments are handled by the evaluator before the call.
#[derive(Clone, Copy)]
pub enum Implementation {
    /// The evaluator's own, such as `_&&_` and `_?_:_`.
    BuiltIn,
    /// Called when the types of the values agree with the overload's; where none agrees, the
    /// evaluator says `no such overload: function(type, type)`.
    Function(Compute),
    /// The same for all overloads of its function (cel-go's singletons, and functions without type
    /// guards): it looks at the types of the values itself.
    Singleton(Compute),
}

/// What a call costs, as the checker estimates and the evaluator counts it.
#[derive(Clone, Copy)]
pub enum Cost {
    /// The language's own, by the overload's identifier; one unit for most.
    Fixed,
    /// Computed by a library's estimator and tracker.
    Library(&'static dyn CostModel),
}

/// The cost of a library's function: an estimate from sizes that are known when the expression is
/// compiled, and the count when it runs. Both are those of upstream's `pkg/cel/library/cost.go`.
pub trait CostModel: Send + Sync {
    fn estimate(&self, overload: &str, arguments: &[SizeEstimate]) -> Option<CallEstimate>;

    /// The overload is empty where more than one fits and the run decides. An argument that is an
    /// error is given as null; the result is `None` where the call failed. Without an answer, the
    /// cost is the language's own.
    fn actual(
        &self,
        function: &str,
        overload: &str,
        arguments: &[Value<'_>],
        result: Option<&Value<'_>>,
    ) -> Option<u64>;
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
