//! The tokens of a label selector.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    Error,
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    GreaterThan,
    Identifier,
    In,
    LessThan,
    NotEquals,
    NotIn,
    Open,
}

/// Splits a selector into tokens with their text; the last one is always `End`.
pub fn tokens(text: &str) -> Vec<(Token, String)> {
    let bytes = text.as_bytes();
    let mut position = 0;
    let mut tokens = Vec::new();
    loop {
        while position < bytes.len() && is_space(bytes[position]) {
            position += 1;
        }
        let start = position;
        if start == bytes.len() {
            tokens.push((Token::End, String::new()));
            return tokens;
        }
        if is_special(bytes[start]) {
            // The longest run of special characters that is an operator.
            let mut last = None;
            while position < bytes.len() && is_special(bytes[position]) {
                match symbol(&text[start..=position]) {
                    Some(token) => last = Some(token),
                    None if last.is_some() => break,
                    None => {}
                }
                position += 1;
            }
            let literal = &text[start..position];
            tokens.push(match last {
                Some(token) => (token, literal.to_string()),
                None => (
                    Token::Error,
                    format!("error expected: keyword found '{literal}'"),
                ),
            });
        } else {
            while position < bytes.len()
                && !is_special(bytes[position])
                && !is_space(bytes[position])
            {
                position += 1;
            }
            let literal = &text[start..position];
            let token = match literal {
                "in" => Token::In,
                "notin" => Token::NotIn,
                _ => Token::Identifier,
            };
            tokens.push((token, literal.to_string()));
        }
    }
}

fn symbol(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::GreaterThan,
        "<" => Token::LessThan,
        "!=" => Token::NotEquals,
        "(" => Token::Open,
        _ => return None,
    })
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}
