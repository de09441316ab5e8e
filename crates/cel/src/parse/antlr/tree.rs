//! The parse tree of the long way, with what is missing or too much in it.

use super::super::lexer::Kind;
use super::grammar::{Rule, StateId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextId(pub usize);

/// The text of one rule.
pub struct Context {
    pub rule: Rule,
    /// The state that called the rule.
    pub invoking: Option<StateId>,
    pub parent: Option<ContextId>,
    pub precedence: u8,
    /// The first token.
    pub start: usize,
    /// Which alternative of the rule it is, once that is known.
    pub alternative: Option<usize>,
    /// How many nodes of the same left-recursive rule are in it.
    pub pushed: usize,
    pub children: Vec<Child>,
}

#[derive(Clone, Copy)]
pub enum Child {
    Token(usize),
    /// Skipped after an error.
    Error,
    /// A token that the parser made up, and the place of the one before which it is missing.
    Missing(Kind, u32),
    Rule(ContextId),
}
