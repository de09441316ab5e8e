//! Evaluates expressions of one policy with one input. Variables are evaluated when they are read
//! first.

use std::any::Any;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use cel::ast::Name;
use cel::types::Type;
use cel::value::{HostKind, HostValue, Shape, Value};
use cel::{EvalError, Variables as HostVariables};

use super::compiler::{Expression, VARIABLES, Variables};
use super::{BUDGET, CALL_LIMIT};
use crate::expressions::admission::AdmissionInput;

/// How deep the evaluations of variables that read other variables are nested. What is deeper is
/// evaluated first, on its own, and then what needs it is evaluated again: users write chains of any
/// length, and the stack has an end.
const MOST_NESTED: usize = 16;

/// One evaluation of several expressions of a policy, which share the values of variables. Used by one
/// thread; it can be shared only because values of the language can.
pub struct Evaluation<'a> {
    variables: &'a Variables,
    input: &'a AdmissionInput<'a>,
    /// Of each variable, once it was read.
    values: Box<[OnceLock<Result<Value<'a>, EvalError>>]>,
    /// What the variables cost since the last expression ended.
    cost: AtomicU64,
    /// What they may cost.
    limit: AtomicU64,
    /// What evaluations cost that had to be made again.
    repeated: AtomicU64,
    nested: AtomicUsize,
    /// The variable that has to be evaluated on its own, plus one; zero if there is none.
    postponed: AtomicUsize,
    shape: OnceLock<Fields<'a>>,
}

/// The expressions cost more than they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "validation failed due to running out of cost budget, no further validation rules will be run"
)]
pub struct OutOfBudget;

/// The value `variables`.
struct Fields<'a>(&'a Evaluation<'a>);

impl<'a> Evaluation<'a> {
    pub fn new(variables: &'a Variables, input: &'a AdmissionInput<'a>) -> Evaluation<'a> {
        Evaluation {
            variables,
            input,
            values: variables.list.iter().map(|_| OnceLock::new()).collect(),
            cost: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            nested: AtomicUsize::new(0),
            postponed: AtomicUsize::new(0),
            shape: OnceLock::new(),
        }
    }

    /// The value of an expression, or why it has none. What it cost is taken from the budget.
    pub fn evaluate(
        &'a self,
        expression: &Expression,
        budget: &mut u64,
    ) -> Result<Result<Value<'a>, String>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(error) => return Ok(Err(format!("compilation error: {error}"))),
        };
        self.limit.store(*budget, Ordering::Relaxed);
        let outcome = loop {
            let outcome = program.evaluate_with(&self, CALL_LIMIT);
            let Some(postponed) = self.take_postponed() else {
                break outcome;
            };
            self.note_repeated(outcome.cost)?;
            self.settle(postponed)?;
        };
        let spent = self.cost.swap(0, Ordering::Relaxed);
        *budget = budget.checked_sub(spent).ok_or(OutOfBudget)?;
        *budget = budget.checked_sub(outcome.cost).ok_or(OutOfBudget)?;
        Ok(outcome.value.map_err(|error| {
            let text = &expression.text;
            format!("expression '{text}' resulted in error: {error}")
        }))
    }

    /// Evaluates a variable, and before it those that it needs and that are nested too deep.
    fn settle(&'a self, position: usize) -> Result<(), OutOfBudget> {
        let mut waiting = vec![position];
        while let Some(&position) = waiting.last() {
            let cost = self.compute(position).err();
            match (self.take_postponed(), cost) {
                (Some(postponed), cost) => {
                    self.note_repeated(cost.unwrap_or_default())?;
                    waiting.push(postponed);
                }
                (None, _) => {
                    waiting.pop();
                }
            }
        }
        Ok(())
    }

    fn variable_at(&'a self, position: usize) -> Result<Value<'a>, EvalError> {
        let known = || self.values.get(position).and_then(OnceLock::get);
        if let Some(value) = known() {
            return value.clone();
        }
        if self.postponed.load(Ordering::Relaxed) != 0 {
            return Err(EvalError::Interrupted);
        }
        if self.cost.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed) {
            // The whole evaluation fails for it, so that no more has to be known.
            return Err(EvalError::CostExceeded);
        }
        if self.nested.load(Ordering::Relaxed) >= MOST_NESTED {
            self.postponed.store(position + 1, Ordering::Relaxed);
            return Err(EvalError::Interrupted);
        }
        if let Err(cost) = self.compute(position) {
            self.repeated.fetch_add(cost, Ordering::Relaxed);
        }
        known().cloned().unwrap_or(Err(EvalError::Interrupted))
    }

    /// Evaluates a variable and keeps its value. Where another one has to be evaluated before, nothing
    /// is kept; the error is what it cost.
    fn compute(&'a self, position: usize) -> Result<(), u64> {
        let (Some(variable), Some(place)) =
            (self.variables.list.get(position), self.values.get(position))
        else {
            return Ok(());
        };
        let name = &variable.name;
        let value = match &variable.program {
            Err(error) => Err(EvalError::Message(format!(
                "composited variable {name:?} fails to compile: {error}"
            ))),
            Ok(program) => {
                self.nested.fetch_add(1, Ordering::Relaxed);
                let outcome = program.evaluate_with(&self, CALL_LIMIT);
                self.nested.fetch_sub(1, Ordering::Relaxed);
                if self.postponed.load(Ordering::Relaxed) != 0 {
                    return Err(outcome.cost);
                }
                self.cost.fetch_add(outcome.cost, Ordering::Relaxed);
                outcome.value.map_err(|error| {
                    EvalError::Message(format!(
                        "composited variable {name:?} fails to evaluate: {error}"
                    ))
                })
            }
        };
        place.get_or_init(|| value);
        Ok(())
    }

    fn take_postponed(&self) -> Option<usize> {
        self.postponed.swap(0, Ordering::Relaxed).checked_sub(1)
    }

    fn note_repeated(&self, cost: u64) -> Result<(), OutOfBudget> {
        let before = self.repeated.fetch_add(cost, Ordering::Relaxed);
        match before.saturating_add(cost) > BUDGET {
            true => Err(OutOfBudget),
            false => Ok(()),
        }
    }
}

