//! Lists of the host that are sets or maps (`x-kubernetes-list-type`): their order takes no part in
//! comparisons, and `+` merges. Both find members through a table of their keys, because they cost
//! no more than those of other lists.

use std::collections::HashMap;
use std::fmt::Write;

use crate::error::EvalError;
use crate::numbers::{lossless_int, lossless_uint};
use crate::value::{HostValue, ListType, Value};
use crate::work;

/// Whether a list equals another value, where it is a set or a map.
pub fn equals(list: HostValue<'_>, other: &Value<'_>) -> Option<bool> {
    let list_type = list.list_type();
    if list_type == ListType::Atomic {
        return None;
    }
    if other.list_len() != Some(list.len()) {
        return Some(false);
    }
    let known = Members::new(list_type, items_of(list));
    Some(other.items().all(|item| {
        known
            .position(&item)
            .is_some_and(|position| match list_type {
                ListType::Map(_) => known.items[position].equals(&item),
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
    let mut members = Members::new(list_type, items_of(list));
    for item in other.items() {
        match members.position(&item) {
            Some(position) => {
                if let ListType::Map(_) = list_type {
                    members.items[position] = item;
                }
            }
            None => members.push(item),
        }
    }
    Some(Ok(Value::list(members.items)))
}

fn items_of<'a>(list: HostValue<'a>) -> impl Iterator<Item = Value<'a>> {
    (0..list.len()).filter_map(move |index| list.at(index))
}

/// The members of a set or map with the places of their keys.
struct Members<'k, 'a> {
    list_type: ListType<'k>,
    items: Vec<Value<'a>>,
    /// The first place of each key that is made of scalars.
    places: HashMap<String, usize>,
    /// The places of the others, which are compared one by one.
    others: Vec<usize>,
}

impl<'k, 'a> Members<'k, 'a> {
    fn new(list_type: ListType<'k>, items: impl Iterator<Item = Value<'a>>) -> Self {
        let mut members = Members {
            list_type,
            items: Vec::new(),
            places: HashMap::new(),
            others: Vec::new(),
        };
        for item in items {
            members.push(item);
        }
        members
    }

    fn push(&mut self, item: Value<'a>) {
        let position = self.items.len();
        match key_of(self.list_type, &item) {
            Some(key) => {
                self.places.entry(key).or_insert(position);
            }
            None => self.others.push(position),
        }
        self.items.push(item);
    }

    /// Where the member is that is the same as an item: equal in a set, with equal keys in a map.
    fn position(&self, item: &Value<'_>) -> Option<usize> {
        match key_of(self.list_type, item) {
            Some(key) => self.places.get(&key).copied(),
            None => self.others.iter().copied().find(|position| {
                work::spend(1) && is_same(self.list_type, &self.items[*position], item)
            }),
        }
    }
}

/// A text that two members share exactly where they are the same. Nothing where the key is not made of
/// scalars.
fn key_of(list_type: ListType<'_>, item: &Value<'_>) -> Option<String> {
    let mut key = String::new();
    match list_type {
        ListType::Map(names) => {
            for name in names {
                match item.find(&Value::from(&**name)) {
                    Some(value) => push_scalar(&mut key, &value)?,
                    None => key.push_str("-;"),
                }
            }
        }
        _ => push_scalar(&mut key, item)?,
    }
    Some(key)
}

/// Numbers of different types are the same where they have the same value.
fn push_scalar(key: &mut String, value: &Value<'_>) -> Option<()> {
    let written = match value {
        Value::Null => write!(key, "n;"),
        Value::Bool(value) => write!(key, "{value};"),
        Value::Int(number) => write!(key, "{number};"),
        Value::Uint(number) => write!(key, "{number};"),
        Value::Double(number) => match (lossless_int(*number), lossless_uint(*number)) {
            (Some(whole), _) => write!(key, "{whole};"),
            (None, Some(whole)) => write!(key, "{whole};"),
            // What equals nothing, not even itself.
            (None, None) if number.is_nan() => return None,
            (None, None) => write!(key, "d{};", number.to_bits()),
        },
        Value::String(text) => write!(key, "s{}:{}", text.len(), &**text),
        _ => return None,
    };
    written.ok()
}

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
