//! Puts an applied configuration into an object. Nothing is removed here; where both say
//! something, the configuration wins.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;

use super::compare::{list, object};
use super::place::{Form, Items, Place};
use crate::document::{Object, Value};

/// `live` with what `applied` says.
pub(super) fn merge(
    place: Place<'_>,
    live: Option<&Value>,
    applied: Option<&Value>,
) -> Option<Value> {
    let (Some(old), Some(new)) = (live, applied) else {
        return applied.or(live).cloned();
    };
    match place.form(applied) {
        Form::Scalar(_) => Some(new.clone()),
        Form::List(items) => {
            let (before, after) = (list(live), list(applied));
            match items.is_atomic() || (before.is_empty() && after.is_empty()) {
                true => Some(new.clone()),
                false => Some(Value::Array(merge_items(items, before, after))),
            }
        }
        Form::Map { atomic, place } => {
            let (before, after) = (object(live), object(applied));
            let empty = |fields: Option<&Object>| fields.is_none_or(Object::is_empty);
            match (before, after) {
                _ if atomic || (empty(before) && empty(after)) => Some(new.clone()),
                (Some(before), Some(after)) => Some(merge_fields(place, before, after)),
                // Null says nothing about a map that has keys.
                (Some(_), None) => Some(old.clone()),
                _ => Some(new.clone()),
            }
        }
    }
}

fn merge_fields(place: Place<'_>, live: &Object, applied: &Object) -> Value {
    let merged = live.clone().changed(applied.iter(), |name, before, value| {
        let child = place.child(name).unwrap_or(Place::Opaque);
        Ok::<_, Infallible>(merge(child, before.as_ref(), Some(value)))
    });
    let Ok(merged) = merged;
    Value::Object(merged)
}

/// The items of both. Those that only `live` has keep their place among the others; those of both
/// come in the order of `applied`, each after what stands before it in either list.
fn merge_items(items: Items<'_>, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let place = items.item();
    let elements = |values: &[Value]| -> Vec<(String, usize)> {
        values
            .iter()
            .enumerate()
            .filter_map(|(index, value)| Some((items.element(value).ok()?, index)))
            .collect()
    };
    let (left, right) = (elements(live), elements(applied));
    // An item that `live` has several times is not merged with anything.
    let mut in_live: BTreeMap<&str, Option<&Value>> = BTreeMap::new();
    for (element, index) in &left {
        in_live
            .entry(element)
            .and_modify(|value| *value = None)
            .or_insert(Some(&live[*index]));
    }
    let in_applied: BTreeSet<&str> = right.iter().map(|(element, _)| element.as_str()).collect();
    let mut shared: VecDeque<&str> = right
        .iter()
        .map(|(element, _)| element.as_str())
        .filter(|element| in_live.contains_key(element))
        .collect();
    let mut next_shared = shared.pop_front();
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut merged = Vec::with_capacity(left.len().max(right.len()));
    let (mut from_left, mut from_right) = (0, 0);
    while from_left < left.len() || from_right < right.len() {
        if let (Some((element, _)), Some((wanted, at))) =
            (left.get(from_left), right.get(from_right))
        {
            let element = element.as_str();
            if element == wanted {
                taken.insert(element);
                let old = in_live.get(element).copied().flatten();
                merged.extend(merge(place, old, Some(&applied[*at])));
                (from_left, from_right) = (from_left + 1, from_right + 1);
                next_shared = shared.pop_front();
                continue;
            }
            if in_applied.contains(element) && next_shared.is_some_and(|next| next != element) {
                // In both, but its turn comes later.
                from_left += 1;
                continue;
            }
        }
        if let Some((element, index)) = left.get(from_left) {
            if !in_applied.contains(element.as_str()) {
                merged.push(live[*index].clone());
                from_left += 1;
                continue;
            }
            if taken.contains(element.as_str()) {
                from_left += 1;
            }
        }
        if let Some((element, index)) = right.get(from_right) {
            let element = element.as_str();
            taken.insert(element);
            let old = in_live.get(element).copied().flatten();
            merged.extend(merge(place, old, Some(&applied[*index])));
            from_right += 1;
            if next_shared == Some(element) {
                next_shared = shared.pop_front();
            }
        }
    }
    merged
}
