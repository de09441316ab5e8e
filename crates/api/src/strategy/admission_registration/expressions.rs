//! Expressions, as far as writing them is concerned: the one place where they are compiled, so that
//! what cannot be compiled is never stored.

use cel::types::Type;

use crate::expressions::admission::{self, AdmissionCompileError, Available};
use crate::expressions::mutation;
use crate::expressions::policy::Compiler;
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
    /// Whether it was stored before: then it may use what a newer server allowed.
    pub is_stored: bool,
}

/// Checks the expressions of one policy or webhook.
pub struct Checker {
    has_params: bool,
    /// Knows the variables; nothing where there is no `variables` at all.
    compiler: Option<Compiler>,
}

impl Checker {
    /// For expressions that know no variables.
    pub fn without_variables(has_params: bool) -> Checker {
        Checker {
            has_params,
            compiler: None,
        }
    }

    /// For the expressions of a policy, whose variables are added as they are checked.
    pub fn with_variables(has_params: bool) -> Checker {
        Checker {
            has_params,
            compiler: Some(Compiler::new(&[], has_params)),
        }
    }

    /// Checks a variable; later expressions know it, also where it does not compile.
    pub fn add_variable(
        &mut self,
        name: &str,
        expression: &Expression<'_>,
        path: &Path,
    ) -> Option<FieldError> {
        let available = self.available(expression);
        let compiler = self.compiler.as_mut()?;
        let added = compiler.add_variable(name, expression.text, available);
        field_error(added, expression.text, path)
    }

    /// Compiles an expression; the error is the field's.
    pub fn check(&self, expression: &Expression<'_>, path: &Path) -> Option<FieldError> {
        let result_types: &[Type] = match expression.role {
            Role::MatchCondition | Role::Validation => &[Type::Bool],
            Role::Message => &[Type::String],
            Role::AuditAnnotation => &[Type::String, Type::Null],
            Role::ApplyConfiguration => &[mutation::object_type()],
            Role::JsonPatch => &[mutation::patches_type()],
            Role::Variable => &[],
        };
        // White space around it counts where the place of an error is told, except here.
        let text = match expression.role {
            Role::AuditAnnotation => expression.text.trim(),
            _ => expression.text,
        };
        let available = self.available(expression);
        let checked = match &self.compiler {
            Some(compiler) if expression.role != Role::MatchCondition => {
                compiler.check(text, available, result_types)
            }
            _ => admission::compile(text, available, result_types).map(drop),
        };
        field_error(checked, expression.text, path)
    }

    fn available(&self, expression: &Expression<'_>) -> Available {
        Available {
            params: self.has_params,
            authorizer: expression.role != Role::Message,
            patches: matches!(expression.role, Role::ApplyConfiguration | Role::JsonPatch),
            is_stored: expression.is_stored,
        }
    }
}

fn field_error(
    checked: Result<(), AdmissionCompileError>,
    shown: &str,
    path: &Path,
) -> Option<FieldError> {
    let error = checked.err()?;
    Some(match error {
        AdmissionCompileError::Program(_) => FieldError::internal(path, error.to_string()),
        _ => FieldError::invalid(path, shown, error.to_string()),
    })
}
