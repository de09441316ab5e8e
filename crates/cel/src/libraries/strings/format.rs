//! `"…".format([…])`: clauses filled with values.

use super::{clauses, numbers};
use crate::function::EvalError;
use crate::libraries::bounds::check_text;
use crate::libraries::declare::message;
use crate::libraries::quote::quoted;
use crate::standard;
use crate::value::Value;

pub(super) fn format<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(format), list] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    if list.list_len().is_none() {
        return Err(EvalError::NoSuchOverload);
    }
    let mut output = Vec::with_capacity(format.len());
    let mut rest = format.as_bytes();
    let mut used = 0;
    while let Some(percent) = rest.iter().position(|byte| *byte == b'%') {
        output.extend_from_slice(&rest[..percent]);
        rest = &rest[percent + 1..];
        if let Some(after) = rest.strip_prefix(b"%") {
            output.push(b'%');
            rest = after;
            continue;
        }
        let item = list
            .item(used)
            .ok_or_else(|| message(format!("index {used} out of range")))?;
        if rest.is_empty() {
            return Err(message("unexpected end of string"));
        }
        let (precision, letter, after) = clauses::clause(rest)
            .map_err(|problem| message(format!("could not parse formatting clause: {problem}")))?;
        let text = filled(&item, letter, precision).map_err(|problem| match problem {
            Problem::Message(problem) => message(format!("error during formatting: {problem}")),
            Problem::TooLong(error) => error,
        })?;
        check_text("format", output.len() + text.len())?;
        output.extend_from_slice(text.as_bytes());
        rest = after;
        used += 1;
    }
    output.extend_from_slice(rest);
    // Clauses are whole characters, so that what is between them stays text.
    Ok(String::from_utf8_lossy(&output).into_owned().into())
}

enum Problem {
    Message(String),
    TooLong(EvalError),
}

impl From<String> for Problem {
    fn from(text: String) -> Problem {
        Problem::Message(text)
    }
}

fn filled(value: &Value<'_>, letter: u8, precision: Option<i64>) -> Result<String, Problem> {
    let refused = |rule: &str| {
        let of = value.type_of();
        Err(Problem::Message(format!("{rule}, was given {}", of.name())))
    };
    match (letter, value) {
        (b's', _) => {
            let mut text = String::new();
            push_text(&mut text, value)?;
            Ok(text)
        }
        (b'd', Value::Int(number)) => Ok(number.to_string()),
        (b'd', Value::Uint(number)) => Ok(number.to_string()),
        (b'd', _) => refused("decimal clause can only be used on integers"),
        (b'f', _) => match double(value) {
            Some(number) => Ok(numbers::fixed(number, precision)),
            None => refused("fixed-point clause can only be used on doubles"),
        },
        (b'e', _) => match double(value) {
            Some(number) => Ok(numbers::scientific(number, precision)),
            None => refused("scientific clause can only be used on doubles"),
        },
        (b'b', Value::Int(number)) => Ok(signed(*number, |size| format!("{size:b}"))),
        (b'b', Value::Uint(number)) => Ok(format!("{number:b}")),
        (b'b', Value::Bool(value)) => Ok(u8::from(*value).to_string()),
        (b'b', _) => refused("only integers and bools can be formatted as binary"),
        (b'o', Value::Int(number)) => Ok(signed(*number, |size| format!("{size:o}"))),
        (b'o', Value::Uint(number)) => Ok(format!("{number:o}")),
        (b'o', _) => refused("octal clause can only be used on integers"),
        (_, Value::Int(number)) => Ok(cased(signed(*number, |size| format!("{size:x}")), letter)),
        (_, Value::Uint(number)) => Ok(cased(format!("{number:x}"), letter)),
        (_, Value::String(text)) => Ok(cased(hexadecimal(text.as_bytes())?, letter)),
        (_, Value::Bytes(bytes)) => Ok(cased(hexadecimal(bytes)?, letter)),
        _ => refused("only integers, byte buffers, and strings can be formatted as hex"),
    }
}

