//! The expressions of device selectors (dynamic resource allocation), compiled as a check of what is
//! written. Nothing here evaluates them: no devices are allocated yet.

use std::sync::LazyLock;

use cel::Environment;
use cel::device::{self, DeviceBounds};
use cel::types::Type;

static NEW: LazyLock<Environment> =
    LazyLock::new(|| device::environment(&Environment::for_new_expressions()));
static STORED: LazyLock<Environment> =
    LazyLock::new(|| device::environment(&Environment::for_stored_expressions()));

/// The longest selector.
pub const LONGEST: usize = device::MAX_EXPRESSION_BYTES;

/// Why a selector cannot be used. The words are upstream's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceSelectorError {
    #[error("compilation failed: {0}")]
    Compile(String),
    #[error("must evaluate to bool or the unknown type, not {0}")]
    ResultType(String),
    #[error("program instantiation failed: {0}")]
    Program(String),
    #[error("too complex, exceeds cost limit")]
    Cost,
}

/// Compiles a selector. One that was stored before may use what a newer server allowed.
pub fn check(expression: &str, is_stored: bool) -> Result<(), DeviceSelectorError> {
    let environment = match is_stored {
        true => &*STORED,
        false => &*NEW,
    };
    let checked = environment
        .compile(expression)
        .map_err(|errors| DeviceSelectorError::Compile(errors.to_string()))?;
    // An attribute can be of any type, and a selector can be nothing but an attribute.
    if !matches!(checked.result_type(), Type::Bool | Type::Dyn) {
        let found = checked.result_type().to_string();
        return Err(DeviceSelectorError::ResultType(found));
    }
    cel::Program::new(&checked).map_err(|error| DeviceSelectorError::Program(error.to_string()))?;
    match environment.estimate(&checked, &DeviceBounds).max > device::MAX_COST {
        true => Err(DeviceSelectorError::Cost),
        false => Ok(()),
    }
}
