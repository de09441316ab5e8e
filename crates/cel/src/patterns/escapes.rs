//! Escapes that stand for one character, and why texts are no regular expressions.

/// Why a text is no regular expression, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {reason}: `{text}`")]
pub struct PatternError {
    pub reason: Reason,
    /// The part of the expression that is wrong.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("invalid character class range")]
    CharacterRange,
    #[error("invalid escape sequence")]
    Escape,
    #[error("invalid named capture")]
    NamedCapture,
    #[error("invalid or unsupported Perl syntax")]
    PerlSyntax,
    #[error("invalid nested repetition operator")]
    RepeatOperator,
    #[error("invalid repeat count")]
    RepeatCount,
    #[error("missing closing ]")]
    MissingBracket,
    #[error("missing closing )")]
    MissingParenthesis,
    #[error("missing argument to repetition operator")]
    MissingRepeatArgument,
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    #[error("unexpected )")]
    UnexpectedParenthesis,
    #[error("expression nests too deeply")]
    NestingDepth,
    #[error("expression too large")]
    TooLarge,
}

/// An escape that stands for one character, as its code point, with what follows.
pub(super) fn escape(text: &str) -> Result<(u32, &str), PatternError> {
    let mut characters = text.chars();
    characters.next();
    let Some(kind) = characters.next() else {
        return Err(error(Reason::TrailingBackslash, ""));
    };
    let rest = characters.as_str();
    let wrong = |rest: &str| error(Reason::Escape, &text[..text.len() - rest.len()]);
    let is_octal = |rest: &str| rest.starts_with(|digit| ('0'..='7').contains(&digit));
    match kind {
        '0'..='7' => {
            if kind != '0' && !is_octal(rest) {
                return Err(wrong(rest));
            }
            let (mut code, mut rest) = (kind as u32 - '0' as u32, rest);
            for _ in 0..2 {
                if !is_octal(rest) {
                    break;
                }
                code = code * 8 + u32::from(rest.as_bytes()[0] - b'0');
                rest = &rest[1..];
            }
            Ok((code, rest))
        }
        'x' => hexadecimal(rest).map_err(wrong),
        'a' => Ok((7, rest)),
        'f' => Ok((12, rest)),
        'n' => Ok((10, rest)),
        'r' => Ok((13, rest)),
        't' => Ok((9, rest)),
        'v' => Ok((11, rest)),
        _ if kind.is_ascii() && !kind.is_ascii_alphanumeric() => Ok((kind as u32, rest)),
        _ => Err(wrong(rest)),
    }
}

/// The digits after `\x`. Where they are wrong, the answer is what follows the place of the mistake.
fn hexadecimal(text: &str) -> Result<(u32, &str), &str> {
    let mut characters = text.chars();
    let Some(first) = characters.next() else {
        return Err(text);
    };
    if first != '{' {
        let second = characters.next();
        let rest = characters.as_str();
        let digits = (
            first.to_digit(16),
            second.and_then(|digit| digit.to_digit(16)),
        );
        return match digits {
            (Some(high), Some(low)) => Ok((high * 16 + low, rest)),
            _ => Err(rest),
        };
    }
    let (mut code, mut count) = (0, 0);
    while let Some(character) = characters.next() {
        let rest = characters.as_str();
        if character == '}' {
            return if count > 0 {
                Ok((code, rest))
            } else {
                Err(rest)
            };
        }
        let Some(digit) = character.to_digit(16) else {
            return Err(rest);
        };
        code = code * 16 + digit;
        if code > char::MAX as u32 {
            return Err(rest);
        }
        count += 1;
    }
    Err("")
}

pub(super) fn error(reason: Reason, text: &str) -> PatternError {
    PatternError {
        reason,
        text: text.to_owned(),
    }
}
