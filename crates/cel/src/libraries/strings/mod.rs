//! The language's library for strings, as its second version has it.

mod clauses;
mod format;
mod numbers;

pub(crate) use self::clauses::clause;
use crate::function::{EvalError, Overload};
use crate::libraries::bounds::check_text;
use crate::libraries::declare::{global, list, member, message};
use crate::types::Type;
use crate::value::{Text, Value};

/// The functions of a version of the library: Kubernetes had the first (0) and has the third (2).
pub fn overloads(version: u32) -> Vec<Overload> {
    let string = Type::String;
    let one = || [Type::String];
    let two = || [Type::String, Type::String];
    let with_int = || [Type::String, Type::Int];
    let two_and_int = || [Type::String, Type::String, Type::Int];
    let mut overloads = vec![
        member("charAt", "string_char_at_int", with_int(), string.clone()).calls(char_at),
        member("indexOf", "string_index_of_string", two(), Type::Int).calls(index_of),
        member(
            "indexOf",
            "string_index_of_string_int",
            two_and_int(),
            Type::Int,
        )
        .calls(index_of),
        member(
            "lastIndexOf",
            "string_last_index_of_string",
            two(),
            Type::Int,
        )
        .calls(last_index_of),
        member(
            "lastIndexOf",
            "string_last_index_of_string_int",
            two_and_int(),
            Type::Int,
        )
        .calls(last_index_of),
        member("lowerAscii", "string_lower_ascii", one(), string.clone())
            .calls(|arguments| mapped(arguments, |text| text.to_ascii_lowercase())),
        member(
            "replace",
            "string_replace_string_string",
            [Type::String, Type::String, Type::String],
            string.clone(),
        )
        .calls(replace),
        member(
            "replace",
            "string_replace_string_string_int",
            [Type::String, Type::String, Type::String, Type::Int],
            string.clone(),
        )
        .calls(replace),
        member("split", "string_split_string", two(), list(Type::String)).calls(split),
        member(
            "split",
            "string_split_string_int",
            two_and_int(),
            list(Type::String),
        )
        .calls(split),
        member(
            "substring",
            "string_substring_int",
            with_int(),
            string.clone(),
        )
        .calls(substring),
        member(
            "substring",
            "string_substring_int_int",
            [Type::String, Type::Int, Type::Int],
            string.clone(),
        )
        .calls(substring),
        member("trim", "string_trim", one(), string.clone()).calls(trim),
        member("upperAscii", "string_upper_ascii", one(), string.clone())
            .calls(|arguments| mapped(arguments, |text| text.to_ascii_uppercase())),
    ];
    if version >= 1 {
        overloads.push(
            member(
                "format",
                "string_format",
                [Type::String, list(Type::Dyn)],
                string.clone(),
            )
            .calls(format::format),
        );
        overloads.push(
            global("strings.quote", "strings_quote", one(), string.clone())
                .calls(|arguments| mapped(arguments, quote)),
        );
    }
    overloads.push(member("join", "list_join", [list(Type::String)], string.clone()).calls(join));
    overloads.push(
        member(
            "join",
            "list_join_string",
            [list(Type::String), Type::String],
            string,
        )
        .calls(join),
    );
    overloads
}

fn mapped<'a>(
    arguments: &[Value<'a>],
    map: impl Fn(&str) -> String,
) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::String(text)] => Ok(map(text).into()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn out_of_range(index: i64) -> EvalError {
    message(format!("index out of range: {index}"))
}

/// Where the character with a number begins, in bytes. The end counts as a character.
fn byte_of(text: &str, character: i64) -> Option<usize> {
    let character = usize::try_from(character).ok()?;
    if text.is_ascii() {
        return (character <= text.len()).then_some(character);
    }
    let starts = text.char_indices().map(|(start, _)| start);
    starts.chain([text.len()]).nth(character)
}

fn characters(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => text.chars().count(),
    }
}

/// A part of a text, borrowed where the text is; single ASCII characters take no memory.
fn part<'a>(text: &Text<'a>, start: usize, end: usize) -> Value<'a> {
    match text {
        Text::Borrowed(text) => Value::from(&text[start..end]),
        Text::Owned(text) => match text[start..end].as_bytes() {
            [] => Value::from(""),
            [byte] => Value::from(&ASCII[usize::from(*byte)..=usize::from(*byte)]),
            _ => Value::from(text[start..end].to_owned()),
        },
    }
}

const ASCII: &str = "\0\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~\x7f";

fn char_at<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text), Value::Int(index)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let start = byte_of(text, *index).ok_or_else(|| out_of_range(*index))?;
    let length = text[start..].chars().next().map_or(0, char::len_utf8);
    Ok(part(text, start, start + length))
}

