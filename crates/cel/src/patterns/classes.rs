//! Classes of characters in regular expressions: `[a-z]`, `\d`, `\p{Greek}`, `[:alpha:]`, written for
//! the `regex` crate.

use regex::Regex;

use super::escapes::{PatternError, Reason, error, escape};

/// A class without members.
pub(super) const NOTHING: &str = r"[^\x00-\x{10FFFF}]";
const EVERYTHING: &str = r"[\x00-\x{10FFFF}]";

/// A class in brackets at the beginning of a text, and what follows it.
pub(super) fn bracketed(whole: &str) -> Result<(String, &str), PatternError> {
    let mut rest = &whole[1..];
    let mut class = String::from("[");
    if let Some(after) = rest.strip_prefix('^') {
        class.push('^');
        rest = after;
    }
    let mut is_empty = true;
    let mut is_first = true;
    while is_first || !rest.starts_with(']') {
        is_first = false;
        if rest.len() > 2
            && rest.starts_with("[:")
            && let Some(end) = rest[2..].find(":]")
        {
            let (name, after) = rest.split_at(end + 4);
            if !is_posix(name) {
                return Err(error(Reason::CharacterRange, name));
            }
            class.push_str(name);
            is_empty = false;
            rest = after;
            continue;
        }
        if let Some((inner, after)) = escaped(rest)? {
            class.push_str(&inner);
            is_empty = false;
            rest = after;
            continue;
        }
        let start = rest;
        let (low, after) = character(rest, whole)?;
        let mut high = low;
        rest = after;
        if rest.len() >= 2 && rest.starts_with('-') && !rest.starts_with("-]") {
            (high, rest) = character(&rest[1..], whole)?;
            if high < low {
                let range = &start[..start.len() - rest.len()];
                return Err(error(Reason::CharacterRange, range));
            }
        }
        is_empty &= !push_range(&mut class, low, high);
    }
    if is_empty {
        // Only halves of surrogate pairs were named.
        let class = if class == "[" { NOTHING } else { EVERYTHING };
        return Ok((class.to_owned(), &rest[1..]));
    }
    class.push(']');
    Ok((class, &rest[1..]))
}

/// `\d`, `\pL`, `\p{Greek}` and their like at the beginning of a text, and what follows.
pub(super) fn escaped(text: &str) -> Result<Option<(String, &str)>, PatternError> {
    let bytes = text.as_bytes();
    if bytes.len() < 2 || bytes[0] != b'\\' {
        return Ok(None);
    }
    let class = match bytes[1] {
        b'd' => "[0-9]",
        b'D' => "[^0-9]",
        b's' => r"[\t\n\x0C\r ]",
        b'S' => r"[^\t\n\x0C\r ]",
        b'w' => "[0-9A-Za-z_]",
        b'W' => "[^0-9A-Za-z_]",
        b'p' | b'P' => return unicode(text).map(Some),
        _ => return Ok(None),
    };
    Ok(Some((class.to_owned(), &text[2..])))
}

fn unicode(text: &str) -> Result<(String, &str), PatternError> {
    let mut is_negated = text.as_bytes()[1] == b'P';
    let rest = &text[2..];
    let (sequence, mut name) = match rest.chars().next() {
        Some('{') => {
            let end = text
                .find('}')
                .ok_or_else(|| error(Reason::CharacterRange, text))?;
            (&text[..=end], &text[3..end])
        }
        Some(letter) => {
            let sequence = &text[..2 + letter.len_utf8()];
            (sequence, &sequence[2..])
        }
        None => (text, ""),
    };
    if let Some(inner) = name.strip_prefix('^') {
        is_negated = !is_negated;
        name = inner;
    }
    let after = &text[sequence.len()..];
    let plain = plain(name);
    // Halves of surrogate pairs are not in valid text, and the crate has no name for them.
    if matches!(plain.as_str(), "cs" | "surrogate") {
        let class = if is_negated { EVERYTHING } else { NOTHING };
        return Ok((class.to_owned(), after));
    }
    let property = property(&plain).ok_or_else(|| error(Reason::CharacterRange, sequence))?;
    let letter = if is_negated { 'P' } else { 'p' };
    Ok((format!(r"\{letter}{{{property}}}"), after))
}

/// A name without what both sides ignore in it: case, blanks, hyphens and underscores.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|character| !matches!(character, '_' | '-' | ' '))
        .map(|character| character.to_ascii_lowercase())
        .collect()
}

/// What the `regex` crate calls a general category or a script that Go knows.
fn property(plain: &str) -> Option<String> {
    if plain.is_empty() || !plain.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return None;
    }
    if matches!(plain, "any" | "assigned" | "ascii") {
        return Some(plain.to_owned());
    }
    let is_known = |property: &str| Regex::new(&format!(r"\p{{{property}}}")).is_ok();
    let category = format!("gc={plain}");
    if is_known(&category) {
        return Some(category);
    }
    // Go knows scripts by their long names only. The short ones have four letters.
    let is_long = plain.len() != 4
        || matches!(
            plain,
            "ahom" | "cham" | "kawi" | "lisu" | "modi" | "newa" | "thai" | "toto"
        );
    let is_other = matches!(plain, "unknown" | "katakanaorhiragana");
    let script = format!("sc={plain}");
    (is_long && !is_other && is_known(&script)).then_some(script)
}

fn is_posix(name: &str) -> bool {
    let name = &name[2..name.len() - 2];
    matches!(
        name.strip_prefix('^').unwrap_or(name),
        "alnum"
            | "alpha"
            | "ascii"
            | "blank"
            | "cntrl"
            | "digit"
            | "graph"
            | "lower"
            | "print"
            | "punct"
            | "space"
            | "upper"
            | "word"
            | "xdigit"
    )
}

/// One character of a class in brackets as its code point.
fn character<'a>(text: &'a str, whole: &str) -> Result<(u32, &'a str), PatternError> {
    match text.chars().next() {
        None => Err(error(Reason::MissingBracket, whole)),
        Some('\\') => escape(text),
        Some(character) => Ok((character as u32, &text[character.len_utf8()..])),
    }
}

/// Writes a range without the halves of surrogate pairs; says whether anything was left.
fn push_range(class: &mut String, low: u32, high: u32) -> bool {
    let is_surrogate = |code: u32| (0xD800..=0xDFFF).contains(&code);
    let low = if is_surrogate(low) { 0xE000 } else { low };
    let high = if is_surrogate(high) { 0xD7FF } else { high };
    let (Some(low), Some(high)) = (char::from_u32(low), char::from_u32(high)) else {
        return false;
    };
    if low > high {
        return false;
    }
    push_literal(class, low);
    if low != high {
        class.push('-');
        push_literal(class, high);
    }
    true
}

/// A character that stands for itself, inside and outside of classes.
pub(super) fn push_literal(output: &mut String, literal: char) {
    if literal.is_ascii_alphanumeric() || !literal.is_ascii() {
        output.push(literal);
    } else {
        output.push_str(&format!("\\x{:02X}", literal as u32));
    }
}
