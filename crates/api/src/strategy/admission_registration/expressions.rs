//! Expressions, as far as writing them is concerned: the one place where they are compiled, so that
//! what cannot be compiled is never stored.

use cel::types::Type;

use crate::document::Value;
use crate::expressions::admission::{self, AdmissionCompileError, Available};
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

/// Compiles an expression; the error is the field's.
pub fn check(expression: &Expression<'_>, path: &Path) -> Option<FieldError> {
    let available = Available {
        params: expression.has_params,
        authorizer: expression.role != Role::Message,
        patches: matches!(expression.role, Role::ApplyConfiguration | Role::JsonPatch),
        is_stored: expression.is_stored,
    };
    let result_types: &[Type] = match expression.role {
        Role::MatchCondition | Role::Validation => &[Type::Bool],
        Role::Message => &[Type::String],
        Role::AuditAnnotation => &[Type::String, Type::Null],
        // Mutations are not evaluated yet, and what they may return is not checked.
        Role::Variable | Role::ApplyConfiguration | Role::JsonPatch => return None,
    };
    if !expression.variables.is_empty() {
        // The variables of a policy are not known to the compiler yet.
        return None;
    }
    match admission::compile(expression.text, available, result_types) {
        Ok(_) => None,
        Err(error @ AdmissionCompileError::Program(_)) => {
            Some(FieldError::internal(path, error.to_string()))
        }
        Err(error) => Some(FieldError::invalid(
            path,
            expression.text,
            error.to_string(),
        )),
    }
}
