//! A checked expression compiled into operations for a stack machine, and its evaluation.
//!
//! Evaluation keeps its state in vectors and never recurses, whatever the expression. Costs are those
//! of cel-go's cost tracker with Kubernetes' options, added where that adds them.

mod attribute;
mod compile;
mod constant;
mod construct;
mod cost;
mod dispatch;
mod fold;
mod machine;
mod operation;
mod qualify;
mod scratch;

use crate::checked::CheckedAst;
use crate::error::EvalError;
use crate::value::Value;
use operation::Code;

/// A compiled expression. It can be evaluated by many threads at once.
pub struct Program {
    code: Code,
}

/// Where the values of variables come from.
pub trait Variables<'a> {
    /// The value of a variable; nothing where it has none.
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>>;
}

/// What an evaluation may use.
#[derive(Clone, Copy, Default)]
pub struct Limits<'l> {
    /// Evaluation ends with [`EvalError::CostExceeded`] when its cost is more than this.
    pub cost: Option<u64>,
    /// Asked every 100 iterations of comprehensions; evaluation ends when it answers true.
    pub interrupted: Option<&'l dyn Fn() -> bool>,
}

/// How an evaluation ended, and what it cost.
#[derive(Debug)]
pub struct Outcome<'a> {
    pub value: Result<Value<'a>, EvalError>,
    pub cost: u64,
}

impl Program {
    /// Compiles an expression. Constant parts are computed here, so that a conversion or a pattern
    /// that fails does so now.
    pub fn new(checked: &CheckedAst) -> Result<Program, EvalError> {
        let constants = constant::fold(checked)?;
        Ok(Program {
            code: compile::compile(checked, constants)?,
        })
    }

    pub fn evaluate<'a>(&self, variables: &dyn Variables<'a>, limits: Limits<'_>) -> Outcome<'a> {
        machine::run(&self.code, variables, limits)
    }
}

/// No variables at all.
impl<'a> Variables<'a> for () {
    fn variable(&self, _name: &str) -> Option<Result<Value<'a>, EvalError>> {
        None
    }
}

/// A few variables, searched one by one.
impl<'a> Variables<'a> for [(&str, Value<'a>)] {
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| Ok(value.clone()))
    }
}

impl<'a, const N: usize> Variables<'a> for [(&str, Value<'a>); N] {
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.as_slice().variable(name)
    }
}

impl<'a> Variables<'a> for Vec<(&str, Value<'a>)> {
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.as_slice().variable(name)
    }
}
