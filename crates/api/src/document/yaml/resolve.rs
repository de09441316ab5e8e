//! What a plain scalar means, by the rules of kubectl's YAML library (YAML 1.1 with exceptions).

use crate::document::Value;

/// A scalar that is not what its tag says, or that JSON does not have.
#[derive(Debug, thiserror::Error)]
pub enum ScalarError {
    #[error("unsupported value: {0}")]
    Unsupported(String),
    #[error("cannot decode `{text}` as a !!{tag}")]
    OtherType { text: String, tag: String },
}

/// The value of a scalar. `tag` is the suffix of a core tag such as `!!str`.
pub fn scalar(text: &str, plain: bool, tag: Option<&str>) -> Result<Value, ScalarError> {
    let value = match tag {
        Some("str" | "binary") => return Ok(text.into()),
        Some(_) => resolve(text),
        None if plain => resolve(text),
        None => return Ok(text.into()),
    };
    if matches!(value, Value::Float(number) if !number.is_finite()) {
        return Err(ScalarError::Unsupported(text.to_string()));
    }
    let fits = match tag {
        Some("int") => matches!(value, Value::Integer(_)),
        Some("float") => matches!(value, Value::Float(_) | Value::Integer(_)),
        Some("bool") => matches!(value, Value::Bool(_)),
        Some("null") => value.is_null(),
        _ => true,
    };
    match fits {
        true => Ok(value),
        false => Err(ScalarError::OtherType {
            text: text.to_string(),
            tag: tag.unwrap_or_default().to_string(),
        }),
    }
}

/// Whether a text may stand without quotes and stay a text.
pub fn is_text(text: &str) -> bool {
    matches!(resolve(text), Value::String(_)) && !is_date(text)
}

fn resolve(text: &str) -> Value {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        ".nan" | ".NaN" | ".NAN" => return Value::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF" => {
            return Value::Float(f64::INFINITY);
        }
        _ => {}
    }
    match text.as_bytes()[0] {
        b'0'..=b'9' | b'+' | b'-' | b'.' => number(text).unwrap_or_else(|| text.into()),
        _ => text.into(),
    }
}

fn number(text: &str) -> Option<Value> {
    let digits = text.replace('_', "");
    if let Some(number) = integer(&digits) {
        return Some(number);
    }
    if !is_decimal(&digits) {
        return None;
    }
    let number: f64 = digits.parse().ok()?;
    // JSON writes a float without a fraction as an integer.
    match number.fract() == 0.0 && number.abs() < i64::MAX as f64 {
        true => Some(Value::Integer(number as i64)),
        false => Some(Value::Float(number)),
    }
}

/// Go's integer literals: `0x`, `0b`, `0o` and leading zeros for octal.
fn integer(digits: &str) -> Option<Value> {
    let (negative, magnitude) = match digits.as_bytes().first()? {
        b'-' => (true, &digits[1..]),
        b'+' => (false, &digits[1..]),
        _ => (false, digits),
    };
    let (radix, rest) = match magnitude.get(..2).unwrap_or_default() {
        "0x" | "0X" => (16, &magnitude[2..]),
        "0b" | "0B" => (2, &magnitude[2..]),
        "0o" | "0O" => (8, &magnitude[2..]),
        _ if magnitude.len() > 1 && magnitude.starts_with('0') => (8, &magnitude[1..]),
        _ => (10, magnitude),
    };
    if rest.starts_with(['+', '-']) {
        return None;
    }
    let number = i128::from_str_radix(rest, radix).ok()?;
    let number = if negative { -number } else { number };
    match i64::try_from(number) {
        Ok(number) => Some(Value::Integer(number)),
        Err(_) if number > 0 && number <= i128::from(u64::MAX) => Some(Value::Float(number as f64)),
        Err(_) => None,
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && all_digits(fraction),
        Some((whole, fraction)) => all_digits(whole) && all_digits(fraction),
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    mantissa_fits && exponent_fits
}

/// A date or a time: text for us, something else for other readers.
fn is_date(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok() || text.parse::<jiff::civil::Date>().is_ok()
}
