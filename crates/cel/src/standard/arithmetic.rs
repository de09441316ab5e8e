//! `+`, `-`, `*`, `/`, `%` and negation, with cel-go's errors of overflow.

use crate::error::EvalError;
use crate::numbers;
use crate::timestamp::{MAX_SECONDS, MIN_SECONDS, Timestamp};
use crate::value::{HostKind, Shared, Value};

/// The longest list that `+` makes. Adding lists costs one unit however long they are, so that the
/// cost alone bounds neither memory nor time.
const LONGEST_LIST: usize = 1 << 20;

pub fn add<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [left, right] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => left
            .checked_add(*right)
            .map(Value::Int)
            .ok_or_else(numbers::int_overflow),
        (Value::Uint(left), Value::Uint(right)) => left
            .checked_add(*right)
            .map(Value::Uint)
            .ok_or_else(numbers::uint_overflow),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left + right)),
        (Value::String(left), Value::String(right)) => {
            let mut text = String::with_capacity(left.len() + right.len());
            text.push_str(left);
            text.push_str(right);
            Ok(text.into())
        }
        (Value::Bytes(left), Value::Bytes(right)) => Ok(Value::Bytes(Shared::Owned(
            left.iter().chain(right.iter()).copied().collect(),
        ))),
        (Value::Duration(left), Value::Duration(right)) => left
            .checked_add(*right)
            .map(Value::Duration)
            .ok_or_else(numbers::int_overflow),
        (Value::Duration(duration), Value::Timestamp(at))
        | (Value::Timestamp(at), Value::Duration(duration)) => later(*at, i128::from(*duration)),
        (Value::List(_) | Value::Host(_), Value::List(_) | Value::Host(_)) => {
            add_lists(left, right)
        }
        (
            Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
            | Value::List(_),
            _,
        ) => Err(EvalError::NoSuchOverload),
        (Value::Host(host), _) if host.kind() == HostKind::List => Err(EvalError::NoSuchOverload),
        _ => Err(without_trait(left, "_+_")),
    }
}

fn add_lists<'a>(left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, EvalError> {
    let Some(first) = left.list_len() else {
        return Err(without_trait(left, "_+_"));
    };
    let Some(second) = right.list_len() else {
        return Err(EvalError::NoSuchOverload);
    };
    if let Value::Host(host) = left
        && let Some(sum) = crate::host_lists::add(*host, right)
    {
        return sum;
    }
    if first == 0 {
        return Ok(right.clone());
    }
    if second == 0 {
        return Ok(left.clone());
    }
    if first + second > LONGEST_LIST {
        return Err(EvalError::Message(format!(
            "the list would have more than {LONGEST_LIST} items"
        )));
    }
    let mut items = Vec::with_capacity(first + second);
    items.extend(left.items());
    items.extend(right.items());
    Ok(Value::list(items))
}

pub fn subtract<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [left, right] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => left
            .checked_sub(*right)
            .map(Value::Int)
            .ok_or_else(numbers::int_overflow),
        (Value::Uint(left), Value::Uint(right)) => left
            .checked_sub(*right)
            .map(Value::Uint)
            .ok_or_else(numbers::uint_overflow),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left - right)),
        (Value::Duration(left), Value::Duration(right)) => left
            .checked_sub(*right)
            .map(Value::Duration)
            .ok_or_else(numbers::int_overflow),
        (Value::Timestamp(at), Value::Duration(duration)) => {
            let negated = duration.checked_neg().ok_or_else(numbers::int_overflow)?;
            later(*at, i128::from(negated))
        }
        (Value::Timestamp(left), Value::Timestamp(right)) => {
            // The product of the seconds must fit before the nanoseconds are added.
            let seconds = left.seconds - right.seconds;
            let nanoseconds = i64::from(left.nanoseconds) - i64::from(right.nanoseconds);
            seconds
                .checked_mul(1_000_000_000)
                .and_then(|scaled| scaled.checked_add(nanoseconds))
                .map(Value::Duration)
                .ok_or_else(numbers::int_overflow)
        }
        (
            Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::Duration(_)
            | Value::Timestamp(_),
            _,
        ) => Err(EvalError::NoSuchOverload),
        _ => Err(without_trait(left, "_-_")),
    }
}

pub fn multiply<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Int(left), Value::Int(right)] => left
            .checked_mul(*right)
            .map(Value::Int)
            .ok_or_else(numbers::int_overflow),
        [Value::Uint(left), Value::Uint(right)] => left
            .checked_mul(*right)
            .map(Value::Uint)
            .ok_or_else(numbers::uint_overflow),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left * right)),
        _ => Err(not_numeric(arguments, "_*_", true)),
    }
}

pub fn divide<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let by_zero = || EvalError::Message("division by zero".to_owned());
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => Err(by_zero()),
        [Value::Int(left), Value::Int(right)] => left
            .checked_div(*right)
            .map(Value::Int)
            .ok_or_else(numbers::int_overflow),
        [Value::Uint(left), Value::Uint(right)] => Ok(Value::Uint(left / right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left / right)),
        _ => Err(not_numeric(arguments, "_/_", true)),
    }
}

pub fn modulo<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let by_zero = || EvalError::Message("modulus by zero".to_owned());
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => Err(by_zero()),
        [Value::Int(left), Value::Int(right)] => left
            .checked_rem(*right)
            .map(Value::Int)
            .ok_or_else(numbers::int_overflow),
        [Value::Uint(left), Value::Uint(right)] => Ok(Value::Uint(left % right)),
        _ => Err(not_numeric(arguments, "_%_", false)),
    }
}

pub fn negate<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Int(number)] => number
            .checked_neg()
            .map(Value::Int)
            .ok_or_else(numbers::int_overflow),
        [Value::Double(number)] => Ok(Value::Double(-number)),
        [Value::Duration(duration)] => duration
            .checked_neg()
            .map(Value::Duration)
            .ok_or_else(numbers::int_overflow),
        [Value::Bool(_)] => Err(EvalError::NoSuchOverload),
        [other] => Err(without_trait(other, "-_")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// A moment moved by nanoseconds, within the range of years.
fn later<'a>(at: Timestamp, nanoseconds: i128) -> Result<Value<'a>, EvalError> {
    let moved = i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanoseconds) + nanoseconds;
    let seconds = moved.div_euclid(1_000_000_000);
    match i64::try_from(seconds) {
        Ok(seconds) if (MIN_SECONDS..=MAX_SECONDS).contains(&seconds) => {
            Ok(Value::Timestamp(Timestamp {
                seconds,
                nanoseconds: moved.rem_euclid(1_000_000_000) as u32,
                offset: at.offset,
            }))
        }
        _ => Err(numbers::timestamp_overflow()),
    }
}

fn not_numeric(arguments: &[Value<'_>], function: &str, takes_doubles: bool) -> EvalError {
    match arguments.first() {
        Some(Value::Int(_) | Value::Uint(_)) => EvalError::NoSuchOverload,
        Some(Value::Double(_)) if takes_doubles => EvalError::NoSuchOverload,
        Some(other) => without_trait(other, function),
        None => EvalError::NoSuchOverload,
    }
}

/// What cel-go says of an operand whose type does not know the operator. Types that receive calls
/// themselves are asked once more, and say less.
pub fn without_trait(operand: &Value<'_>, function: &str) -> EvalError {
    match operand {
        Value::String(_) | Value::Duration(_) | Value::Timestamp(_) => EvalError::NoSuchOverload,
        _ => EvalError::Message(format!("no such overload: {function}")),
    }
}
