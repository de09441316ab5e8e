//! Classes of signs (`[a-z]`) and the escapes that stand for a sign or a class.

use std::fmt::Write;

use super::error::PatternError;

/// Translates the class at the start of `text`; its length.
pub(super) fn translate(text: &str, output: &mut String) -> Result<usize, PatternError> {
    let missing = || PatternError::new("missing closing ]", text);
    let mut rest = &text[1..];
    output.push('[');
    if let Some(negated) = rest.strip_prefix('^') {
        output.push('^');
        rest = negated;
    }
    let mut first = true;
    loop {
        let sign = rest.chars().next().ok_or_else(missing)?;
        if sign == ']' && !first {
            output.push(']');
            return Ok(text.len() - rest.len() + 1);
        }
        first = false;
        if let Some(length) = named(rest, output)? {
            rest = &rest[length..];
            continue;
        }
        if is_class_escape(rest) {
            let length = escape(rest, output)?;
            rest = &rest[length..];
            continue;
        }
        let start = rest;
        let (low, length) = one(rest, text)?;
        rest = &rest[length..];
        let mut high = low;
        if rest.starts_with('-') && rest.len() > 1 && !rest[1..].starts_with(']') {
            let (found, length) = one(&rest[1..], text)?;
            high = found;
            rest = &rest[1 + length..];
            if high < low {
                let part = &start[..start.len() - rest.len()];
                return Err(PatternError::new("invalid character class range", part));
            }
        }
        push_literal(output, low);
        if high != low {
            output.push('-');
            push_literal(output, high);
        }
    }
}

/// `[:alpha:]`, which both syntaxes have; other names are an error.
fn named(text: &str, output: &mut String) -> Result<Option<usize>, PatternError> {
    if !text.starts_with("[:") {
        return Ok(None);
    }
    let Some(end) = text[2..].find(":]") else {
        return Ok(None);
    };
    let whole = &text[..end + 4];
    let name = whole[2..end + 2].trim_start_matches('^');
    let known = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
        "space", "upper", "word", "xdigit",
    ];
    if !known.contains(&name) {
        return Err(PatternError::new("invalid character class range", whole));
    }
    output.push_str(whole);
    Ok(Some(whole.len()))
}

fn is_class_escape(text: &str) -> bool {
    let mut signs = text.chars();
    signs.next() == Some('\\')
        && matches!(
            signs.next(),
            Some('d' | 'D' | 's' | 'S' | 'w' | 'W' | 'p' | 'P')
        )
}

/// One sign of a class, escaped or not, and its length.
fn one(text: &str, class: &str) -> Result<(char, usize), PatternError> {
    match text.chars().next() {
        None => Err(PatternError::new("missing closing ]", class)),
        Some('\\') => escaped_sign(text),
        Some(sign) => Ok((sign, sign.len_utf8())),
    }
}

/// Translates the escape at the start of `text`, in a class or not; its length.
pub(super) fn escape(text: &str, output: &mut String) -> Result<usize, PatternError> {
    let sign = text[1..].chars().next();
    let replaced = match sign {
        Some('d') => "[0-9]",
        Some('D') => "[^0-9]",
        Some('s') => "[\\t\\n\\x0c\\r ]",
        Some('S') => "[^\\t\\n\\x0c\\r ]",
        Some('w') => "[0-9A-Za-z_]",
        Some('W') => "[^0-9A-Za-z_]",
        Some('p' | 'P') => return unicode(text, output),
        _ => {
            let (sign, length) = escaped_sign(text)?;
            push_literal(output, sign);
            return Ok(length);
        }
    };
    output.push_str(replaced);
    Ok(2)
}

/// `\pL`, `\p{Greek}`, `\p{^Greek}` and their opposites.
fn unicode(text: &str, output: &mut String) -> Result<usize, PatternError> {
    let invalid = |part: &str| PatternError::new("invalid character class range", part);
    let mut negated = text.as_bytes()[1] == b'P';
    let (name, length) = match text[2..].chars().next() {
        None => return Err(invalid(text)),
        Some('{') => match text.find('}') {
            None => return Err(invalid(text)),
            Some(end) => (&text[3..end], end + 1),
        },
        Some(sign) => {
            let end = 2 + sign.len_utf8();
            (&text[2..end], end)
        }
    };
    let bare = name.strip_prefix('^').unwrap_or(name);
    negated ^= bare.len() < name.len();
    let whole = &text[..length];
    let is_name = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    let class = format!("\\{}{{{bare}}}", if negated { 'P' } else { 'p' });
    if !is_name || (bare != "Any" && regex::Regex::new(&class).is_err()) {
        return Err(invalid(whole));
    }
    output.push_str(&class);
    Ok(length)
}

/// An escape that stands for one sign, and its length.
fn escaped_sign(text: &str) -> Result<(char, usize), PatternError> {
    let invalid = |length: usize| {
        let part = text.get(..length).unwrap_or(text);
        PatternError::new("invalid escape sequence", part)
    };
    let mut signs = text[1..].chars();
    let Some(sign) = signs.next() else {
        let code = "trailing backslash at end of expression";
        return Err(PatternError::new(code, ""));
    };
    let single = |sign: char| Ok((sign, 2));
    match sign {
        'a' => single('\u{7}'),
        'f' => single('\u{c}'),
        'n' => single('\n'),
        'r' => single('\r'),
        't' => single('\t'),
        'v' => single('\u{b}'),
        'x' => hexadecimal(text),
        '0'..='7' => {
            let digits = text[1..]
                .bytes()
                .take(3)
                .take_while(|b| (b'0'..=b'7').contains(b));
            let digits = digits.count();
            // One digit other than zero would be a reference to a group.
            if digits == 1 && sign != '0' {
                return Err(invalid(2));
            }
            let code = u32::from_str_radix(&text[1..=digits], 8).unwrap_or_default();
            let sign = char::from_u32(code).ok_or_else(|| invalid(1 + digits))?;
            Ok((sign, 1 + digits))
        }
        sign if sign.is_ascii() && !sign.is_ascii_alphanumeric() => single(sign),
        other => Err(invalid(1 + other.len_utf8())),
    }
}

/// `\x7f` or `\x{10FFFF}`.
fn hexadecimal(text: &str) -> Result<(char, usize), PatternError> {
    let invalid = |length: usize| {
        let part = text.get(..length).unwrap_or(text);
        PatternError::new("invalid escape sequence", part)
    };
    let (digits, length) = match text.as_bytes().get(2) {
        Some(b'{') => {
            let end = text.find('}').ok_or_else(|| invalid(text.len()))?;
            (&text[3..end], end + 1)
        }
        _ => (text.get(2..4).ok_or_else(|| invalid(text.len()))?, 4),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let code = u32::from_str_radix(digits, 16).ok().filter(|_| is_number);
    match code.and_then(char::from_u32) {
        Some(sign) => Ok((sign, length)),
        None => Err(invalid(length)),
    }
}

/// One sign that stands for itself, in a class too.
pub(super) fn push_literal(output: &mut String, sign: char) {
    match sign {
        sign if sign.is_ascii_alphanumeric() || sign == '_' || !sign.is_ascii() => {
            output.push(sign)
        }
        other => {
            let _ = write!(output, "\\x{{{:x}}}", other as u32);
        }
    }
}
