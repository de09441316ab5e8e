//! The values of literals.

use crate::ast::{Constant, Name};

/// The value of a number, with the sign if it has one.
pub fn int(text: &str, is_negative: bool) -> Option<Constant> {
    let magnitude = magnitude(text)?;
    let value = if is_negative {
        0i64.checked_sub_unsigned(magnitude)?
    } else {
        i64::try_from(magnitude).ok()?
    };
    Some(Constant::Int(value))
}

/// The value of a number that ends in `u`.
pub fn uint(text: &str) -> Option<Constant> {
    magnitude(text.get(..text.len().checked_sub(1)?)?).map(Constant::Uint)
}

pub fn double(text: &str, is_negative: bool) -> Option<Constant> {
    let value: f64 = text.parse().ok()?;
    if value.is_infinite() {
        return None;
    }
    Some(Constant::Double(if is_negative { -value } else { value }))
}

fn magnitude(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The value of a quoted string.
pub fn string(text: &str) -> Result<Constant, &'static str> {
    let value = String::from_utf8(unescape(text, false)?).map_err(|_| UNABLE)?;
    Ok(Constant::String(Name::from(value)))
}

/// The value of a quoted string after its `b`.
pub fn bytes(text: &str) -> Result<Constant, &'static str> {
    Ok(Constant::Bytes(unescape(text, true)?.into()))
}

const UNABLE: &str = "unable to unescape string";
const INVALID: &str = "invalid unicode code point";

fn unescape(text: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    let unprefixed = text.strip_prefix(['r', 'R']);
    let is_raw = unprefixed.is_some();
    let body = unquote(unprefixed.unwrap_or(text)).ok_or(UNABLE)?;
    let normalized;
    let body = if body.contains('\r') {
        normalized = body.replace("\r\n", "\n").replace('\r', "\n");
        &normalized
    } else {
        body
    };
    if is_raw || !body.contains('\\') {
        return Ok(body.as_bytes().to_vec());
    }
    let mut value = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(backslash) = rest.find('\\') {
        value.extend_from_slice(&rest.as_bytes()[..backslash]);
        rest = escape(&rest[backslash + 1..], is_bytes, &mut value)?;
    }
    value.extend_from_slice(rest.as_bytes());
    Ok(value)
}

fn unquote(text: &str) -> Option<&str> {
    for quote in ["\"\"\"", "'''", "\"", "'"] {
        let body = text
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote));
        if body.is_some() {
            return body;
        }
    }
    None
}

/// Reads one escape sequence after its backslash and answers with what follows it.
fn escape<'a>(text: &'a str, is_bytes: bool, value: &mut Vec<u8>) -> Result<&'a str, &'static str> {
    let kind = text.chars().next().ok_or(UNABLE)?;
    let after = &text[kind.len_utf8()..];
    let simple = match kind {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => kind as u8,
        'x' | 'X' => return code(after, 2, 16, is_bytes, value),
        'u' | 'U' if is_bytes => return Err(UNABLE),
        'u' => return code(after, 4, 16, false, value),
        'U' => return code(after, 8, 16, false, value),
        '0'..='3' => return code(text, 3, 8, is_bytes, value),
        _ => return Err(UNABLE),
    };
    value.push(simple);
    Ok(after)
}

fn code<'a>(
    text: &'a str,
    digits: usize,
    radix: u32,
    is_byte: bool,
    value: &mut Vec<u8>,
) -> Result<&'a str, &'static str> {
    let number = text.get(..digits).ok_or(UNABLE)?;
    let number = u32::from_str_radix(number, radix).map_err(|_| UNABLE)?;
    if is_byte {
        value.push(number as u8);
    } else {
        let character = char::from_u32(number).ok_or(INVALID)?;
        let mut buffer = [0; 4];
        value.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
    }
    Ok(&text[digits..])
}
