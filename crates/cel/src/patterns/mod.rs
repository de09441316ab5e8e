//! Regular expressions of expressions: RE2's syntax, compiled once per text and kept.

mod classes;
mod escapes;
mod syntax;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex::{Regex, RegexBuilder};

pub use self::escapes::{PatternError, Reason};
use self::syntax::translate;
use crate::error::EvalError;

/// So many compiled patterns are kept; then the cache starts anew.
const KEPT: usize = 256;
/// Patterns that compile to more than this are not kept.
const LARGEST_KEPT: usize = 256 << 10;
/// Patterns that compile to more than this are refused. Go allows more, but needs less for the same
/// pattern.
const LARGEST: usize = 10 << 20;
/// Groups and repetitions within each other. Compiling is recursive in the crate, and this depth is
/// safe on the stack of any thread; Go allows four times as much.
const DEEPEST: u32 = 250;

static COMPILED: LazyLock<Mutex<HashMap<Arc<str>, Arc<Regex>>>> =
    LazyLock::new(|| Mutex::new(HashMap::new()));

/// A pattern, from the cache where it is known. Matching takes linear time.
pub fn compile(pattern: &str) -> Result<Arc<Regex>, EvalError> {
    let known = COMPILED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(pattern)
        .cloned();
    if let Some(regex) = known {
        return Ok(regex);
    }
    let illegal = |error: PatternError| EvalError::Message(error.to_string());
    let mut builder = RegexBuilder::new(&translate(pattern).map_err(illegal)?);
    builder.nest_limit(DEEPEST);
    let small = builder
        .size_limit(LARGEST_KEPT)
        .dfa_size_limit(LARGEST_KEPT)
        .build();
    let Ok(regex) = small else {
        let large = builder.size_limit(LARGEST).build();
        return large.map(Arc::new).map_err(|error| {
            let reason = match error {
                regex::Error::CompiledTooBig(_) => Reason::TooLarge,
                // All that is left to refuse after the translation.
                _ => Reason::NestingDepth,
            };
            let text = pattern.to_owned();
            illegal(PatternError { reason, text })
        });
    };
    let regex = Arc::new(regex);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if compiled.len() >= KEPT {
        compiled.clear();
    }
    compiled.insert(Arc::from(pattern), Arc::clone(&regex));
    Ok(regex)
}
