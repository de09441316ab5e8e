//! Match conditions of a policy: expressions that decide whether it is about a request.

use cel::types::Type;

use super::CONDITIONS_BUDGET;
use super::compiler::{Compiler, Expression, Variables};
use super::evaluation::Evaluation;
use crate::document::Value;
use crate::expressions::admission::AdmissionInput;

/// The compiled match conditions of a policy.
pub struct MatchConditions(Vec<Expression>);

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matched {
    /// All conditions hold.
    Yes,
    /// One of them does not hold; then errors of the others do not matter.
    No,
    /// None is false, and these could not be evaluated.
    Errors(Vec<String>),
    /// They cost too much.
    Failed(String),
}

impl MatchConditions {
    /// `{name, expression}` each.
    pub fn of_documents(conditions: &[Value], compiler: &Compiler) -> MatchConditions {
        let texts = conditions
            .iter()
            .map(|condition| condition.str_at(&["expression"]));
        MatchConditions(
            texts
                .map(|text| compiler.expression(text, &[Type::Bool]))
                .collect(),
        )
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|condition| condition.text.as_str())
    }

    /// Evaluates them. The input has no namespace, as upstream's has none.
    pub fn evaluate(&self, variables: &Variables, input: &AdmissionInput<'_>) -> Matched {
        let evaluation = Evaluation::new(variables, input);
        let mut budget = CONDITIONS_BUDGET;
        let mut errors = Vec::new();
        for condition in &self.0 {
            match evaluation.evaluate(condition, &mut budget) {
                Err(problem) => return Matched::Failed(problem.to_string()),
                Ok(Ok(cel::Value::Bool(false))) => return Matched::No,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => errors.push(error),
            }
        }
        match errors.is_empty() {
            true => Matched::Yes,
            false => Matched::Errors(errors),
        }
    }
}

impl Matched {
    pub fn is_no(&self) -> bool {
        *self == Matched::No
    }

    /// Errors as upstream words several of them.
    pub fn error(&self) -> Option<String> {
        match self {
            Matched::Yes | Matched::No => None,
            Matched::Failed(error) => Some(error.clone()),
            Matched::Errors(errors) => Some(match errors.as_slice() {
                [only] => only.clone(),
                several => {
                    let mut told: Vec<&str> = Vec::new();
                    for error in several {
                        if !told.contains(&error.as_str()) {
                            told.push(error);
                        }
                    }
                    match told.as_slice() {
                        [only] => (*only).to_string(),
                        several => format!("[{}]", several.join(", ")),
                    }
                }
            }),
        }
    }
}
