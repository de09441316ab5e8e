//! The one limit on the nesting of documents. Everything that walks a document recurses, dropping
//! and cloning it too, so that the limit is checked where documents come from: by the readers of
//! JSON, YAML and protobuf, by JSON patches, and before an object is stored.

use super::Value;

/// The most lists and objects that may stand within each other in an object.
///
/// Go's decoder stops at 10,000. Ours leaves room below the 127 levels that [`Value::from_json`]
/// reads for what is put around an object (a list, a watch event, a review), so that everything that is
/// stored can be read again.
pub const MAX_DEPTH: usize = 100;

/// A document is nested more deeply than [`MAX_DEPTH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("exceeded max depth of {MAX_DEPTH}")]
pub struct TooDeep;

impl Value {
    /// Whether more than `levels` lists and objects stand within each other. A scalar has none.
    pub fn is_deeper_than(&self, levels: usize) -> bool {
        let Some(below) = levels.checked_sub(1) else {
            return matches!(self, Value::Array(_) | Value::Object(_));
        };
        match self {
            Value::Array(items) => items.iter().any(|item| item.is_deeper_than(below)),
            Value::Object(fields) => fields.iter().any(|(_, value)| value.is_deeper_than(below)),
            _ => false,
        }
    }

    /// Refuses what is nested more deeply than [`MAX_DEPTH`].
    pub fn check_depth(&self) -> Result<(), TooDeep> {
        match self.is_deeper_than(MAX_DEPTH) {
            true => Err(TooDeep),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn levels_are_counted() {
        for (value, levels) in [
            (document!(1), 0),
            (document!([]), 1),
            (document!({"a": 1, "b": [1]}), 2),
            (document!([{"a": [[]]}, 1]), 4),
        ] {
            assert!(!value.is_deeper_than(levels), "{value}");
            assert!(levels == 0 || value.is_deeper_than(levels - 1), "{value}");
        }
        let mut nested = Value::Null;
        for _ in 0..MAX_DEPTH {
            nested = Value::Array(vec![nested]);
        }
        assert_eq!(nested.check_depth(), Ok(()));
        assert_eq!(Value::Array(vec![nested]).check_depth(), Err(TooDeep));
    }
}
