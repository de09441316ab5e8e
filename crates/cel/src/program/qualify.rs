//! Fields, keys and indices of values.

use crate::error::EvalError;
use crate::go_text;
use crate::numbers;
use crate::value::{HostKind, Value};

/// What a key or index finds in a value. Where the qualification is optional, nothing is found rather
/// than an error made.
pub fn qualify<'a>(
    value: &Value<'a>,
    key: &Value<'_>,
    is_optional: bool,
) -> Result<Option<Value<'a>>, EvalError> {
    let found = match value {
        Value::Host(host) => match (host.kind(), key) {
            (HostKind::List, _) => return index(value, key, is_optional),
            (_, Value::String(key)) => host.shape.try_get(host.data, key)?,
            _ => None,
        },
        Value::Map(map) => map.get(key).cloned(),
        Value::List(_) => return index(value, key, is_optional),
        Value::Object(_) => value.find(key),
        _ => None,
    };
    match found {
        Some(found) => Ok(Some(found)),
        None if is_optional => Ok(None),
        None => Err(EvalError::NoSuchKey(go_text::of(key))),
    }
}

fn index<'a>(
    list: &Value<'a>,
    key: &Value<'_>,
    is_optional: bool,
) -> Result<Option<Value<'a>>, EvalError> {
    let unsupported = || {
        EvalError::Message(format!(
            "unsupported index value {} in list",
            go_text::of(key)
        ))
    };
    let position = match key {
        Value::Int(position) => *position,
        Value::Double(position) => numbers::lossless_int(*position).ok_or_else(unsupported)?,
        Value::Uint(position) => i64::try_from(*position).map_err(|_| unsupported())?,
        other => {
            return Err(EvalError::Message(format!(
                "unsupported index type '{}' in list",
                other.type_of().name()
            )));
        }
    };
    match usize::try_from(position)
        .ok()
        .and_then(|position| list.item(position))
    {
        Some(item) => Ok(Some(item)),
        None if is_optional => Ok(None),
        None => Err(EvalError::Message(format!(
            "index out of bounds: {}",
            go_text::of(key)
        ))),
    }
}

/// Keys and indices are of these types only.
pub fn check_key(key: &Value<'_>) -> Result<(), EvalError> {
    match key {
        Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => {
            Ok(())
        }
        other => Err(EvalError::Message(format!(
            "invalid qualifier type: {}",
            go_text::type_of(other)
        ))),
    }
}
