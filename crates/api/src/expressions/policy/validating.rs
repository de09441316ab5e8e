//! Validating policies: what they decide about a request.

use std::time::Duration;

use cel::types::Type;

use super::compiler::{Compiler, Expression, Variables};
use super::conditions::MatchConditions;
use super::evaluation::{Evaluation, OutOfBudget};
use super::uses::Uses;
use super::{BUDGET, CALL_LIMIT};
use crate::document::Value;
use crate::expressions::admission::AdmissionInput;
use crate::status::Reason;

/// Longer messages of expressions count as none.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// A compiled ValidatingAdmissionPolicy.
pub struct ValidatingPolicy {
    pub variables: Variables,
    pub conditions: MatchConditions,
    pub uses: Uses,
    validations: Vec<Validation>,
    annotations: Vec<(String, Expression)>,
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: Reason,
}

/// What a policy says about a request with one parameter.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Of each validation, in order; or one error that stands for all of them.
    pub decisions: Vec<Decision>,
    pub annotations: Vec<Annotation>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    pub said: Said,
    /// Why, where it does not admit.
    pub message: String,
    pub reason: Option<Reason>,
    pub took: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Admit,
    Deny,
    /// The policy's failure policy decides.
    Error,
}

/// What one audit annotation came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Annotation {
    Publish {
        key: String,
        value: String,
    },
    /// The policy's failure policy decides.
    Error {
        message: String,
        took: Duration,
    },
    /// Of no type that it may have, which is an error whatever the failure policy says.
    WrongType {
        message: String,
        took: Duration,
    },
}

impl ValidatingPolicy {
    pub fn of_document(policy: &Value) -> ValidatingPolicy {
        let spec = policy.get("spec").unwrap_or(&Value::Null);
        let list = |field: &str| spec.list_at(&[field]);
        let has_params = spec.get("paramKind").is_some_and(|kind| !kind.is_null());
        let compiler = Compiler::new(list("variables"), has_params);
        let conditions = MatchConditions::of_documents(list("matchConditions"), &compiler);
        let validations: Vec<Validation> = list("validations")
            .iter()
            .map(|validation| Validation::of_document(validation, &compiler))
            .collect();
        let annotations = list("auditAnnotations").iter().map(|annotation| {
            let text = annotation.str_at(&["valueExpression"]);
            let expression = compiler.expression(text, &[Type::String, Type::Null]);
            (annotation.str_at(&["key"]).to_string(), expression)
        });
        let annotations: Vec<(String, Expression)> = annotations.collect();
        let variables = list("variables").iter();
        let texts = variables
            .map(|variable| variable.str_at(&["expression"]))
            .chain(conditions.texts())
            .chain(validations.iter().flat_map(Validation::texts))
            .chain(annotations.iter().map(|(_, it)| it.text.as_str()));
        ValidatingPolicy {
            uses: Uses::of(texts),
            variables: compiler.done(),
            conditions,
            validations,
            annotations,
        }
    }

    /// What it says, when its match conditions hold. `clock` tells the time since any moment.
    pub fn judge(&self, input: &AdmissionInput<'_>, clock: &dyn Fn() -> Duration) -> Judged {
        match self.judge_within(input, clock) {
            Ok(judged) => judged,
            Err(problem) => Judged {
                decisions: vec![Decision {
                    said: Said::Error,
                    message: problem.to_string(),
                    reason: None,
                    took: Duration::ZERO,
                }],
                annotations: Vec::new(),
            },
        }
    }

    fn judge_within(
        &self,
        input: &AdmissionInput<'_>,
        clock: &dyn Fn() -> Duration,
    ) -> Result<Judged, OutOfBudget> {
        let mut budget = BUDGET;
        let mut decisions = self.decide(input, clock, &mut budget)?;
        // Messages and annotations have no authorizer.
        let input = AdmissionInput {
            authorizer: None,
            ..input.clone()
        };
        self.word(&mut decisions, &input, budget);
        let annotations = self.annotate(&input, clock)?;
        Ok(Judged {
            decisions,
            annotations,
        })
    }

