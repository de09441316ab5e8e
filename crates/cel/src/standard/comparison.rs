//! Negation and the orderings.

use std::cmp::Ordering;

use super::arithmetic::without_trait;
use crate::error::EvalError;
use crate::numbers;
use crate::value::Value;

pub fn not<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub fn less<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    compare(arguments, "_<_").map(|order| Value::Bool(order.is_lt()))
}

pub fn less_equals<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    compare(arguments, "_<=_").map(|order| Value::Bool(order.is_le()))
}

pub fn greater<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    compare(arguments, "_>_").map(|order| Value::Bool(order.is_gt()))
}

pub fn greater_equals<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    compare(arguments, "_>=_").map(|order| Value::Bool(order.is_ge()))
}

/// The order of two values, for libraries that sort.
pub fn order(left: &Value<'_>, right: &Value<'_>) -> Result<Ordering, EvalError> {
    let unordered = || EvalError::Message("NaN values cannot be ordered".to_owned());
    Ok(match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => (**left).cmp(&**right),
        (Value::Double(number), Value::Double(_) | Value::Int(_) | Value::Uint(_))
        | (Value::Int(_) | Value::Uint(_), Value::Double(number))
            if number.is_nan() =>
        {
            return Err(unordered());
        }
        (Value::Double(left), Value::Double(right)) => {
            if right.is_nan() {
                return Err(unordered());
            }
            numbers::compare_doubles(*left, *right)
        }
        // cel-go looks at NaN before it looks at the other type.
        (Value::Double(left), _) if left.is_nan() => return Err(unordered()),
        (Value::Double(left), Value::Int(right)) => numbers::compare_double_int(*left, *right),
        (Value::Double(left), Value::Uint(right)) => numbers::compare_double_uint(*left, *right),
        (Value::Int(left), Value::Double(right)) => {
            numbers::compare_double_int(*right, *left).reverse()
        }
        (Value::Int(left), Value::Uint(right)) => numbers::compare_int_uint(*left, *right),
        (Value::Uint(left), Value::Uint(right)) => left.cmp(right),
        (Value::Uint(left), Value::Int(right)) => {
            numbers::compare_int_uint(*right, *left).reverse()
        }
        (Value::Uint(left), Value::Double(right)) => {
            numbers::compare_double_uint(*right, *left).reverse()
        }
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Bytes(left), Value::Bytes(right)) => (**left).cmp(&**right),
        (Value::Duration(left), Value::Duration(right)) => left.cmp(right),
        (Value::Timestamp(left), Value::Timestamp(right)) => {
            (left.seconds, left.nanoseconds).cmp(&(right.seconds, right.nanoseconds))
        }
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn compare(arguments: &[Value<'_>], function: &str) -> Result<Ordering, EvalError> {
    let [left, right] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    match left {
        Value::Null
        | Value::List(_)
        | Value::Map(_)
        | Value::Object(_)
        | Value::Host(_)
        | Value::Optional(_)
        | Value::Type(_)
        | Value::Opaque(_) => Err(without_trait(left, function)),
        _ => order(left, right),
    }
}
