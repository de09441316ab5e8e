//! A violation of what Kubernetes guarantees, in a simulated cluster.

/// A sentence that describes the violation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(String);

impl Violation {
    pub fn new(sentence: impl Into<String>) -> Violation {
        Violation(sentence.into())
    }
}
