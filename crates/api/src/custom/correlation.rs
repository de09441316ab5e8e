//! What an object's parts were before an update. A part that is as it was is not judged again
//! (ratcheting): fields are matched by name, the items of a list of type map by their keys, and the
//! items of other lists not at all.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::node::{ListType, Name, Node};
use crate::document::Value;

/// A value and what stood in its place before.
#[derive(Debug)]
pub struct Correlated<'a> {
    node: &'a Node,
    new: &'a Value,
    old: &'a Value,
    unchanged: OnceCell<bool>,
    old_items: OnceCell<KeyedItems<'a>>,
}

impl<'a> Correlated<'a> {
    pub fn new(node: &'a Node, new: &'a Value, old: &'a Value) -> Correlated<'a> {
        Correlated {
            node,
            new,
            old,
            unchanged: OnceCell::new(),
            old_items: OnceCell::new(),
        }
    }

    /// A field that both have and that the schema declares.
    pub fn field(&self, name: &str) -> Option<Correlated<'a>> {
        let (new, old) = (self.new.get(name)?, self.old.get(name)?);
        Some(Correlated::new(self.node.field(name)?, new, old))
    }

    /// The item at `index`, with the old item of the same keys.
    pub fn item(&self, index: usize) -> Option<Correlated<'a>> {
        if self.node.list_type() != ListType::Map {
            return None;
        }
        let new = self.new.as_array()?.get(index)?;
        let old_items = self.old.as_array()?;
        let old = self
            .old_items
            .get_or_init(|| KeyedItems::of(self.node, old_items))
            .find(new)?;
        Some(Correlated::new(self.node.items()?, new, old))
    }

    /// Whether nothing changed here and below. Fields that the schema does not declare count as
    /// changed.
    pub fn is_unchanged(&self) -> bool {
        *self
            .unchanged
            .get_or_init(|| is_same(self.node, self.new, self.old))
    }
}

fn is_same(node: &Node, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Array(items), Value::Array(old_items)) => {
            if items.len() != old_items.len() {
                return false;
            }
            let Some(item) = node.items() else {
                return items == old_items;
            };
            if node.list_type() != ListType::Map {
                return items == old_items;
            }
            let old_items = KeyedItems::of(node, old_items);
            items.iter().all(|new| {
                let old = old_items.find(new);
                old.is_some_and(|old| is_same(item, new, old))
            })
        }
        (Value::Object(fields), Value::Object(old_fields)) => {
            fields.len() == old_fields.len()
                && fields.iter().all(
                    |(name, new)| match (node.field(name), old_fields.get(name)) {
                        (Some(node), Some(old)) => is_same(node, new, old),
                        _ => false,
                    },
                )
        }
        _ => new == old,
    }
}

/// The items of a list of type map, by the values of their keys.
#[derive(Debug)]
pub struct KeyedItems<'a> {
    keys: Vec<Name>,
    items: HashMap<Vec<Key<'a>>, &'a Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key<'a> {
    Bool(bool),
    Integer(i64),
    Float(u64),
    Text(&'a str),
}

impl<'a> KeyedItems<'a> {
    /// Empty for a list of another type.
    pub fn of(node: &Node, list: &'a [Value]) -> KeyedItems<'a> {
        let keys = match node.list_type() {
            ListType::Map => node.list_map_keys().to_vec(),
            _ => Vec::new(),
        };
        let mut items = HashMap::new();
        if !keys.is_empty() {
            for item in list {
                if let Some(key) = key(&keys, item) {
                    items.entry(key).or_insert(item);
                }
            }
        }
        KeyedItems { keys, items }
    }

    /// The first item with the keys of `item`.
    pub fn find(&self, item: &Value) -> Option<&'a Value> {
        let key = key(&self.keys, item)?;
        self.items.get(&key).copied()
    }
}

/// `None` unless all keys are there and scalar.
fn key<'a>(keys: &[Name], item: &'a Value) -> Option<Vec<Key<'a>>> {
    let item = item.as_object()?;
    if keys.is_empty() {
        return None;
    }
    keys.iter()
        .map(|key| {
            Some(match item.get(key)? {
                Value::Bool(flag) => Key::Bool(*flag),
                Value::Integer(number) => Key::Integer(*number),
                Value::Float(number) => Key::Float(number.to_bits()),
                Value::String(text) => Key::Text(text),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            })
        })
        .collect()
}
