//! The state of a comprehension while it runs.

use crate::error::EvalError;
use crate::value::Value;

#[derive(Default)]
pub struct Frame<'a> {
    pub range: Value<'a>,
    pub length: usize,
    /// Of the next item.
    pub position: usize,
    pub item: Value<'a>,
    pub second_item: Value<'a>,
    pub accumulator: Accumulator<'a>,
}

/// What a comprehension has computed so far.
#[derive(Default)]
pub enum Accumulator<'a> {
    /// Nobody has asked for the first value yet.
    #[default]
    Unset,
    Value(Value<'a>),
    Error(EvalError),
}

impl<'a> Frame<'a> {
    /// Moves to the next item; false after the last.
    pub fn next(&mut self, has_second_variable: bool) -> bool {
        if self.position >= self.length {
            return false;
        }
        let position = self.position;
        self.position += 1;
        if let Some(item) = self.range.item(position) {
            if has_second_variable {
                self.item = Value::Int(position as i64);
                self.second_item = item;
            } else {
                self.item = item;
            }
        } else {
            self.item = self.range.key_at(position).unwrap_or(Value::Null);
            if has_second_variable {
                self.second_item = self.range.value_at(position).unwrap_or(Value::Null);
            }
        }
        true
    }
}
