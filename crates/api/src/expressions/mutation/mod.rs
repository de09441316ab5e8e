//! What the expressions of mutating policies make of an object: a configuration that is merged into it
//! as server-side apply would, or a JSON patch.

mod json;
mod policy;

#[cfg(test)]
mod tests;

use cel::value::Value;

use crate::apply::{self, ConfigurationError, Target};
use crate::document;
use crate::patch;

pub use super::patch_types::{object_type, patches_type};
pub use json::NotJson;
pub use policy::{MutatingPolicy, Mutation, PatchType};

use json::{Budget, Rules, written};

/// What one operation of a patch counts beside its value.
const PER_OPERATION: usize = 64;

/// Why a mutation is not made. The words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MutationError {
    /// The expression does not compile, has no value or costs too much.
    #[error("{0}")]
    Evaluation(String),
    #[error("unsupported return type from ApplyConfiguration expression: {0}")]
    NotAnObject(String),
    #[error("type mismatch: {0}")]
    TypeNames(String),
    /// Upstream prints no more than Go's type here.
    #[error("invalid return type: *dynamic.ObjectVal")]
    Unwritable(#[source] NotJson),
    #[error("error applying patch: {0}")]
    Configuration(ConfigurationError),
    #[error("type mismatch: JSONPatchType.expression should evaluate to array")]
    NotAList,
    #[error("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")]
    NotAnOperation,
    #[error("unexpected type {of} for JSONPatchType '{field}' field")]
    OperationField { field: &'static str, of: String },
    #[error("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {0}")]
    OperationValue(NotJson),
    #[error("JSON Patch: {0}")]
    Patch(String),
}

/// Merges the configuration that an expression resulted in into an object of the same kind.
pub fn apply_configuration(
    result: &Value<'_>,
    target: Target<'_>,
    live: &document::Value,
) -> Result<document::Value, MutationError> {
    let Value::Object(_) = result else {
        return Err(MutationError::NotAnObject(json::type_name(result)));
    };
    let written = written(result, Rules::Plain, &mut Budget::default());
    let written = written.map_err(MutationError::Unwritable)?;
    if !written.mismatches.is_empty() {
        return Err(MutationError::TypeNames(written.mismatches.join("\n")));
    }
    let mut configuration = written.document;
    // A configuration is of the kind of the object, whatever it says itself.
    for field in ["apiVersion", "kind"] {
        configuration.set(&[field], live.str_at(&[field]));
    }
    apply::put_configuration(target, live, &configuration).map_err(MutationError::Configuration)
}

/// Applies the JSON patch that an expression resulted in; nothing where a test in it found another
/// value than it expects, which leaves the object as it is.
pub fn json_patch(
    result: &Value<'_>,
    live: &document::Value,
) -> Result<Option<document::Value>, MutationError> {
    let operations = operations(result)?;
    match patch::json_patch(live, &operations) {
        Ok(patched) => Ok(Some(patched)),
        Err(status) => match patch::misfit(live, &operations) {
            Some(misfit) if misfit.is_failed_test => Ok(None),
            Some(misfit) => Err(MutationError::Patch(misfit.words)),
            None => Err(MutationError::Patch(status.message)),
        },
    }
}

/// The operations of a patch, as the document that RFC 6902 describes.
fn operations(result: &Value<'_>) -> Result<document::Value, MutationError> {
    let Value::List(items) = result else {
        return Err(MutationError::NotAList);
    };
    let mut budget = Budget::default();
    let operations = items.iter().map(|item| operation(item, &mut budget));
    Ok(document::Value::Array(
        operations.collect::<Result<_, _>>()?,
    ))
}

fn operation(item: &Value<'_>, budget: &mut Budget) -> Result<document::Value, MutationError> {
    let Value::Object(operation) = item else {
        return Err(MutationError::NotAnOperation);
    };
    let unwritable = MutationError::OperationValue;
    budget.charge(PER_OPERATION).map_err(unwritable)?;
    let mut made = document::Value::object();
    for field in ["op", "path", "from"] {
        match operation.get(field) {
            Some(Value::String(text)) if text.is_empty() && field == "from" => {}
            Some(Value::String(text)) => {
                budget.charge(text.len()).map_err(unwritable)?;
                made.set(&[field], &**text);
            }
            Some(other) => {
                let of = json::type_name(other);
                return Err(MutationError::OperationField { field, of });
            }
            None if field == "from" => {}
            None => made.set(&[field], ""),
        }
    }
    if let Some(value) = operation.get("value") {
        let written = written(value, Rules::Protobuf, budget).map_err(unwritable)?;
        if !written.mismatches.is_empty() {
            return Err(MutationError::TypeNames(written.mismatches.join("\n")));
        }
        made.set(&["value"], written.document);
    }
    Ok(made)
}
