//! How functions are declared: overloads with their types, what they compute, and what they cost.

use std::sync::Arc;

use crate::ast::{Constant, Name};
pub use crate::error::EvalError;
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

/// A function with all its overloads, in the order in which they were declared.
pub struct Function {
    pub name: &'static str,
    pub overloads: Vec<Arc<Overload>>,
}

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

/// What a call costs where no library says otherwise. Libraries are asked first, by the name of the
/// function and the overload: `libraries::cost::estimate` and `libraries::cost::actual` answer with
/// nothing for calls that they do not know, and then the language's own costs apply. The overload is
/// empty where more than one fits and the values decide; an argument that is an error is given as
/// null, and the result is `None` where the call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The language's own, by the overload's identifier; one unit for most.
    Fixed,
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

/// What is known of the target or an argument of a call before it runs.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// The fields from a variable to the value, where `@items`, `@keys`, `@values` and `@indices`
    /// stand for the members; empty where there is no such path.
    pub path: &'a [Name],
    pub type_of: &'a Type,
    /// Where the expression is a literal.
    pub literal: Option<&'a Constant>,
    /// Where the expression itself says it.
    pub size: Option<SizeEstimate>,
}

/// Bounds that the host knows, such as `maxItems` of a schema.
pub trait SizeBounds {
    fn size(&self, path: &[Name], type_of: &Type) -> Option<SizeEstimate>;
}
