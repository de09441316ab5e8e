//! Which fields differ between two states of an object: added, modified, removed.
//!
//! What is owned as a whole differs as a whole; an object that appears is itself an added field,
//! in addition to its fields.

use std::collections::BTreeMap;
use std::mem::discriminant;

use super::element;
use super::field_set::FieldSet;
use super::place::{Form, Items, Place};
use crate::document::{Object, Value};

/// The differences; no field is in two of the sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

/// Compares two states; an absent one has no fields. `None` when a list has items that cannot be
/// told apart from others, for lack of a key.
pub(super) fn compare(
    place: Place<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Option<Comparison> {
    let mut walker = Walker::default();
    walker.visit(place, old, new);
    (!walker.failed).then_some(walker.found)
}

impl Comparison {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Each set as `change` makes it.
    pub fn map(self, change: impl Fn(FieldSet) -> FieldSet) -> Comparison {
        Comparison {
            added: change(self.added),
            modified: change(self.modified),
            removed: change(self.removed),
        }
    }
}

#[derive(Default)]
struct Walker<'a> {
    path: Vec<Step<'a>>,
    found: Comparison,
    failed: bool,
}

/// Written as an element only when something below differs.
enum Step<'a> {
    Field(&'a str),
    Element(String),
}

impl<'a> Walker<'a> {
    fn visit(&mut self, place: Place<'_>, old: Option<&'a Value>, new: Option<&'a Value>) {
        if let (Some(before), Some(after)) = (old, new)
            && is_of_another_form(place, before, after)
        {
            return self.replace(place, before, after);
        }
        let is_leaf = match place.form(new.or(old)) {
            Form::Scalar(_) => true,
            Form::List(items) => {
                let (before, after) = (list(old), list(new));
                let is_leaf = items.is_atomic() || (before.is_empty() && after.is_empty());
                if !is_leaf {
                    self.items(items, before, after);
                }
                is_leaf
            }
            Form::Map { atomic, place } => {
                let (before, after) = (object(old), object(new));
                let empty = |fields: Option<&Object>| {
                    fields.is_none_or(|fields| fields.is_empty() && place.nulls().next().is_none())
                };
                let is_leaf = atomic || (empty(before) && empty(after));
                if !is_leaf {
                    self.fields(place, before, after);
                }
                is_leaf
            }
        };
        match (old, new) {
            (None, _) => self.note(|found| &mut found.added),
            (_, None) => self.note(|found| &mut found.removed),
            (Some(old), Some(new)) if is_leaf && !same(old, new) => {
                self.note(|found| &mut found.modified);
            }
            _ => {}
        }
    }

    /// What is of another form now goes with all that it had, and comes with all that it has.
    fn replace(&mut self, place: Place<'_>, old: &'a Value, new: &'a Value) {
        for (value, is_new) in [(old, false), (new, true)] {
            match place.form(Some(value)) {
                Form::Map {
                    atomic: false,
                    place,
                } => match is_new {
                    false => self.fields(place, value.as_object(), None),
                    true => self.fields(place, None, value.as_object()),
                },
                Form::List(items) if !items.is_atomic() => match is_new {
                    false => self.items(items, list(Some(value)), &[]),
                    true => self.items(items, &[], list(Some(value))),
                },
                _ => {}
            }
        }
        self.note(|found| &mut found.modified);
    }

    fn fields(&mut self, place: Place<'_>, old: Option<&'a Object>, new: Option<&'a Object>) {
        let mut before = old.into_iter().flat_map(Object::iter).peekable();
        let mut after = new.into_iter().flat_map(Object::iter).peekable();
        loop {
            let name = match (before.peek(), after.peek()) {
                (None, None) => break,
                (Some((name, _)), None) | (None, Some((name, _))) => *name,
                (Some((left, _)), Some((right, _))) => (*left).min(*right),
            };
            let left = before.next_if(|(left, _)| *left == name);
            let right = after.next_if(|(right, _)| *right == name);
            let Some(child) = place.child(name) else {
                continue;
            };
            // What is missing in a struct may be there for Go all the same.
            let implied = |side: Option<&Object>| side.and_then(|_| place.implied(name));
            let shown = |(_, value): &(&str, &Value)| !place.leaves_out(name, value);
            let left = left.filter(shown).map(|(_, value)| value);
            let right = right.filter(shown).map(|(_, value)| value);
            let left = left.or_else(|| implied(old));
            let right = right.or_else(|| implied(new));
            if left.is_none() && right.is_none() {
                continue;
            }
            self.path.push(Step::Field(name));
            self.visit(child, left, right);
            self.path.pop();
        }
        // A struct that appears or goes brings or takes its nulls.
        let (only, is_new) = match (old, new) {
            (Some(only), None) => (only, false),
            (None, Some(only)) => (only, true),
            _ => return,
        };
        for name in place.nulls().filter(|name| !only.contains(name)) {
            self.path.push(Step::Field(name));
            match is_new {
                true => self.note(|found| &mut found.added),
                false => self.note(|found| &mut found.removed),
            }
            self.path.pop();
        }
    }