impl<'a> HostVariables<'a> for &'a Evaluation<'a> {
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        let evaluation: &'a Evaluation<'a> = self;
        if name != "variables" {
            return evaluation.input.variable(name);
        }
        let shape: &'a Fields<'a> = evaluation.shape.get_or_init(|| Fields(evaluation));
        Some(Ok(Value::Host(HostValue { data: &(), shape })))
    }
}

impl Shape for Fields<'_> {
    fn kind(&self, _: &(dyn Any + Send + Sync)) -> HostKind {
        HostKind::Object
    }

    fn type_of(&self, _: &(dyn Any + Send + Sync)) -> Type {
        Type::Object(Name::from(VARIABLES))
    }

    fn len(&self, _: &(dyn Any + Send + Sync)) -> usize {
        self.0.variables.list.len()
    }

    fn at<'b>(&'b self, _: &'b (dyn Any + Send + Sync), index: usize) -> Option<Value<'b>> {
        self.0.values.get(index)?;
        self.0.variable_at(index).ok()
    }

    fn key_at<'b>(&'b self, _: &'b (dyn Any + Send + Sync), index: usize) -> Option<&'b str> {
        let variable = self.0.variables.list.get(index)?;
        Some(&variable.name)
    }

    fn get<'b>(&'b self, data: &'b (dyn Any + Send + Sync), key: &str) -> Option<Value<'b>> {
        self.try_get(data, key).ok().flatten()
    }

    fn try_get<'b>(
        &'b self,
        _: &'b (dyn Any + Send + Sync),
        key: &str,
    ) -> Result<Option<Value<'b>>, EvalError> {
        let position = self.0.variables.position(key);
        position
            .map(|position| self.0.variable_at(position))
            .transpose()
    }
}
