//! The vectors of a machine, kept for the next evaluation of the same thread, so that most evaluations
//! allocate nothing.

use std::cell::Cell;

use super::fold::Frame;
use crate::error::EvalError;
use crate::value::Value;

/// Vectors that grew beyond this are given back to the allocator.
const KEPT: usize = 1024;

#[derive(Default)]
pub struct Scratch<'a> {
    pub stack: Vec<Value<'a>>,
    /// The errors among the values, with their places; null stands there on the stack.
    pub errors: Vec<(usize, EvalError)>,
    /// For each attribute that is open, whether its value is an optional's.
    pub chains: Vec<bool>,
    pub frames: Vec<Frame<'a>>,
    /// Where to go on after an accumulator has been computed.
    pub returns: Vec<usize>,
}

thread_local! {
    static FREE: Cell<Option<Scratch<'static>>> = const { Cell::new(None) };
}

/// Empty vectors. A host that evaluates another expression while one runs gets new ones.
pub fn take<'a>() -> Scratch<'a> {
    FREE.take().unwrap_or_default()
}

pub fn give_back(scratch: Scratch<'_>) {
    FREE.set(Some(Scratch {
        stack: emptied(scratch.stack),
        errors: emptied_in_place(scratch.errors),
        chains: emptied_in_place(scratch.chains),
        frames: emptied_frames(scratch.frames),
        returns: emptied_in_place(scratch.returns),
    }));
}

/// The same memory for values of another lifetime. Collecting an emptied vector of elements of the same
/// size reuses its memory.
fn emptied(mut values: Vec<Value<'_>>) -> Vec<Value<'static>> {
    values.clear();
    if values.capacity() > KEPT {
        return Vec::new();
    }
    values.into_iter().map(|_| Value::Null).collect()
}

fn emptied_frames(mut frames: Vec<Frame<'_>>) -> Vec<Frame<'static>> {
    frames.clear();
    if frames.capacity() > KEPT {
        return Vec::new();
    }
    frames.into_iter().map(|_| Frame::default()).collect()
}

fn emptied_in_place<T>(mut of: Vec<T>) -> Vec<T> {
    of.clear();
    if of.capacity() > KEPT { Vec::new() } else { of }
}
