//! Lists of the host that are sets or maps (`x-kubernetes-list-type`): their order takes no part in
//! comparisons, and `+` merges.

use crate::error::EvalError;
use crate::value::{HostValue, ListType, Value};

/// Whether a list equals another value, where it is a set or a map.
pub fn equals(list: HostValue<'_>, other: &Value<'_>) -> Option<bool> {
    let list_type = list.list_type();
    if list_type == ListType::Atomic {
        return None;
    }
    if other.list_len() != Some(list.len()) {
        return Some(false);
    }
    Some(other.items().all(|item| {
        position(list_type, list, &item).is_some_and(|known| match list_type {
            ListType::Map(_) => known.equals(&item),
            _ => true,
        })
    }))
}

/// The sum of a list and another, where it is a set or a map: items with the same key are replaced in
/// place, and new ones follow.
pub fn add<'a>(list: HostValue<'a>, other: &Value<'a>) -> Option<Result<Value<'a>, EvalError>> {
    let list_type = list.list_type();
    if list_type == ListType::Atomic {
        return None;
    }
    let mut items: Vec<Value<'a>> = (0..list.len()).filter_map(|index| list.at(index)).collect();
    for item in other.items() {
        match items
            .iter_mut()
            .find(|known| is_same(list_type, known, &item))
        {
            Some(known) => {
                if let ListType::Map(_) = list_type {
                    *known = item;
                }
            }
            None => items.push(item),
        }
    }
    Some(Ok(Value::list(items)))
}

fn position<'a>(
    list_type: ListType<'_>,
    list: HostValue<'a>,
    item: &Value<'_>,
) -> Option<Value<'a>> {
    (0..list.len())
        .filter_map(|index| list.at(index))
        .find(|known| is_same(list_type, known, item))
}

/// Whether two items are the same member: equal in a set, with equal keys in a map.
fn is_same(list_type: ListType<'_>, left: &Value<'_>, right: &Value<'_>) -> bool {
    match list_type {
        ListType::Map(keys) => keys.iter().all(|key| {
            let key = Value::from(&**key);
            match (left.find(&key), right.find(&key)) {
                (Some(left), Some(right)) => left.equals(&right),
                (left, right) => left.is_none() && right.is_none(),
            }
        }),
        _ => left.equals(right),
    }
}
