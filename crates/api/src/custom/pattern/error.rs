//! Why a pattern cannot be used.

/// Why Go would not compile a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {code}: `{part}`")]
pub struct PatternError {
    code: &'static str,
    part: String,
}

impl PatternError {
    pub(super) fn new(code: &'static str, part: &str) -> PatternError {
        PatternError {
            code,
            part: part.to_string(),
        }
    }

    pub(super) fn too_large(pattern: &str) -> PatternError {
        PatternError::new("expression too large", pattern)
    }
}
