//! Values in the forms in which Go prints them, where users see them.

use std::fmt::Write;

use crate::document::Value;

/// A float as `%v` prints it: the shortest digits, with an exponent from a million on and below 0.0001.
pub fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_string();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_string();
    }
    // `{:e}` has the shortest digits too: 1.5e-7.
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    match (-4..6).contains(&exponent) {
        true => format!("{number}"),
        false => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
    }
}

/// A value as `%v` prints it: `map[a:1 b:[x y]]`.
pub fn printed(value: &Value) -> String {
    let mut text = String::new();
    print(value, &mut text);
    text
}

fn print(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::Bool(flag) => {
            let _ = write!(text, "{flag}");
        }
        Value::Integer(number) => {
            let _ = write!(text, "{number}");
        }
        Value::Float(number) => text.push_str(&float(*number)),
        Value::String(string) => text.push_str(string),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                print(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push_str("map[");
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                text.push_str(name);
                text.push(':');
                print(value, text);
            }
            text.push(']');
        }
    }
}

/// A value as a field error shows it: numbers and booleans as `%v`, the rest as JSON.
pub fn shown(value: &Value) -> Value {
    match value {
        // Whole floats have no fraction in Go; larger ones get an exponent there.
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e6 => {
            Value::Integer(*number as i64)
        }
        other => other.clone(),
    }
}
