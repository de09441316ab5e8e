//! Regular expressions of expressions: RE2's syntax, compiled once per text and kept.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex::{Regex, RegexBuilder};

use crate::error::EvalError;

/// So many compiled patterns are kept; then the cache starts anew.
const KEPT: usize = 256;
/// Patterns that compile to more than this are refused.
const LARGEST: usize = 4 << 20;

static COMPILED: LazyLock<Mutex<HashMap<Arc<str>, Arc<Regex>>>> =
    LazyLock::new(|| Mutex::new(HashMap::new()));

/// A pattern, from the cache where it is known.
pub fn compile(pattern: &str) -> Result<Arc<Regex>, EvalError> {
    let known = COMPILED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(pattern)
        .cloned();
    if let Some(regex) = known {
        return Ok(regex);
    }
    let regex = RegexBuilder::new(pattern)
        .size_limit(LARGEST)
        .build()
        .map_err(|error| {
            EvalError::Message(format!(
                "error parsing regexp: {}",
                error.to_string().replace('\n', " ")
            ))
        })?;
    let regex = Arc::new(regex);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if compiled.len() >= KEPT {
        compiled.clear();
    }
    compiled.insert(Arc::from(pattern), Arc::clone(&regex));
    Ok(regex)
}
