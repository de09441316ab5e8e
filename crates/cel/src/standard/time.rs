//! The parts of moments and durations.

use crate::error::EvalError;
use crate::timestamp::{Civil, Timestamp};
use crate::value::Value;

const SECOND: i64 = 1_000_000_000;

pub fn full_year<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    civil(arguments).map(|civil| Value::Int(civil.year))
}

pub fn month<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    civil(arguments).map(|civil| Value::Int(civil.month - 1))
}

pub fn day_of_year<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    civil(arguments).map(|civil| Value::Int(civil.day_of_year - 1))
}

pub fn day_of_month<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    civil(arguments).map(|civil| Value::Int(civil.day - 1))
}

pub fn date<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    civil(arguments).map(|civil| Value::Int(civil.day))
}

pub fn day_of_week<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    civil(arguments).map(|civil| Value::Int(civil.day_of_week))
}

pub fn hours<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(duration / (3600 * SECOND))),
        _ => civil(arguments).map(|civil| Value::Int(civil.hour)),
    }
}

pub fn minutes<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(duration / (60 * SECOND))),
        _ => civil(arguments).map(|civil| Value::Int(civil.minute)),
    }
}

pub fn seconds<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(duration / SECOND)),
        _ => civil(arguments).map(|civil| Value::Int(civil.second)),
    }
}

pub fn milliseconds<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(duration / (SECOND / 1000))),
        [Value::Timestamp(at), ..] => {
            offset(*at, arguments)?;
            Ok(Value::Int(i64::from(at.nanoseconds / 1_000_000)))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn civil(arguments: &[Value<'_>]) -> Result<Civil, EvalError> {
    match arguments {
        [Value::Timestamp(at), ..] => Ok(at.civil(offset(*at, arguments)?)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Seconds east of UTC in the zone that the second argument names; UTC without it.
fn offset(at: Timestamp, arguments: &[Value<'_>]) -> Result<i64, EvalError> {
    match arguments {
        [_, Value::String(zone)] => at.offset_in(zone),
        _ => Ok(0),
    }
}
