//! Label and field selectors: parsing as upstream parses them, and matching.

mod field_selector;
mod label_selector;
mod lexer;

pub use field_selector::{FieldRequirement, FieldSelector, UnknownField};
pub use label_selector::{LabelSelector, Operator, Requirement};

/// A selector that could not be read. The text is what upstream answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);
