//! `$(VAR)` expansion in env values, command and args: a known name is replaced, an unknown one
//! stays as written, `$$` is a literal dollar sign.

use std::collections::BTreeMap;

pub fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) = rest
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'))
        {
            match variables.get(name) {
                Some(value) => result.push_str(value),
                None => {
                    result.push_str("$(");
                    result.push_str(name);
                    result.push(')');
                }
            }
            rest = after;
        } else {
            result.push('$');
        }
    }
    result.push_str(rest);
    result
}

/// A variable that a text refers to and that does not exist.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("missing value for \"{0}\"")]
pub struct MissingVariable(String);

/// Like [`expand`], but a name that is not known is an error.
pub fn expand_known(
    text: &str,
    variables: &BTreeMap<String, String>,
) -> Result<String, MissingVariable> {
    let expanded = expand(text, variables);
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
        } else if let Some((name, after)) = rest
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'))
        {
            if !variables.contains_key(name) {
                return Err(MissingVariable(name.to_owned()));
            }
            rest = after;
        }
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_expand() {
        let variables = BTreeMap::from([
            ("A".to_owned(), "1".to_owned()),
            ("B".to_owned(), "$(A)".to_owned()),
        ]);
        for (text, expected) in [
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(A)"),
            ("$(NONE)", "$(NONE)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
            ("$$", "$"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
        assert_eq!(
            expand_known("a$(A)$$(X)", &variables).as_deref(),
            Ok("a1$(X)")
        );
        assert_eq!(
            expand_known("$(X)", &variables),
            Err(MissingVariable("X".to_owned()))
        );
    }
}
