//! The functions of optional values. `or`, `orValue` and the operators with a question mark are the
//! evaluator's own.

use crate::function::{EvalError, Overload};
use crate::libraries::declare::{global, list, map, member, message, optional, parameter};
use crate::types::Type;
use crate::value::Value;

pub fn overloads() -> Vec<Overload> {
    let v = || parameter("V");
    let optional_v = || optional(v());
    let list_v = || list(v());
    let map_kv = || map(parameter("K"), v());
    let optionals = || list(optional_v());
    vec![
        global("optional.of", "optional_of", [v()], optional_v()).calls(of),
        global(
            "optional.ofNonZeroValue",
            "optional_ofNonZeroValue",
            [v()],
            optional_v(),
        )
        .calls(of_non_zero),
        global("optional.none", "optional_none", [], optional_v())
            .calls(|_| Ok(Value::Optional(None))),
        member("value", "optional_value", [optional_v()], v()).calls(value),
        member("hasValue", "optional_hasValue", [optional_v()], Type::Bool).calls(has_value),
        member(
            "or",
            "optional_or_optional",
            [optional_v(), optional_v()],
            optional_v(),
        ),
        member(
            "orValue",
            "optional_orValue_value",
            [optional_v(), v()],
            v(),
        ),
        global(
            "_?._",
            "select_optional_field",
            [Type::Dyn, Type::String],
            optional_v(),
        ),
        global(
            "_[?_]",
            "list_optindex_optional_int",
            [list_v(), Type::Int],
            optional_v(),
        ),
        global(
            "_[?_]",
            "optional_list_optindex_optional_int",
            [optional(list_v()), Type::Int],
            optional_v(),
        ),
        global(
            "_[?_]",
            "map_optindex_optional_value",
            [map_kv(), parameter("K")],
            optional_v(),
        ),
        global(
            "_[?_]",
            "optional_map_optindex_optional_value",
            [optional(map_kv()), parameter("K")],
            optional_v(),
        ),
        global(
            "_[_]",
            "optional_list_index_int",
            [optional(list_v()), Type::Int],
            optional_v(),
        ),
        global(
            "_[_]",
            "optional_map_index_value",
            [optional(map_kv()), parameter("K")],
            optional_v(),
        ),
        member("last", "list_last", [list_v()], optional_v()).calls(last),
        member("first", "list_first", [list_v()], optional_v()).calls(first),
        global(
            "optional.unwrap",
            "optional_unwrap",
            [optionals()],
            list_v(),
        )
        .calls(unwrap),
        member("unwrapOpt", "optional_unwrapOpt", [optionals()], list_v()).calls(unwrap),
    ]
}

fn of<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [value] => Ok(Value::some(value.clone())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn of_non_zero<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [value] if is_zero(value) => Ok(Value::Optional(None)),
        _ => of(arguments),
    }
}

/// Whether a value is the empty one of its type.
pub(crate) fn is_zero(value: &Value<'_>) -> bool {
    // The year 1, where Go's time begins.
    const FIRST_SECOND: i64 = -62_135_596_800;
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(number) | Value::Duration(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::Timestamp(at) => at.seconds == FIRST_SECOND && at.nanoseconds == 0,
        Value::List(_) | Value::Map(_) | Value::Host(_) => value.size() == Some(0),
        Value::Object(object) => object.fields().is_empty(),
        Value::Optional(_) | Value::Type(_) | Value::Opaque(_) => false,
    }
}

fn value<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(message("optional.none() dereference")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn has_value<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::Optional(value)] => Ok(value.is_some().into()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn first<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [list] if list.list_len().is_some() => {
            Ok(list.item(0).map_or(Value::Optional(None), Value::some))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn last<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [list] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let count = list.list_len().ok_or(EvalError::NoSuchOverload)?;
    let item = count.checked_sub(1).and_then(|index| list.item(index));
    Ok(item.map_or(Value::Optional(None), Value::some))
}

fn unwrap<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [list] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let mut values = Vec::new();
    for item in list.items() {
        match item {
            Value::Optional(Some(value)) => values.push((*value).clone()),
            Value::Optional(None) => {}
            other => {
                let shown = crate::go_text::of(&other);
                return Err(message(format!("value {shown} is not optional")));
            }
        }
    }
    Ok(Value::list(values))
}