    fn decide(
        &self,
        input: &AdmissionInput<'_>,
        clock: &dyn Fn() -> Duration,
        budget: &mut u64,
    ) -> Result<Vec<Decision>, OutOfBudget> {
        let evaluation = Evaluation::new(&self.variables, input);
        let mut decisions = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            let began = clock();
            let value = evaluation.evaluate(&validation.expression, budget)?;
            let took = clock().saturating_sub(began);
            let (said, message, reason) = match value {
                Ok(cel::Value::Bool(true)) => (Said::Admit, String::new(), None),
                Ok(_) => (Said::Deny, String::new(), Some(validation.reason)),
                Err(error) => (Said::Error, error, None),
            };
            decisions.push(Decision {
                said,
                message,
                reason,
                took,
            });
        }
        Ok(decisions)
    }

    /// Finds the words of what is denied.
    fn word(&self, decisions: &mut [Decision], input: &AdmissionInput<'_>, mut budget: u64) {
        let evaluation = Evaluation::new(&self.variables, input);
        // Messages of what is admitted are evaluated only where the budget may not do for all of them:
        // then the decisions fail.
        let calls = self.validations.iter();
        let calls = calls
            .filter(|validation| validation.message_expression.is_some())
            .count() as u64;
        let most = CALL_LIMIT.saturating_mul(1 + self.variables.list.len() as u64);
        let is_tight = budget < most.saturating_mul(calls);
        let mut messages = Vec::with_capacity(decisions.len());
        for (validation, decision) in self.validations.iter().zip(decisions.iter()) {
            let wanted = is_tight || decision.said == Said::Deny;
            let expression = validation.message_expression.as_ref();
            let Some(expression) = expression.filter(|_| wanted) else {
                messages.push(None);
                continue;
            };
            match evaluation.evaluate(expression, &mut budget) {
                Ok(value) => messages.push(value.ok()),
                Err(problem) => {
                    fail(decisions, &problem);
                    return;
                }
            }
        }
        let denied = decisions.iter_mut().zip(&self.validations).zip(messages);
        for ((decision, validation), message) in denied {
            if decision.said == Said::Deny {
                decision.message = validation.words(message.as_ref());
            }
        }
    }

    fn annotate(
        &self,
        input: &AdmissionInput<'_>,
        clock: &dyn Fn() -> Duration,
    ) -> Result<Vec<Annotation>, OutOfBudget> {
        let evaluation = Evaluation::new(&self.variables, input);
        let mut budget = BUDGET;
        let mut annotations = Vec::new();
        for (key, expression) in &self.annotations {
            let began = clock();
            let value = evaluation.evaluate(expression, &mut budget)?;
            let took = clock().saturating_sub(began);
            annotations.push(match value {
                Ok(cel::Value::Null) => continue,
                Ok(cel::Value::String(text)) if text.trim().is_empty() => continue,
                Ok(cel::Value::String(text)) => Annotation::Publish {
                    key: key.clone(),
                    value: text.trim().to_string(),
                },
                Ok(other) => Annotation::WrongType {
                    message: format!(
                        "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                        expression.text,
                        other.type_of()
                    ),
                    took,
                },
                Err(message) => Annotation::Error { message, took },
            });
        }
        Ok(annotations)
    }
}

/// Without the words of messages, nothing that could be evaluated counts.
fn fail(decisions: &mut [Decision], problem: &OutOfBudget) {
    let decided = decisions
        .iter_mut()
        .filter(|decision| decision.said != Said::Error);
    for decision in decided {
        decision.said = Said::Error;
        decision.message = format!("failed messageExpression: {problem}");
        decision.reason = None;
    }
}

impl Validation {
    fn of_document(validation: &Value, compiler: &Compiler) -> Validation {
        let text = |field: &str| validation.str_at(&[field]);
        Validation {
            expression: compiler.expression(text("expression"), &[Type::Bool]),
            message: text("message").trim().to_string(),
            message_expression: match text("messageExpression") {
                "" => None,
                text => Some(compiler.expression_without_authorizer(text, &[Type::String])),
            },
            reason: match text("reason") {
                "Unauthorized" => Reason::Unauthorized,
                "Forbidden" => Reason::Forbidden,
                "RequestEntityTooLarge" => Reason::RequestEntityTooLarge,
                _ => Reason::Invalid,
            },
        }
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let message = self.message_expression.as_ref();
        std::iter::once(self.expression.text.as_str())
            .chain(message.map(|expression| expression.text.as_str()))
    }

    /// What is told, where this was the value of its message expression.
    fn words(&self, evaluated: Option<&cel::Value<'_>>) -> String {
        let evaluated = match evaluated {
            Some(cel::Value::String(text)) => text.trim(),
            _ => "",
        };
        let is_told = evaluated.len() <= LONGEST_MESSAGE && !evaluated.contains('\n');
        match (evaluated, self.message.as_str()) {
            (text, _) if is_told && !text.is_empty() => text.to_string(),
            (_, "") => format!("failed expression: {}", self.expression.text.trim()),
            (_, message) => message.to_string(),
        }
    }
}
