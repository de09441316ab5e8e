//! Expressions, as far as writing them is concerned: the one place where they are compiled, so that
//! what cannot be compiled is never stored.

use crate::document::Value;
use crate::field::{FieldError, Path};

/// What an expression is for, which decides what it may use and what it must return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Returns a boolean; knows no variables of the policy.
    MatchCondition,
    /// Returns anything; later expressions know it as `variables.<name>`.
    Variable,
    /// Returns a boolean.
    Validation,
    /// Returns a string; has no authorizer.
    Message,
    /// Returns a string or null.
    AuditAnnotation,
    /// Returns an object of the mutated kind.
    ApplyConfiguration,
    /// Returns a list of JSON patch operations.
    JsonPatch,
}

/// An expression that is to be stored.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code)] // For what compiles them.
pub struct Expression<'a> {
    pub text: &'a str,
    pub role: Role,
    /// Whether there is a `params`.
    pub has_params: bool,
    /// Whether it was stored before: then it may use what a newer server allowed.
    pub is_stored: bool,
    /// The variables of the policy that are known to it, in order: `{name, expression}` each.
    pub variables: &'a [Value],
}

/// Why an expression cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(dead_code)] // For what compiles them.
pub enum Problem {
    Required(String),
    Invalid(String),
    Internal(String),
}

/// Compiles an expression; the error is the field's.
pub fn check(expression: &Expression<'_>, path: &Path) -> Option<FieldError> {
    compile(expression).err().map(|problem| match problem {
        Problem::Required(detail) => FieldError::required(path, detail),
        Problem::Invalid(detail) => FieldError::invalid(path, expression.text, detail),
        Problem::Internal(detail) => FieldError::internal(path, detail),
    })
}

/// Compiles an expression with the environment of its role. Everything that can be parsed will be
/// accepted here until the compiler of expressions is called.
fn compile(_expression: &Expression<'_>) -> Result<(), Problem> {
    Ok(())
}
