//! How deep and how large a value is that an expression made.
//!
//! A value can share its parts, so that `[x, x]` in `[x, x]` doubles what has to be walked at no cost,
//! and `[x]` in a chain of comprehensions is deeper than any text is nested. Whoever walks a value
//! relies on both bounds; values of the host are bounded by the decoder of its documents.

use crate::error::EvalError;

/// Far more than the nesting of a text, which is at most 250.
const MAX_DEPTH: u32 = 400;
/// Parts are counted as often as they are reached.
const MAX_PARTS: u32 = 8_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// Lists, maps, objects and optionals within each other, without the value itself.
    depth: u32,
    parts: u32,
}

impl Extent {
    /// Adds a part of the value; `within` is the extent of a part that has parts itself.
    pub fn add(&mut self, within: Option<Extent>) {
        self.parts = self.parts.saturating_add(1);
        if let Some(within) = within {
            self.depth = self.depth.max(within.depth + 1);
            self.parts = self.parts.saturating_add(within.parts);
        }
    }

    /// Refuses values that are too deep or too large to be walked.
    pub fn check(self) -> Result<(), EvalError> {
        if self.depth > MAX_DEPTH {
            return Err(EvalError::Message(format!(
                "the value is nested more than {MAX_DEPTH} times"
            )));
        }
        if self.parts > MAX_PARTS {
            return Err(EvalError::Message(format!(
                "the value has more than {MAX_PARTS} parts"
            )));
        }
        Ok(())
    }
}
