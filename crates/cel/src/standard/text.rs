//! The functions of strings.

use crate::error::EvalError;
use crate::patterns;
use crate::value::Value;

use super::arithmetic::without_trait;

pub fn contains<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    pair(arguments).map(|(text, part)| Value::Bool(text.contains(part)))
}

pub fn starts_with<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    pair(arguments).map(|(text, start)| Value::Bool(text.starts_with(start)))
}

pub fn ends_with<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    pair(arguments).map(|(text, end)| Value::Bool(text.ends_with(end)))
}

pub fn matches<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    if let [first, _] = arguments
        && !matches!(first, Value::String(_))
    {
        return Err(without_trait(first, "matches"));
    }
    let (text, pattern) = pair(arguments)?;
    Ok(Value::Bool(patterns::compile(pattern)?.is_match(text)))
}

fn pair<'b>(arguments: &'b [Value<'_>]) -> Result<(&'b str, &'b str), EvalError> {
    match arguments {
        [Value::String(left), Value::String(right)] => Ok((left, right)),
        _ => Err(EvalError::NoSuchOverload),
    }
}
