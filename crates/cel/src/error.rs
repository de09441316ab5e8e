//! Why an evaluation has no value.

use crate::ast::Name;

/// Why an evaluation has no value. The text is cel-go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("{0}")]
    Message(String),
    #[error("no such key: {0}")]
    NoSuchKey(String),
    #[error("no such overload")]
    NoSuchOverload,
    #[error("operation cancelled: actual cost limit exceeded")]
    CostExceeded,
    #[error("operation interrupted")]
    Interrupted,
    #[error("no such attribute(s): {0}")]
    NoSuchAttribute(Name),
}