/// A double, or one of the texts that stand for those without digits.
fn double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn signed(number: i64, write: impl Fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", write(number.unsigned_abs()))
}

fn cased(text: String, letter: u8) -> String {
    match letter {
        b'X' => text.to_ascii_uppercase(),
        _ => text,
    }
}

fn hexadecimal(bytes: &[u8]) -> Result<String, Problem> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    check_text("format", bytes.len().saturating_mul(2)).map_err(Problem::TooLong)?;
    let digits = bytes.iter().flat_map(|byte| {
        [byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)]))
    });
    Ok(digits.collect())
}

/// A value as the string clause writes it.
fn push_text(output: &mut String, value: &Value<'_>) -> Result<(), Problem> {
    match value {
        Value::List(_) | Value::Map(_) | Value::Host(_) => push_member(output, value),
        Value::Null => {
            output.push_str("null");
            Ok(())
        }
        Value::Object(_) | Value::Optional(_) | Value::Opaque(_) => Err(format!(
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
            value.type_of().name()
        )
        .into()),
        _ => {
            output.push_str(&converted(value)?);
            Ok(())
        }
    }
}

fn converted(value: &Value<'_>) -> Result<String, Problem> {
    if let Value::Type(of) = value {
        return Ok(of.name().to_owned());
    }
    match standard::conversion::to_string(std::slice::from_ref(value)) {
        Ok(Value::String(text)) => Ok(text.to_string()),
        Ok(_) => Err("no text".to_owned().into()),
        Err(error) => Err(format!("could not convert argument \"{error}\" to string").into()),
    }
}

/// A member of a list or map, written so that the language could read it. The depth of values is
/// bounded by the expression and by the decoder of the host's objects.
fn push_member(output: &mut String, value: &Value<'_>) -> Result<(), Problem> {
    check_text("format", output.len()).map_err(Problem::TooLong)?;
    match value {
        Value::String(text) => output.push_str(&quoted(text)),
        Value::Bytes(_) => {
            output.push('b');
            output.push_str(&quoted(&converted(value)?));
        }
        Value::Double(number) => match number.is_finite() {
            true => output.push_str(&format!("{number:.6}")),
            false => output.push_str(match number.is_nan() {
                true => "\"NaN\"",
                false if *number > 0.0 => "\"+Inf\"",
                false => "\"-Inf\"",
            }),
        },
        Value::Duration(_) => output.push_str(&format!("duration({})", quoted(&converted(value)?))),
        Value::Timestamp(_) => {
            output.push_str(&format!("timestamp({})", quoted(&converted(value)?)));
        }
        Value::Object(_) | Value::Optional(_) | Value::Opaque(_) => {
            let of = value.type_of();
            return Err(format!("no formatting function for {}", of.name()).into());
        }
        Value::List(_) | Value::Map(_) | Value::Host(_) if value.list_len().is_some() => {
            output.push('[');
            for (index, item) in value.items().enumerate() {
                if index > 0 {
                    output.push_str(", ");
                }
                push_member(output, &item)?;
            }
            output.push(']');
        }
        Value::List(_) | Value::Map(_) | Value::Host(_) => {
            let mut entries = Vec::new();
            let mut long = output.len();
            for (key, value) in value.entries() {
                if !matches!(
                    key,
                    Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)
                ) {
                    let of = key.type_of();
                    return Err(format!(
                        "no formatting function for map key of type {}",
                        of.name()
                    )
                    .into());
                }
                let (mut key_text, mut value_text) = (String::new(), String::new());
                push_member(&mut key_text, &key)?;
                push_member(&mut value_text, &value)?;
                long += key_text.len() + value_text.len();
                check_text("format", long).map_err(Problem::TooLong)?;
                entries.push((key_text, value_text));
            }
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(key, value)| format!("{key}:{value}"))
                .collect();
            output.push_str(&format!("{{{}}}", entries.join(", ")));
        }
        _ => push_text(output, value)?,
    }
    Ok(())
}
