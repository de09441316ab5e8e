//! Amounts that are a number or a percentage, such as `maxUnavailable`.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names::pattern_error;
use crate::strategy::checks::not_negative;

/// Checks an amount: a number that is not negative, or a percentage.
pub fn validate(value: &Value, path: &Path) -> Vec<FieldError> {
    match value {
        Value::String(text) if percent(text).is_none() => {
            let detail = pattern_error(
                "a valid percent string must be a numeric string followed by an ending '%'",
                "[0-9]+%",
                &["1%", "93%"],
            );
            vec![FieldError::invalid(path, text.as_str(), detail)]
        }
        Value::Integer(number) => not_negative(*number, path).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The error for a percentage above 100.
pub fn above_hundred(value: &Value, path: &Path) -> Option<FieldError> {
    let percent = value.as_str().and_then(percent)?;
    let detail = "must not be greater than 100%";
    (percent > 100).then(|| FieldError::invalid(path, value.clone(), detail))
}

/// The number, of a percentage too; 0 for what is neither.
pub fn amount(value: Option<&Value>) -> i64 {
    match value {
        Some(Value::String(text)) => percent(text).or(text.parse().ok()).unwrap_or(0),
        Some(number) => number.as_i64().unwrap_or(0),
        None => 0,
    }
}

/// The value in a table cell.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `{type, rollingUpdate}` as upstream's errors show it: its internal type, with Go's names.
pub fn shown_strategy(strategy: Option<&Value>) -> Value {
    let field = |name: &str| {
        let value = strategy.and_then(|strategy| strategy.get(name));
        value.cloned().unwrap_or_default()
    };
    let mut made = Value::object();
    made.set(&["Type"], field("type"));
    made.set(&["RollingUpdate"], field("rollingUpdate"));
    made
}

fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(i64::MAX))
}
