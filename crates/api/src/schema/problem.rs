//! What is wrong with a document that was decoded: fields that strict validation refuses, and values
//! of a wrong type.

use std::fmt;

/// What strict field validation objects to; otherwise it is dropped, with or without a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// e.g. `spec.containers[0].imagee`.
    pub path: String,
    /// Given twice, rather than unknown.
    pub duplicate: bool,
}

/// The contract's other name for a problem.
pub type UnknownField = FieldProblem;

/// A value that does not fit, in the words of Go's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeError(pub String);

impl fmt::Display for FieldProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = if self.duplicate {
            "duplicate"
        } else {
            "unknown"
        };
        write!(formatter, "{problem} field {:?}", self.path)
    }
}
