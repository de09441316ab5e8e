//! Environment variables from a file in a volume (`fileKeyRef`): lines of `NAME='value'`, where a
//! value may span lines. Pure.

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Error {
    line: usize,
    what: &'static str,
}

/// The value of `key`, `None` when the file does not have it or it is empty.
pub fn value(text: &str, key: &str) -> Result<Option<String>, Error> {
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let bad = |what| Error { line: number, what };
        let line = line.trim_start_matches([' ', '\t']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, after) = line.split_once('=').ok_or(bad("missing '='"))?;
        if name.is_empty() {
            return Err(bad("empty variable name"));
        }
        if name.ends_with([' ', '\t']) {
            return Err(bad("whitespace before '=' is not allowed"));
        }
        if after.starts_with([' ', '\t']) {
            // As a shell reads it: the variable is empty.
            if name == key {
                return Ok(None);
            }
            continue;
        }
        let mut rest = after
            .strip_prefix('\'')
            .ok_or(bad("value must be enclosed in single quotes"))?;
        let mut found = String::new();
        loop {
            if let Some((end, tail)) = rest.split_once('\'') {
                found.push_str(end);
                let tail = tail.trim_start_matches([' ', '\t']);
                if !tail.is_empty() && !tail.starts_with('#') {
                    return Err(bad("unexpected content after closing quote"));
                }
                break;
            }
            found.push_str(rest);
            found.push('\n');
            rest = lines.next().ok_or(bad("unclosed single quote"))?.0;
        }
        if name == key {
            return Ok(Some(found).filter(|found| !found.is_empty()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_and_may_span_lines() {
        let text = "# c\n\nA='1'\n  B='x\ny' # end\nC= '3'\nD='a=b'\n";
        let check = |key: &str, expected: Option<&str>| {
            assert_eq!(value(text, key), Ok(expected.map(str::to_owned)), "{key}");
        };
        check("A", Some("1"));
        check("B", Some("x\ny"));
        check("C", None);
        check("D", Some("a=b"));
        check("E", None);
    }

    #[test]
    fn other_forms_are_refused() {
        for text in ["A", "A=1", "='1'", "A ='1'", "A='1", "A='1'x"] {
            assert!(value(text, "A").is_err(), "{text}");
        }
    }
}
