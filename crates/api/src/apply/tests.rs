//! Worked examples, one per rule.
