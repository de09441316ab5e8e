//! Lists of type set and map: what may be there once is there once.

use std::collections::BTreeMap;

use super::node::{ListType, Node};
use crate::document::{Object, Value};
use crate::field::{FieldError, Path};

pub(super) fn validate(value: &Value, node: &Node, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(value, node, path, &mut errors);
    errors
}

fn visit(value: &Value, node: &Node, path: &Path, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter() {
                if let Some(below) = node.property(name) {
                    visit(value, below, &path.child(name), errors);
                } else if let Some(below) = node.additional_schema() {
                    visit(value, below, &path.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            match node.list_type() {
                ListType::Set => {
                    for index in second_occurrences(items.iter().map(Key::of)) {
                        let value = items[index].clone();
                        errors.push(FieldError::duplicate(&path.index(index), value));
                    }
                }
                ListType::Map => keyed(items, node, path, errors),
                ListType::Undeclared | ListType::Atomic => {}
            }
            if let Some(below) = node.items() {
                for (index, item) in items.iter().enumerate() {
                    visit(item, below, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn keyed(items: &[Value], node: &Node, path: &Path, errors: &mut Vec<FieldError>) {
    let wrong = |item: &Value| !matches!(item, Value::Null | Value::Object(_));
    if let Some(index) = items.iter().position(wrong) {
        let detail = "must be an object for an array of list-type map";
        let value = items[index].clone();
        errors.push(FieldError::invalid(&path.index(index), value, detail));
        return;
    }
    let keys: Vec<Value> = items
        .iter()
        .map(|item| {
            let names = node.list_map_keys().iter();
            let fields = names.filter_map(|name| Some((name.to_string(), item.get(name)?.clone())));
            Value::Object(fields.collect::<Object>())
        })
        .collect();
    for index in second_occurrences(keys.iter().map(Key::of)) {
        errors.push(FieldError::duplicate(
            &path.index(index),
            keys[index].clone(),
        ));
    }
}

/// A value that can be compared: whole numbers and floats are different values.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key(Vec<u8>);

impl Key {
    fn of(value: &Value) -> Key {
        Key(value.to_json())
    }
}

/// The indices of the values that are there for the second time; a third one is not reported.
fn second_occurrences(keys: impl Iterator<Item = Key>) -> Vec<usize> {
    let mut seen: BTreeMap<Key, usize> = BTreeMap::new();
    let mut again = Vec::new();
    for (index, key) in keys.enumerate() {
        let times = seen.entry(key).or_default();
        *times += 1;
        if *times == 2 {
            again.push(index);
        }
    }
    again
}
