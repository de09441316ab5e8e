//! Taking fields out of an object, and the set of all fields that an object has.

use std::collections::BTreeMap;

use super::compare::{list, object};
use super::element;
use super::field_set::FieldSet;
use super::place::{Form, Items, Place};
use crate::document::{Object, Value};

/// `value` without the members of `fields`. What is left of a map or list that loses everything
/// is null.
pub(super) fn remove(place: Place<'_>, value: &Value, fields: &FieldSet) -> Value {
    match place.form(Some(value)) {
        Form::Scalar(_) => value.clone(),
        Form::List(items) => {
            let values = list(Some(value));
            if values.is_empty() || items.is_atomic() {
                return Value::Null;
            }
            let kept: Vec<Value> = values
                .iter()
                .filter_map(|item| remove_item(items, item, fields))
                .collect();
            match kept.is_empty() {
                true => Value::Null,
                false => Value::Array(kept),
            }
        }
        Form::Map { atomic, place } => {
            let Some(entries) = object(Some(value)) else {
                return Value::Null;
            };
            if entries.is_empty() || atomic {
                return Value::Null;
            }
            let kept: Object = entries
                .iter()
                .filter_map(|(name, child)| {
                    let step = element::field(name);
                    if fields.has(&step) {
                        return None;
                    }
                    let child = match fields.below(&step) {
                        Some(below) => {
                            remove(place.child(name).unwrap_or(Place::Opaque), child, below)
                        }
                        None => child.clone(),
                    };
                    Some((name.to_string(), child))
                })
                .collect();
            match kept.is_empty() {
                true => Value::Null,
                false => Value::Object(kept),
            }
        }
    }
}

fn remove_item(items: Items<'_>, item: &Value, fields: &FieldSet) -> Option<Value> {
    let Ok(step) = items.element(item) else {
        return Some(item.clone());
    };
    if fields.has(&step) {
        return None;
    }
    Some(match fields.below(&step) {
        Some(below) => remove(items.item(), item, below),
        None => item.clone(),
    })
}

/// Every leaf and every item that a value has.
pub(super) fn all_fields(place: Place<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(place, value, &mut Vec::new(), &mut set);
    set
}

fn collect(place: Place<'_>, value: &Value, path: &mut Vec<String>, set: &mut FieldSet) {
    match place.form(Some(value)) {
        Form::Scalar(_) => set.insert(path),
        Form::List(items) if items.is_atomic() => set.insert(path),
        Form::Map { atomic: true, .. } => set.insert(path),
        Form::List(items) => {
            let values = list(Some(value));
            // In order, so that the set grows at its end.
            let mut found: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
            for value in values {
                let step = items.element(value).unwrap_or_default();
                found.entry(step).or_default().push(value);
            }
            for (step, values) in found {
                path.push(step);
                // What is there several times is one thing.
                if let [only] = values.as_slice() {
                    collect(items.item(), only, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        Form::Map { place, .. } => {
            for (name, child) in value.fields_at(&[]) {
                path.push(element::field(name));
                if let Some(place_below) = place.child(name) {
                    collect(place_below, child, path, set);
                }
                let is_empty = match child {
                    Value::Null => true,
                    Value::Object(fields) => fields.is_empty(),
                    _ => false,
                };
                if is_empty || !place.declares(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
}

/// The set with the fields of objects added that have members below them. Keys of maps are not.
pub(super) fn with_named_fields(place: Place<'_>, fields: &FieldSet) -> FieldSet {
    let mut set = fields.clone();
    name_fields(place, fields, &mut Vec::new(), &mut set);
    set
}

fn name_fields<'a>(
    place: Place<'_>,
    fields: &'a FieldSet,
    path: &mut Vec<&'a str>,
    set: &mut FieldSet,
) {
    for (step, _, below) in fields.iter().filter(|(_, _, below)| !below.is_empty()) {
        let form = place.form(None);
        path.push(step);
        let child = match (element::field_name(step), form) {
            (Some(name), Form::Map { place, .. }) => {
                if place.declares(name) {
                    set.insert(path);
                }
                place.child(name)
            }
            (None, Form::List(items)) => Some(items.item()),
            _ => None,
        };
        name_fields(child.unwrap_or(Place::Deduced), below, path, set);
        path.pop();
    }
}

/// Fields that once were owned one by one and are now owned as a whole become the whole.
pub(super) fn reconcile(place: Place<'_>, fields: FieldSet) -> FieldSet {
    let mut wholes = FieldSet::default();
    find_wholes(place, &fields, &mut Vec::new(), &mut wholes);
    match wholes.is_empty() {
        true => fields,
        false => fields.recursive_difference(&wholes).union(wholes),
    }
}

fn find_wholes<'a>(
    place: Place<'_>,
    fields: &'a FieldSet,
    path: &mut Vec<&'a str>,
    wholes: &mut FieldSet,
) {
    for (step, _, below) in fields.iter().filter(|(_, _, below)| !below.is_empty()) {
        let child = match (element::field_name(step), place.form(None)) {
            (Some(name), Form::Map { place, .. }) => place.child(name),
            (None, Form::List(items)) => Some(items.item()),
            _ => None,
        };
        let Some(child @ (Place::Declared(_) | Place::Custom(_))) = child else {
            continue;
        };
        path.push(step);
        match child.form(None) {
            Form::List(items) if items.is_atomic() => wholes.insert(path),
            Form::Map { atomic: true, .. } => wholes.insert(path),
            _ => find_wholes(child, below, path, wholes),
        }
        path.pop();
    }
}