fn index_of<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, sought, offset) = match arguments {
        [Value::String(text), Value::String(sought)] => (text, sought, 0),
        [
            Value::String(text),
            Value::String(sought),
            Value::Int(offset),
        ] => (text, sought, *offset),
        _ => return Err(EvalError::NoSuchOverload),
    };
    if sought.is_empty() {
        return Ok(Value::Int(offset));
    }
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    // Beyond the end nothing is found.
    let Some(start) = byte_of(text, offset) else {
        return Ok(Value::Int(-1));
    };
    let found = text[start..].find(&**sought);
    Ok(Value::Int(found.map_or(-1, |found| {
        offset + characters(&text[start..start + found]) as i64
    })))
}

fn last_index_of<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, sought, offset) = match arguments {
        [Value::String(text), Value::String(sought)] => (text, sought, None),
        [
            Value::String(text),
            Value::String(sought),
            Value::Int(offset),
        ] => (text, sought, Some(*offset)),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let count = characters(text) as i64;
    if sought.is_empty() {
        return Ok(Value::Int(offset.unwrap_or(count)));
    }
    if offset.is_none() && text.len() < sought.len() {
        return Ok(Value::Int(-1));
    }
    let offset = offset.unwrap_or(count - 1);
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    if offset >= count {
        return Ok(Value::Int(-1));
    }
    // The last place where it may begin, and the end of what may be looked at.
    let end = byte_of(text, offset).map_or(text.len(), |start| start + sought.len());
    let mut end = end.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let found = text[..end].rfind(&**sought);
    Ok(Value::Int(
        found.map_or(-1, |found| characters(&text[..found]) as i64),
    ))
}

fn replace<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, old, new, limit) = match arguments {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [
            Value::String(text),
            Value::String(old),
            Value::String(new),
            Value::Int(limit),
        ] => (text, old, new, *limit),
        _ => return Err(EvalError::NoSuchOverload),
    };
    // A negative limit is none.
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 || **old == **new {
        return Ok(Value::String(text.clone()));
    }
    let count = text.matches(&**old).take(limit).count();
    let length = count.saturating_mul(new.len()).saturating_add(text.len());
    check_text(
        "replace",
        length.saturating_sub(count.saturating_mul(old.len())),
    )?;
    Ok(text.replacen(&**old, new, limit).into())
}

fn split<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, separator, limit) = match arguments {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [
            Value::String(text),
            Value::String(separator),
            Value::Int(limit),
        ] => (text, separator, *limit),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let mut parts = Vec::new();
    let mut start = 0;
    if separator.is_empty() {
        for (index, character) in text.char_indices() {
            if parts.len() + 1 == limit {
                break;
            }
            start = index + character.len_utf8();
            parts.push(part(text, index, start));
        }
        if start < text.len() {
            parts.push(part(text, start, text.len()));
        }
    } else {
        for (index, separator) in text.match_indices(&**separator) {
            if parts.len() + 1 == limit {
                break;
            }
            parts.push(part(text, start, index));
            start = index + separator.len();
        }
        parts.push(part(text, start, text.len()));
    }
    Ok(Value::list(parts))
}

fn substring<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::String(text), Value::Int(start)] => {
            let start = byte_of(text, *start).ok_or_else(|| out_of_range(*start))?;
            Ok(part(text, start, text.len()))
        }
        [Value::String(text), Value::Int(start), Value::Int(end)] => {
            if start > end {
                return Err(message(format!(
                    "invalid substring range. start: {start}, end: {end}"
                )));
            }
            let first = byte_of(text, *start).ok_or_else(|| out_of_range(*start))?;
            let last = byte_of(text, *end).ok_or_else(|| out_of_range(*end))?;
            Ok(part(text, first, last))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn trim<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let start = text.len() - text.trim_start().len();
    let end = start + text.trim().len();
    Ok(part(text, start, end))
}

fn join<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (list, separator) = match arguments {
        [list] => (list, ""),
        [list, Value::String(separator)] => (list, &**separator),
        _ => return Err(EvalError::NoSuchOverload),
    };
    if list.list_len().is_none() {
        return Err(EvalError::NoSuchOverload);
    }
    let mut joined = String::new();
    for (index, item) in list.items().enumerate() {
        let Value::String(text) = &item else {
            let shown = crate::go_text::of(&item);
            return Err(message(format!("join: invalid input: {shown}")));
        };
        let separator = if index == 0 { "" } else { separator };
        check_text("join", joined.len() + separator.len() + text.len())?;
        joined.push_str(separator);
        joined.push_str(text);
    }
    Ok(joined.into())
}

/// In double quotes, with the escapes that the language reads.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        let escape = match character {
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{b}' => "\\v",
            '\\' => "\\\\",
            '"' => "\\\"",
            other => {
                quoted.push(other);
                continue;
            }
        };
        quoted.push_str(escape);
    }
    quoted.push('"');
    quoted
}
