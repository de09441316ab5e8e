//! `in` and `size`.

use crate::error::EvalError;
use crate::value::Value;

use super::arithmetic::without_trait;

pub fn contained<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [item, container] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    if let Value::List(items) = container {
        return Ok(Value::Bool(items.iter().any(|known| item.equals(known))));
    }
    if container.list_len().is_some() {
        return Ok(Value::Bool(
            container.items().any(|known| item.equals(&known)),
        ));
    }
    if container.map_len().is_some() {
        return Ok(Value::Bool(container.has_key(item)));
    }
    Err(EvalError::NoSuchOverload)
}

pub fn size<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [value] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    match value {
        Value::Opaque(_) => Err(without_trait(value, "size")),
        _ => match value.size() {
            Some(size) => i64::try_from(size)
                .map(Value::Int)
                .map_err(|_| crate::numbers::int_overflow()),
            None => Err(without_trait(value, "size")),
        },
    }
}
