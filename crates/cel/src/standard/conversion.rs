//! Conversions between types. The evaluator has looked at the types of the arguments.

use crate::duration;
use crate::error::EvalError;
use crate::numbers;
use crate::timestamp::{MAX_SECONDS, MIN_SECONDS, Timestamp};
use crate::types::Type;
use crate::value::{Shared, Value};

pub fn type_of<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [value] => Ok(Value::Type(value.type_of())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub fn to_dyn<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    arguments.first().cloned().ok_or(EvalError::NoSuchOverload)
}

pub fn to_bool<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(refused(arguments, &Type::Bool)),
        },
        _ => Err(refused(arguments, &Type::Bool)),
    }
}

pub fn to_bytes<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Bytes(octets)] => Ok(Value::Bytes(octets.clone())),
        [Value::String(text)] => Ok(Value::Bytes(match text {
            Shared::Borrowed(text) => Shared::Borrowed(text.as_bytes()),
            Shared::Owned(text) => Shared::Owned(text.clone().into()),
        })),
        _ => Err(refused(arguments, &Type::Bytes)),
    }
}

pub fn to_double<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Double(number)] => Ok(Value::Double(*number)),
        [Value::Int(number)] => Ok(Value::Double(*number as f64)),
        [Value::Uint(number)] => Ok(Value::Double(*number as f64)),
        [Value::String(text)] => numbers::parse_go_double(text)
            .map(Value::Double)
            .ok_or_else(|| refused(arguments, &Type::Double)),
        _ => Err(refused(arguments, &Type::Double)),
    }
}

pub fn to_duration<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Duration(*duration)),
        [Value::String(text)] => duration::parse(text)
            .map(Value::Duration)
            .ok_or_else(|| refused(arguments, &Type::Duration)),
        _ => Err(refused(arguments, &Type::Duration)),
    }
}

pub fn to_int<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Int(number)] => Ok(Value::Int(*number)),
        [Value::Uint(number)] => i64::try_from(*number)
            .map(Value::Int)
            .map_err(|_| numbers::int_overflow()),
        [Value::Double(number)] => numbers::double_to_int(*number)
            .map(Value::Int)
            .ok_or_else(numbers::int_overflow),
        [Value::Duration(nanoseconds)] => Ok(Value::Int(*nanoseconds)),
        [Value::Timestamp(at)] => Ok(Value::Int(at.seconds)),
        [Value::String(text)] => text
            .parse()
            .map(Value::Int)
            .map_err(|_| refused(arguments, &Type::Int)),
        _ => Err(refused(arguments, &Type::Int)),
    }
}

pub fn to_uint<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Uint(number)] => Ok(Value::Uint(*number)),
        [Value::Int(number)] => u64::try_from(*number)
            .map(Value::Uint)
            .map_err(|_| numbers::uint_overflow()),
        [Value::Double(number)] => numbers::double_to_uint(*number)
            .map(Value::Uint)
            .ok_or_else(numbers::uint_overflow),
        // Unlike Rust, Go takes no sign here.
        [Value::String(text)] if !text.starts_with('+') => text
            .parse()
            .map(Value::Uint)
            .map_err(|_| refused(arguments, &Type::Uint)),
        _ => Err(refused(arguments, &Type::Uint)),
    }
}

pub fn to_timestamp<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Timestamp(at)] => Ok(Value::Timestamp(*at)),
        [Value::Int(seconds)] if (MIN_SECONDS..=MAX_SECONDS).contains(seconds) => {
            Ok(Value::Timestamp(Timestamp {
                seconds: *seconds,
                nanoseconds: 0,
                offset: 0,
            }))
        }
        [Value::Int(_)] => Err(numbers::timestamp_overflow()),
        [Value::String(text)] => match Timestamp::parse(text) {
            Some(at) if (MIN_SECONDS..=MAX_SECONDS).contains(&at.seconds) => {
                Ok(Value::Timestamp(at))
            }
            Some(_) => Err(numbers::timestamp_overflow()),
            None => Err(refused(arguments, &Type::Timestamp)),
        },
        _ => Err(refused(arguments, &Type::Timestamp)),
    }
}

pub fn to_string<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match arguments {
        [Value::String(text)] => Value::String(text.clone()),
        [Value::Bool(value)] => if *value { "true" } else { "false" }.into(),
        [Value::Int(number)] => number.to_string().into(),
        [Value::Uint(number)] => number.to_string().into(),
        [Value::Double(number)] => numbers::go_double(*number).into(),
        [Value::Duration(nanoseconds)] => duration::in_seconds(*nanoseconds).into(),
        [Value::Timestamp(at)] => at.to_string().into(),
        // Not in expressions, but where values are formatted.
        [Value::Type(of)] => of.name().to_owned().into(),
        [Value::Bytes(octets)] => match octets {
            Shared::Borrowed(octets) => std::str::from_utf8(octets).map_err(|_| not_utf8())?.into(),
            Shared::Owned(octets) => std::str::from_utf8(octets)
                .map_err(|_| not_utf8())?
                .to_owned()
                .into(),
        },
        _ => return Err(refused(arguments, &Type::String)),
    })
}

fn not_utf8() -> EvalError {
    EvalError::Message("invalid UTF-8 in bytes, cannot convert to string".to_owned())
}

fn refused(arguments: &[Value<'_>], to: &Type) -> EvalError {
    match arguments {
        [value] => EvalError::Message(format!(
            "type conversion error from '{}' to '{}'",
            value.type_of(),
            to
        )),
        _ => EvalError::NoSuchOverload,
    }
}
