//! Functions of lists: Kubernetes' own (`isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf`),
//! and in [`extended`] the language's library.

pub mod extended;

use std::cmp::Ordering;

use crate::function::{Compute, EvalError, Overload};
use crate::libraries::declare::{list, member, message, parameter};
use crate::standard;
use crate::types::Type;
use crate::value::Value;

/// The types of items that can be ordered, with their names in the identifiers of overloads.
const COMPARABLE: [(Type, [&str; 3]); 8] = [
    (
        Type::Int,
        [
            "list_int_is_sorted_bool",
            "list_int_max_int",
            "list_int_min_int",
        ],
    ),
    (
        Type::Uint,
        [
            "list_uint_is_sorted_bool",
            "list_uint_max_uint",
            "list_uint_min_uint",
        ],
    ),
    (
        Type::Double,
        [
            "list_double_is_sorted_bool",
            "list_double_max_double",
            "list_double_min_double",
        ],
    ),
    (
        Type::Bool,
        [
            "list_bool_is_sorted_bool",
            "list_bool_max_bool",
            "list_bool_min_bool",
        ],
    ),
    (
        Type::Duration,
        [
            "list_duration_is_sorted_bool",
            "list_duration_max_duration",
            "list_duration_min_duration",
        ],
    ),
    (
        Type::Timestamp,
        [
            "list_timestamp_is_sorted_bool",
            "list_timestamp_max_timestamp",
            "list_timestamp_min_timestamp",
        ],
    ),
    (
        Type::String,
        [
            "list_string_is_sorted_bool",
            "list_string_max_string",
            "list_string_min_string",
        ],
    ),
    (
        Type::Bytes,
        [
            "list_bytes_is_sorted_bool",
            "list_bytes_max_bytes",
            "list_bytes_min_bytes",
        ],
    ),
];

pub fn overloads() -> Vec<Overload> {
    let mut overloads = Vec::new();
    for (of, [id, _, _]) in COMPARABLE {
        overloads.push(member("isSorted", id, [list(of)], Type::Bool).calls(is_sorted));
    }
    let sums: [(Type, &'static str, Compute); 4] = [
        (Type::Int, "list_int_sum_int", |arguments| {
            sum(arguments, Value::Int(0))
        }),
        (Type::Uint, "list_uint_sum_uint", |arguments| {
            sum(arguments, Value::Uint(0))
        }),
        (Type::Double, "list_double_sum_double", |arguments| {
            sum(arguments, Value::Double(0.0))
        }),
        (Type::Duration, "list_duration_sum_duration", |arguments| {
            sum(arguments, Value::Duration(0))
        }),
    ];
    for (of, id, function) in sums {
        overloads.push(member("sum", id, [list(of.clone())], of).calls(function));
    }
    for (of, [_, id, _]) in COMPARABLE {
        overloads.push(
            member("max", id, [list(of.clone())], of)
                .calls(|arguments| extreme(arguments, "max", Ordering::Less)),
        );
    }
    for (of, [_, _, id]) in COMPARABLE {
        overloads.push(
            member("min", id, [list(of.clone())], of)
                .calls(|arguments| extreme(arguments, "min", Ordering::Greater)),
        );
    }
    let item = || [list(parameter("A")), parameter("A")];
    overloads.push(member("indexOf", "list_a_index_of_int", item(), Type::Int).calls(index_of));
    overloads.push(
        member("lastIndexOf", "list_a_last_index_of_int", item(), Type::Int).calls(last_index_of),
    );
    overloads
}

fn checked<'b, 'a>(arguments: &'b [Value<'a>]) -> Result<&'b Value<'a>, EvalError> {
    match arguments {
        [list, ..] if list.list_len().is_some() => Ok(list),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Whether values of a type have an order.
fn is_comparable(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
    )
}

/// The order of two values; nothing where they have none, which upstream passes over.
fn order(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    standard::comparison::order(left, right).ok()
}

fn is_sorted<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let mut before: Option<Value<'a>> = None;
    for item in checked(arguments)?.items() {
        if !is_comparable(&item) {
            return Err(EvalError::NoSuchOverload);
        }
        if before.is_some_and(|before| order(&before, &item) == Some(Ordering::Greater)) {
            return Ok(Value::Bool(false));
        }
        before = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(arguments: &[Value<'a>], zero: Value<'a>) -> Result<Value<'a>, EvalError> {
    let mut total = zero;
    for item in checked(arguments)?.items() {
        total = standard::arithmetic::add(&[total, item])?;
    }
    Ok(total)
}

fn extreme<'a>(
    arguments: &[Value<'a>],
    name: &str,
    replaced_when: Ordering,
) -> Result<Value<'a>, EvalError> {
    let mut chosen: Option<Value<'a>> = None;
    for item in checked(arguments)?.items() {
        if !is_comparable(&item) {
            return Err(EvalError::NoSuchOverload);
        }
        chosen = match chosen {
            Some(chosen) if order(&chosen, &item) != Some(replaced_when) => Some(chosen),
            _ => Some(item),
        };
    }
    chosen.ok_or_else(|| message(format!("{name} called on empty list")))
}

fn index_of<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [list, item] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let found = checked(arguments)?
        .items()
        .position(|known| known.equals(item));
    debug_assert!(list.list_len().is_some());
    Ok(Value::Int(found.map_or(-1, |index| index as i64)))
}

fn last_index_of<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [list, item] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let count = list.list_len().ok_or(EvalError::NoSuchOverload)?;
    let found = (0..count)
        .rev()
        .find(|index| list.item(*index).is_some_and(|known| known.equals(item)));
    Ok(Value::Int(found.map_or(-1, |index| index as i64)))
}
