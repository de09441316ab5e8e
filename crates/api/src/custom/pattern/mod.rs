//! Patterns of schemas, in the syntax of Go (RE2), matched by the `regex` crate.
//!
//! Nothing is compiled before it is first needed; what was compiled is kept within a bound.

mod class;
mod error;
mod parse;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex::{Regex, RegexBuilder};

pub use error::PatternError;

/// The most patterns that are kept compiled, and the most memory of one.
const MOST_KEPT: usize = 512;
const MOST_MEMORY: usize = 16 << 20;

static COMPILED: LazyLock<Mutex<Kept>> = LazyLock::new(|| Mutex::new(Kept::default()));

#[derive(Default)]
struct Kept {
    by_pattern: HashMap<String, Arc<Regex>>,
}

/// Whether a pattern can be read; the error has Go's words.
pub fn check(pattern: &str) -> Result<(), PatternError> {
    parse::translate(pattern).map(drop)
}

/// Whether `text` contains a match.
pub fn is_match(pattern: &str, text: &str) -> Result<bool, PatternError> {
    Ok(compiled(pattern)?.is_match(text))
}

fn compiled(pattern: &str) -> Result<Arc<Regex>, PatternError> {
    let lock = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().by_pattern.get(pattern) {
        return Ok(known.clone());
    }
    let translated = parse::translate(pattern)?;
    let regex = RegexBuilder::new(&translated)
        .size_limit(MOST_MEMORY)
        .dfa_size_limit(1 << 20)
        .nest_limit(2500)
        .build()
        .map_err(|_| PatternError::too_large(pattern))?;
    let regex = Arc::new(regex);
    let mut kept = lock();
    // Starting anew costs each pattern one compilation, and needs no account of who was used when.
    if kept.by_pattern.len() >= MOST_KEPT {
        kept.by_pattern.clear();
    }
    kept.by_pattern.insert(pattern.to_string(), regex.clone());
    Ok(regex)
}