    fn items(&mut self, items: Items<'_>, old: &'a [Value], new: &'a [Value]) {
        let mut pairs: BTreeMap<String, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for (values, is_new) in [(old, false), (new, true)] {
            for value in values {
                let Ok(element) = items.element(value) else {
                    self.failed = true;
                    continue;
                };
                let pair = pairs.entry(element).or_default();
                match is_new {
                    false => pair.0.push(value),
                    true => pair.1.push(value),
                }
            }
        }
        let place = items.item();
        for (element, (before, after)) in pairs {
            self.path.push(Step::Element(element));
            match (before.as_slice(), after.as_slice()) {
                (before @ ([] | [_]), after @ ([] | [_])) => {
                    self.visit(place, before.first().copied(), after.first().copied());
                }
                // Items that are there several times are owned together, as one thing.
                (before @ [_, _, ..], after @ [_, _, ..]) => {
                    if before != after {
                        self.note(|found| &mut found.modified);
                    }
                }
                ([_, _, ..], after) => {
                    if let Some(value) = after.first() {
                        self.visit(place, None, Some(value));
                    }
                    self.note(|found| &mut found.removed);
                }
                (before, _) => {
                    if let Some(value) = before.first() {
                        self.visit(place, Some(value), None);
                    }
                    self.note(|found| &mut found.added);
                }
            }
            self.path.pop();
        }
    }

    fn note(&mut self, set: impl Fn(&mut Comparison) -> &mut FieldSet) {
        for step in &mut self.path {
            if let Step::Field(name) = step {
                *step = Step::Element(element::field(name));
            }
        }
        set(&mut self.found).insert(&self.path);
    }
}

/// Whether nothing declares the form of a place, so that it is the value's own, and that changed.
fn is_of_another_form(place: Place<'_>, old: &Value, new: &Value) -> bool {
    let differs = |is: fn(&Value) -> bool| is(old) != is(new);
    let is_object = |value: &Value| value.as_object().is_some();
    let is_list = |value: &Value| value.as_array().is_some();
    (differs(is_object) || differs(is_list))
        && !old.is_null()
        && !new.is_null()
        && discriminant(&place.form(Some(old))) != discriminant(&place.form(Some(new)))
}

impl AsRef<str> for Step<'_> {
    fn as_ref(&self) -> &str {
        match self {
            Step::Field(name) => name,
            Step::Element(element) => element,
        }
    }
}

/// Numbers are the same when their value is.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Integer(whole), Value::Float(number))
        | (Value::Float(number), Value::Integer(whole)) => *whole as f64 == *number,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(a, b)| same(a, b))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right.iter())
                    .all(|((name, a), (other, b))| name == other && same(a, b))
        }
        _ => left == right,
    }
}

pub(super) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn object(value: Option<&Value>) -> Option<&Object> {
    value.and_then(Value::as_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_becomes_a_text_loses_its_fields() {
        let map = crate::document!({"free": {"a": 1, "b": 2}});
        let text = crate::document!({"free": "text"});
        let found = compare(Place::Deduced, Some(&map), Some(&text)).unwrap();
        let paths = |names: &[&[&str]]| {
            let mut set = FieldSet::default();
            for path in names {
                let path: Vec<String> = path.iter().map(|name| element::field(name)).collect();
                set.insert(&path);
            }
            set
        };
        assert_eq!(found.removed, paths(&[&["free", "a"], &["free", "b"]]));
        assert_eq!(found.modified, paths(&[&["free"]]));
        let back = compare(Place::Deduced, Some(&text), Some(&map)).unwrap();
        assert_eq!(back.added, paths(&[&["free", "a"], &["free", "b"]]));
        assert_eq!(back.modified, paths(&[&["free"]]));
    }
}
