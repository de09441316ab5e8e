//! The language's library for lists as sets.

use crate::function::{EvalError, Overload};
use crate::libraries::bounds::check_product;
use crate::libraries::declare::{global, list, parameter};
use crate::types::Type;
use crate::value::Value;

pub fn overloads() -> Vec<Overload> {
    let two = || [list(parameter("T")), list(parameter("T"))];
    vec![
        global(
            "sets.contains",
            "list_sets_contains_list",
            two(),
            Type::Bool,
        )
        .calls(|arguments| Ok(contains(pair(arguments)?).into())),
        global(
            "sets.equivalent",
            "list_sets_equivalent_list",
            two(),
            Type::Bool,
        )
        .calls(|arguments| {
            let (left, right) = pair(arguments)?;
            Ok((contains((left, right)) && contains((right, left))).into())
        }),
        global(
            "sets.intersects",
            "list_sets_intersects_list",
            two(),
            Type::Bool,
        )
        .calls(|arguments| {
            let (left, right) = pair(arguments)?;
            Ok(left.items().any(|item| has(right, &item)).into())
        }),
    ]
}

/// Both lists, unless comparing them would cost more than any limit.
fn pair<'b, 'a>(arguments: &'b [Value<'a>]) -> Result<(&'b Value<'a>, &'b Value<'a>), EvalError> {
    let [left, right] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let (Some(first), Some(second)) = (left.list_len(), right.list_len()) else {
        return Err(EvalError::NoSuchOverload);
    };
    check_product(first, second)?;
    Ok((left, right))
}

fn contains((list, part): (&Value<'_>, &Value<'_>)) -> bool {
    part.items().all(|item| has(list, &item))
}

fn has(list: &Value<'_>, item: &Value<'_>) -> bool {
    list.items().any(|known| item.equals(&known))
}
