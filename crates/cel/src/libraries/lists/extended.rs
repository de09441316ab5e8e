//! The language's library for lists, as its third version has it.

use std::cmp::Ordering;

use super::is_comparable;
use crate::function::{EvalError, Implementation, Overload};
use crate::libraries::bounds::{check_items, check_product};
use crate::libraries::declare::{global, list, member, message, parameter};
use crate::standard;
use crate::standard::arithmetic::without_trait;
use crate::types::Type;
use crate::value::Value;

const SORTABLE: [(Type, &str, &str); 8] = [
    (Type::Int, "list_int_sort", "list_int_sortByAssociatedKeys"),
    (
        Type::Uint,
        "list_uint_sort",
        "list_uint_sortByAssociatedKeys",
    ),
    (
        Type::Double,
        "list_double_sort",
        "list_double_sortByAssociatedKeys",
    ),
    (
        Type::Bool,
        "list_bool_sort",
        "list_bool_sortByAssociatedKeys",
    ),
    (
        Type::Duration,
        "list_google.protobuf.Duration_sort",
        "list_google.protobuf.Duration_sortByAssociatedKeys",
    ),
    (
        Type::Timestamp,
        "list_google.protobuf.Timestamp_sort",
        "list_google.protobuf.Timestamp_sortByAssociatedKeys",
    ),
    (
        Type::String,
        "list_string_sort",
        "list_string_sortByAssociatedKeys",
    ),
    (
        Type::Bytes,
        "list_bytes_sort",
        "list_bytes_sortByAssociatedKeys",
    ),
];

pub fn overloads() -> Vec<Overload> {
    let of_t = || list(parameter("T"));
    let dynamic = || list(Type::Dyn);
    let flat = Implementation::Singleton(flatten);
    let mut overloads = vec![
        member(
            "slice",
            "list_slice",
            [of_t(), Type::Int, Type::Int],
            of_t(),
        )
        .calls(slice),
        member("flatten", "list_flatten", [list(of_t())], of_t()).implemented(flat),
        member(
            "flatten",
            "list_flatten_int",
            [dynamic(), Type::Int],
            dynamic(),
        )
        .implemented(flat),
    ];
    for (of, id, _) in SORTABLE {
        overloads.push(
            member("sort", id, [list(of.clone())], list(of))
                .implemented(Implementation::Singleton(sort)),
        );
    }
    for (of, _, id) in SORTABLE {
        overloads.push(
            member("@sortByAssociatedKeys", id, [of_t(), list(of)], of_t())
                .implemented(Implementation::Singleton(sort_by_keys)),
        );
    }
    overloads.extend([
        global("lists.range", "lists_range", [Type::Int], list(Type::Int)).calls(range),
        member("reverse", "list_reverse", [of_t()], of_t()).calls(reverse),
        member("distinct", "list_distinct", [of_t()], of_t()).calls(distinct),
    ]);
    overloads
}

fn length(list: &Value<'_>) -> Result<usize, EvalError> {
    list.list_len().ok_or(EvalError::NoSuchOverload)
}

fn slice<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [list, Value::Int(start), Value::Int(end)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let count = length(list)?;
    let refused = |reason: String| Err(message(format!("cannot slice({start}, {end}), {reason}")));
    let (Ok(first), Ok(last)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return refused("negative indexes not supported".to_owned());
    };
    if first > last {
        return refused("start index must be less than or equal to end index".to_owned());
    }
    if count < last {
        return refused(format!("list is length {count}"));
    }
    Ok(Value::list(
        (first..last).filter_map(|index| list.item(index)).collect(),
    ))
}

