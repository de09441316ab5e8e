//! How strictly schemas are checked.

use crate::custom::Expressions;

/// What an update is not held to, because it was so before.
#[derive(Clone, Copy)]
pub struct Strictness<'a> {
    pub valid_types: bool,
    pub atomic_sets: bool,
    pub keyed_lists: bool,
    /// Expressions that were accepted before.
    pub is_stored: &'a dyn Fn(&str) -> bool,
    /// Not set for a schema that did not change.
    pub cost_per_rule: bool,
    pub expressions: Option<&'a dyn Expressions>,
}
