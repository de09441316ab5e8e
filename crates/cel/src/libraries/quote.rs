//! Texts in quotation marks as Go writes them, because messages show them.

/// A text in double quotes, with what cannot be printed escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut output = String::with_capacity(text.len() + 2);
    output.push('"');
    for character in text.chars() {
        match character {
            '"' => output.push_str("\\\""),
            '\\' => output.push_str("\\\\"),
            '\u{7}' => output.push_str("\\a"),
            '\u{8}' => output.push_str("\\b"),
            '\u{c}' => output.push_str("\\f"),
            '\n' => output.push_str("\\n"),
            '\r' => output.push_str("\\r"),
            '\t' => output.push_str("\\t"),
            '\u{b}' => output.push_str("\\v"),
            _ if is_printable(character) => output.push(character),
            _ => {
                let code = character as u32;
                output.push_str(&match code {
                    0..0x80 => format!("\\x{code:02x}"),
                    0x80..0x1_0000 => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                });
            }
        }
    }
    output.push('"');
    output
}

/// Letters, marks, numbers, punctuation, symbols and the plain blank.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // A mark that extends the character before it is escaped only at the beginning of a text.
    let mut text = [0; 5];
    text[0] = b'a';
    let length = 1 + character.encode_utf8(&mut text[1..]).len();
    std::str::from_utf8(&text[..length])
        .is_ok_and(|text| text.escape_debug().nth(1) == Some(character))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn unprintable_characters_are_escaped_as_go_escapes_them() {
        assert_eq!(quoted("a\"b\\\n\u{7f}\u{1}"), r#""a\"b\\\n\x7f\x01""#);
        assert_eq!(
            quoted("é\u{301}\u{200b}\u{a0}"),
            "\"é\u{301}\\u200b\\u00a0\""
        );
        assert_eq!(quoted("\u{10ffff}😀"), "\"\\U0010ffff😀\"");
    }
}
