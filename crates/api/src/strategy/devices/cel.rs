//! A superficial check of a CEL expression: it is not empty, its brackets match and its strings end.
//! The expression is not parsed, typed or evaluated here; the allocator of devices does that.

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("ERROR: <input>:1:1: Syntax error: mismatched input '<EOF>'")]
    Empty,
    #[error("ERROR: <input>:1:{0}: Syntax error: unbalanced {1:?}")]
    Unbalanced(usize, char),
    #[error("ERROR: <input>:1:{0}: Syntax error: unterminated string")]
    Unterminated(usize),
}

pub(super) fn look_over(expression: &str) -> Result<(), Error> {
    if expression.trim().is_empty() {
        return Err(Error::Empty);
    }
    let mut open: Vec<(char, usize)> = Vec::new();
    let mut characters = expression.chars().enumerate();
    while let Some((index, character)) = characters.next() {
        let place = index + 1;
        match character {
            '"' | '\'' => loop {
                match characters.next() {
                    Some((_, '\\')) => drop(characters.next()),
                    Some((_, end)) if end == character => break,
                    Some(_) => {}
                    None => return Err(Error::Unterminated(place)),
                }
            },
            '(' => open.push((')', place)),
            '[' => open.push((']', place)),
            '{' => open.push(('}', place)),
            ')' | ']' | '}' => match open.pop() {
                Some((wanted, _)) if wanted == character => {}
                _ => return Err(Error::Unbalanced(place, character)),
            },
            _ => {}
        }
    }
    match open.pop() {
        Some((wanted, place)) => Err(Error::Unbalanced(place, wanted)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_cel_expressions_are_rejected() {
        for good in [
            r#"device.driver == "gpu.example.com""#,
            r#"device.attributes["a"].b in ["(", ")"] && !(1 > 2)"#,
            r"device.x == 'it\'s'",
        ] {
            assert_eq!(look_over(good), Ok(()), "{good}");
        }
        assert_eq!(look_over(" "), Err(Error::Empty));
        assert_eq!(look_over("(a"), Err(Error::Unbalanced(1, ')')));
        assert_eq!(look_over("a]"), Err(Error::Unbalanced(2, ']')));
        assert_eq!(look_over("a == 'b"), Err(Error::Unterminated(6)));
    }
}