fn flatten<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (list, depth) = match arguments {
        [list] if list.list_len().is_some() => (list, 1),
        [list, Value::Int(depth)] if list.list_len().is_some() => (list, *depth),
        [other] => {
            let of = other.type_of();
            return Err(message(format!("no such overload: {of}.flatten()")));
        }
        [other, depth] => {
            let (of, depth) = (other.type_of(), depth.type_of());
            return Err(message(format!("no such overload: {of}.flatten({depth})")));
        }
        _ => return Err(EvalError::NoSuchOverload),
    };
    if depth < 0 {
        return Err(message("level must be non-negative"));
    }
    let mut flat = Vec::new();
    push_flat(&mut flat, list, depth)?;
    Ok(Value::list(flat))
}

/// The depth of values is bounded by the expression and by the decoder of the host's objects.
fn push_flat<'a>(flat: &mut Vec<Value<'a>>, list: &Value<'a>, depth: i64) -> Result<(), EvalError> {
    for item in list.items() {
        if depth > 0 && item.list_len().is_some() {
            push_flat(flat, &item, depth - 1)?;
        } else {
            check_items("flatten", flat.len() + 1)?;
            flat.push(item);
        }
    }
    Ok(())
}

fn sort<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [list] if list.list_len().is_some() => sorted(list, list),
        [other] => Err(without_trait(other, "sort")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn sort_by_keys<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [list, keys] if list.list_len().is_some() => sorted(list, keys),
        [other, _] => Err(without_trait(other, "@sortByAssociatedKeys")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn sorted<'a>(list: &Value<'a>, keys: &Value<'a>) -> Result<Value<'a>, EvalError> {
    let (count, key_count) = (length(list)?, length(keys)?);
    if count != key_count {
        return Err(message(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {count} and {key_count} elements respectively"
        )));
    }
    let keys: Vec<Value<'a>> = keys.items().collect();
    let Some(first) = keys.first() else {
        return Ok(list.clone());
    };
    if !is_comparable(first) {
        return Err(message("list elements must be comparable"));
    }
    let of = first.type_of();
    if count > 1 && keys.iter().any(|key| key.type_of() != of) {
        return Err(message("list elements must have the same type"));
    }
    let mut indices: Vec<usize> = (0..keys.len()).collect();
    sort_indices(&mut indices, &keys);
    Ok(Value::list(
        indices
            .into_iter()
            .filter_map(|index| list.item(index))
            .collect(),
    ))
}

/// Up to this many items upstream's sort is stable; ours always is.
const INSERTED: usize = 12;

fn sort_indices(indices: &mut [usize], keys: &[Value<'_>]) {
    if indices.len() > INSERTED {
        indices.sort_by(|left, right| total_order(&keys[*left], &keys[*right]));
        return;
    }
    let is_less = |left: usize, right: usize| {
        standard::comparison::order(&keys[left], &keys[right]).is_ok_and(Ordering::is_lt)
    };
    for end in 1..indices.len() {
        let mut place = end;
        while place > 0 && is_less(indices[place], indices[place - 1]) {
            indices.swap(place, place - 1);
            place -= 1;
        }
    }
}

/// An order of all values of one type, also of numbers that have none.
fn total_order(left: &Value<'_>, right: &Value<'_>) -> Ordering {
    match (left, right) {
        (Value::Double(left), Value::Double(right)) if left.is_nan() || right.is_nan() => {
            left.total_cmp(right)
        }
        _ => standard::comparison::order(left, right).unwrap_or(Ordering::Equal),
    }
}

fn range<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::Int(count)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    check_product(usize::try_from(*count).unwrap_or(0), RANGE_FACTOR)?;
    Ok(Value::list((0..*count).map(Value::Int).collect()))
}

/// A list with more items than the largest cost of one call, a million, is not made at all.
const RANGE_FACTOR: usize = 19;

fn reverse<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [list] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let indices = (0..length(list)?).rev();
    Ok(Value::list(
        indices.filter_map(|index| list.item(index)).collect(),
    ))
}

fn distinct<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [list] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let count = length(list)?;
    check_product(count, count)?;
    let mut unique: Vec<Value<'a>> = Vec::new();
    for item in list.items() {
        if !unique.iter().any(|known| item.equals(known)) {
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}
