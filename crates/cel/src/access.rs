//! How values are looked at: their types, sizes, items, entries, and whether two are equal.

use crate::numbers;
use crate::types::Type;
use crate::value::{HostKind, HostValue, ListType, Value};
use crate::work;
use std::cmp::Ordering;
use std::sync::Arc;

impl<'a> HostValue<'a> {
    pub fn kind(&self) -> HostKind {
        self.shape.kind(self.data)
    }

    pub fn len(&self) -> usize {
        self.shape.len(self.data)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn at(&self, index: usize) -> Option<Value<'a>> {
        self.shape.at(self.data, index)
    }

    pub fn key_at(&self, index: usize) -> Option<&'a str> {
        self.shape.key_at(self.data, index)
    }

    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.shape.get(self.data, key)
    }

    pub fn list_type(&self) -> ListType<'a> {
        self.shape.list_type()
    }

    fn is_list(&self) -> bool {
        self.kind() == HostKind::List
    }
}

impl<'a> Value<'a> {
    /// The type as `type()` answers it, without the types of items.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Object(object) => Type::Object(object.type_name.clone()),
            Value::Host(host) => host.shape.type_of(host.data),
            Value::Optional(_) => Type::Opaque("optional_type".into(), Arc::from([])),
            Value::Type(_) => Type::of_types(),
            Value::Opaque(value) => value.type_of(),
        }
    }

    /// Characters of a string, bytes, items or entries. Nothing of types without a size.
    pub fn size(&self) -> Option<u64> {
        Some(match self {
            Value::String(text) => characters(text) as u64,
            Value::Bytes(octets) => octets.len() as u64,
            Value::List(items) => items.len() as u64,
            Value::Map(map) => map.len() as u64,
            Value::Host(host) => host.len() as u64,
            Value::Opaque(value) => return value.size(),
            _ => return None,
        })
    }

    pub fn list_len(&self) -> Option<usize> {
        match self {
            Value::List(items) => Some(items.len()),
            Value::Host(host) if host.is_list() => Some(host.len()),
            _ => None,
        }
    }

    /// The number of entries of a map or of fields of an object of the host.
    pub fn map_len(&self) -> Option<usize> {
        match self {
            Value::Map(map) => Some(map.len()),
            Value::Host(host) if !host.is_list() => Some(host.len()),
            _ => None,
        }
    }

    /// The item of a list at an index.
    pub fn item(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Value::List(items) => items.get(index).cloned(),
            Value::Host(host) if host.is_list() => host.at(index),
            _ => None,
        }
    }

    /// The items of a list; none of other values.
    pub fn items(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.list_len().unwrap_or(0)).filter_map(|index| self.item(index))
    }

    /// The key of a map at an index, in the order of the map.
    pub fn key_at(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Value::Map(map) => map.get_index(index).map(|(key, _)| key.clone()),
            Value::Host(host) if !host.is_list() => host.key_at(index).map(Value::from),
            _ => None,
        }
    }

    /// The value of a map at an index.
    pub fn value_at(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Value::Map(map) => map.get_index(index).map(|(_, value)| value.clone()),
            Value::Host(host) if !host.is_list() => host.at(index),
            _ => None,
        }
    }

    /// The entries of a map; none of other values.
    pub fn entries(&self) -> impl Iterator<Item = (Value<'a>, Value<'a>)> + '_ {
        (0..self.map_len().unwrap_or(0))
            .filter_map(|index| self.key_at(index).zip(self.value_at(index)))
    }

    /// The value of a key of a map, or of a field of an object.
    pub fn find(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match (self, key) {
            (Value::Map(map), _) => map.get(key).cloned(),
            (Value::Host(host), Value::String(key)) if !host.is_list() => host.get(key),
            (Value::Object(object), Value::String(key)) => object.get(key).cloned(),
            _ => None,
        }
    }

    pub fn has_key(&self, key: &Value<'_>) -> bool {
        match self {
            Value::Map(map) => map.get(key).is_some(),
            Value::Host(host) if !host.is_list() => match key {
                Value::String(key) => host.shape.contains(host.data, key),
                _ => false,
            },
            _ => self.find(key).is_some(),
        }
    }

    /// Whether two values are equal. Numbers of different types are compared by value; what cannot be
    /// compared is not equal. The depth of values is bounded by the expression and by the decoder of
    /// the host's objects.
    pub fn equals(&self, other: &Value<'_>) -> bool {
        self.try_equals(other) == Some(true)
    }

    /// As [`Value::equals`], but nothing where a library or the host refuses to compare, which is the
    /// error "no such overload".
    pub fn try_equals(&self, other: &Value<'_>) -> Option<bool> {
        Some(match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Null, _) | (_, Value::Null) => false,
            (Value::Bool(left), Value::Bool(right)) => left == right,
            (Value::Int(left), Value::Int(right)) => left == right,
            (Value::String(left), Value::String(right)) => {
                left.len() == right.len() && is_affordable(left.len()) && **left == **right
            }
            (Value::Uint(left), Value::Uint(right)) => left == right,
            (Value::Int(left), Value::Uint(right)) | (Value::Uint(right), Value::Int(left)) => {
                numbers::compare_int_uint(*left, *right) == Ordering::Equal
            }
            (Value::Double(left), Value::Double(right)) => left == right,
            (Value::Double(left), Value::Int(right)) | (Value::Int(right), Value::Double(left)) => {
                !left.is_nan() && numbers::compare_double_int(*left, *right) == Ordering::Equal
            }
            (Value::Double(left), Value::Uint(right))
            | (Value::Uint(right), Value::Double(left)) => {
                !left.is_nan() && numbers::compare_double_uint(*left, *right) == Ordering::Equal
            }
            (Value::Bytes(left), Value::Bytes(right)) => {
                left.len() == right.len() && is_affordable(left.len()) && **left == **right
            }
            (Value::Duration(left), Value::Duration(right)) => left == right,
            (Value::Timestamp(left), Value::Timestamp(right)) => {
                (left.seconds, left.nanoseconds) == (right.seconds, right.nanoseconds)
            }
            (Value::Type(left), Value::Type(right)) => left.name() == right.name(),
            (Value::Optional(left), Value::Optional(right)) => match (left, right) {
                (Some(left), Some(right)) => return left.try_equals(right),
                (left, right) => left.is_none() == right.is_none(),
            },
            (Value::Opaque(left), _) => return left.equals(other),
            (Value::Object(left), Value::Object(right)) => {
                left.type_name == right.type_name
                    && left.fields().len() == right.fields().len()
                    && left.fields().iter().all(|(name, value)| {
                        right.get(name).is_some_and(|other| value.equals(other))
                    })
            }
            (Value::Host(host), _) if host.is_list() => {
                if let Some(answer) = crate::host_lists::equals(*host, other) {
                    return Some(answer);
                }
                equal_lists(self, other)
            }
            (Value::List(_), _) => equal_lists(self, other),
            (Value::Map(_) | Value::Host(_), Value::Map(_) | Value::Host(_)) => {
                equal_maps(self, other)
            }
            _ => false,
        })
    }
}

fn equal_lists(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left.list_len(), right.list_len()) {
        (Some(first), Some(second)) if first == second => (0..first).all(|index| {
            match (left.item(index), right.item(index)) {
                // Where the items cannot be compared, cel-go goes on.
                (Some(left), Some(right)) => {
                    work::spend(1) && left.try_equals(&right) != Some(false)
                }
                _ => false,
            }
        }),
        _ => false,
    }
}

fn equal_maps(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left.map_len(), right.map_len()) {
        (Some(first), Some(second)) if first == second => left.entries().all(|(key, value)| {
            work::spend(1)
                && right
                    .find(&key)
                    .is_some_and(|other| value.try_equals(&other) != Some(false))
        }),
        _ => false,
    }
}

/// Whether the work of comparing long texts can be done.
fn is_affordable(bytes: usize) -> bool {
    bytes < 1024 || work::spend(bytes as u64 / 64)
}

fn characters(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.chars().count()
    }
}
