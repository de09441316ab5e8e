//! What an expression reads and results in. Values of the host are read in place: looking at a field
//! of an object and comparing it copies and allocates nothing. Cloning a value never copies text.

use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;

use crate::ast::Name;
use crate::error::EvalError;
use crate::extent::Extent;
use crate::numbers::{lossless_int, lossless_uint};
use crate::timestamp::Timestamp;
use crate::types::Type;

#[derive(Clone, Debug, Default)]
pub enum Value<'a> {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Octets<'a>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    List(Arc<List<'a>>),
    Map(Arc<Map<'a>>),
    /// An object that a struct literal made.
    Object(Arc<Object<'a>>),
    /// A list, map or object of the host.
    Host(HostValue<'a>),
    Optional(Option<Arc<Value<'a>>>),
    Type(Type),
    /// A value of a library, such as an IP address or a quantity.
    Opaque(Arc<dyn Opaque>),
}

pub type Text<'a> = Shared<'a, str>;
pub type Octets<'a> = Shared<'a, [u8]>;

/// Borrowed from the host, or computed and shared.
#[derive(Debug)]
pub enum Shared<'a, T: ?Sized> {
    Borrowed(&'a T),
    Owned(Arc<T>),
}

/// A list that an expression made.
#[derive(Clone, Debug, Default)]
pub struct List<'a> {
    items: Vec<Value<'a>>,
    extent: Extent,
}

#[derive(Clone, Debug)]
pub struct Object<'a> {
    pub type_name: Name,
    /// The fields that were set, in the order in which they were written.
    fields: Vec<(Name, Value<'a>)>,
    extent: Extent,
}

/// A list, map or object of the host: data, and the shape that says how to read it.
#[derive(Clone, Copy)]
pub struct HostValue<'a> {
    pub data: &'a (dyn Any + Send + Sync),
    pub shape: &'a dyn Shape,
}

/// How the host's data of one type is read. A shape knows the declared types below it: it makes a
/// timestamp of a string where the schema says so.
pub trait Shape: Send + Sync {
    fn kind(&self, data: &(dyn Any + Send + Sync)) -> HostKind;

    /// The type that `type()` answers.
    fn type_of(&self, data: &(dyn Any + Send + Sync)) -> Type;

    /// Items of a list, entries of a map, fields that are present in an object.
    fn len(&self, data: &(dyn Any + Send + Sync)) -> usize;

    /// The item at an index of a list, or the value of the entry at an index of a map.
    fn at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<Value<'a>>;

    /// The key of the entry at an index of a map.
    fn key_at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<&'a str>;

    /// The value of a key of a map or a field of an object, if it is present.
    fn get<'a>(&'a self, data: &'a (dyn Any + Send + Sync), key: &str) -> Option<Value<'a>>;

    /// As [`Shape::get`], for hosts whose values are computed when they are read, which can fail.
    fn try_get<'a>(
        &'a self,
        data: &'a (dyn Any + Send + Sync),
        key: &str,
    ) -> Result<Option<Value<'a>>, EvalError> {
        Ok(self.get(data, key))
    }

    /// Whether `key in map`; not the same as `get` where a map answers for every key.
    fn contains(&self, data: &(dyn Any + Send + Sync), key: &str) -> bool {
        self.get(data, key).is_some()
    }

    /// How the items of a list are compared and added (`x-kubernetes-list-type`).
    fn list_type(&self) -> ListType<'_> {
        ListType::Atomic
    }
}

/// `x-kubernetes-list-type`, with the keys of `map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType<'a> {
    Atomic,
    Set,
    Map(&'a [Name]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    List,
    Map,
    Object,
}

/// A value that a library brings. Its debug text is what the judge compares, e.g. `ip(10.0.0.1)`.
pub trait Opaque: Any + fmt::Debug + Send + Sync {
    fn type_of(&self) -> Type;

    /// Nothing where the two cannot be compared, which is the error "no such overload". Inside of
    /// lists and maps it counts as equal, as in cel-go.
    fn equals(&self, other: &Value<'_>) -> Option<bool>;

    /// Whether comparing costs one unit, whatever the size.
    fn is_compared_in_one_step(&self) -> bool {
        true
    }

    /// What costs are computed from, for the types that have a size.
    fn size(&self) -> Option<u64> {
        None
    }

    fn as_any(&self) -> &dyn Any;
}

impl fmt::Debug for HostValue<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "HostValue({:?})", self.shape.kind(self.data))
    }
}

impl<T: ?Sized> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Shared::Borrowed(value) => Shared::Borrowed(value),
            Shared::Owned(value) => Shared::Owned(Arc::clone(value)),
        }
    }
}

impl<T: ?Sized> Deref for Shared<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Shared::Borrowed(value) => value,
            Shared::Owned(value) => value,
        }
    }
}

impl<'a> List<'a> {
    pub fn new(items: Vec<Value<'a>>) -> List<'a> {
        let mut extent = Extent::default();
        for item in &items {
            extent.add(item.extent());
        }
        List { items, extent }
    }
}

impl<'a> Extend<Value<'a>> for List<'a> {
    fn extend<T: IntoIterator<Item = Value<'a>>>(&mut self, items: T) {
        let extent = &mut self.extent;
        self.items
            .extend(items.into_iter().inspect(|item| extent.add(item.extent())));
    }
}

impl<'a> Deref for List<'a> {
    type Target = [Value<'a>];

    fn deref(&self) -> &Self::Target {
        &self.items
    }
}

impl<'a> Object<'a> {
    pub fn new(type_name: Name, fields: Vec<(Name, Value<'a>)>) -> Object<'a> {
        let mut extent = Extent::default();
        for (_, value) in &fields {
            extent.add(value.extent());
        }
        Object {
            type_name,
            fields,
            extent,
        }
    }

    pub fn fields(&self) -> &[(Name, Value<'a>)] {
        &self.fields
    }

    pub fn get(&self, field: &str) -> Option<&Value<'a>> {
        self.fields
            .iter()
            .find(|(name, _)| &**name == field)
            .map(|(_, value)| value)
    }
}

impl<'a> Value<'a> {
    pub fn list(items: Vec<Value<'a>>) -> Value<'a> {
        Value::List(Arc::new(List::new(items)))
    }

    pub fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Arc::new(value)))
    }

    /// How deep and how large a value is that has parts.
    pub(crate) fn extent(&self) -> Option<Extent> {
        match self {
            Value::List(list) => Some(list.extent),
            Value::Map(map) => Some(map.extent),
            Value::Object(object) => Some(object.extent),
            Value::Optional(Some(value)) => {
                let mut extent = Extent::default();
                extent.add(value.extent());
                Some(extent)
            }
            _ => None,
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::String(Shared::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::String(Shared::Owned(text.into()))
    }
}

impl From<Name> for Value<'_> {
    fn from(text: Name) -> Self {
        Value::String(Shared::Owned(text))
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(octets: Vec<u8>) -> Self {
        Value::Bytes(Shared::Owned(octets.into()))
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

/// Up to this many entries are searched one by one.
const SEARCHED: usize = 8;

/// A map that an expression made: entries in the order of insertion, found by key through a table of
/// hashes once there are more than a few.
#[derive(Clone, Debug, Default)]
pub struct Map<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    index: Option<Index>,
    extent: Extent,
}

/// Open addressing with linear probing: each place has the number of an entry plus one, or zero.
#[derive(Clone, Debug)]
struct Index {
    places: Vec<u32>,
    hasher: RandomState,
}

impl<'a> Map<'a> {
    pub fn with_capacity(capacity: usize) -> Self {
        Map {
            entries: Vec::with_capacity(capacity),
            index: None,
            extent: Extent::default(),
        }
    }

    /// Adds an entry, or replaces the value of a key of the same type and value.
    pub fn insert(&mut self, key: Value<'a>, value: Value<'a>) {
        self.extent.add(key.extent());
        self.extent.add(value.extent());
        match self.position(&key) {
            Some(position) => self.entries[position].1 = value,
            None => {
                self.entries.push((key, value));
                self.note_last();
            }
        }
    }

    /// Removes an entry with a key of the same type and value. The index is made anew.
    pub fn remove(&mut self, key: &Value<'_>) {
        if let Some(position) = self.position(key) {
            self.entries.remove(position);
            if self.index.take().is_some() {
                self.note_last();
            }
        }
    }

    /// The value of a key. A number finds a key of another numeric type with the same value, as in
    /// cel-go, after one of its own type.
    pub fn get(&self, key: &Value<'_>) -> Option<&Value<'a>> {
        let found = self.position(key).or_else(|| match key {
            Value::Double(number) => lossless_int(*number)
                .and_then(|whole| self.position(&Value::Int(whole)))
                .or_else(|| {
                    lossless_uint(*number).and_then(|whole| self.position(&Value::Uint(whole)))
                }),
            Value::Int(number) => u64::try_from(*number)
                .ok()
                .and_then(|whole| self.position(&Value::Uint(whole))),
            Value::Uint(number) => i64::try_from(*number)
                .ok()
                .and_then(|whole| self.position(&Value::Int(whole))),
            _ => None,
        })?;
        Some(&self.entries[found].1)
    }

    /// The entry at an index, in the order of insertion.
    pub fn get_index(&self, index: usize) -> Option<&(Value<'a>, Value<'a>)> {
        self.entries.get(index)
    }

    /// Where a key of exactly this type and value is.
    fn position(&self, key: &Value<'_>) -> Option<usize> {
        let Some(index) = &self.index else {
            return self
                .entries
                .iter()
                .position(|(known, _)| is_same_key(known, key));
        };
        let mask = index.places.len() - 1;
        let mut place = index.hash(key)? as usize & mask;
        loop {
            let number = index.places[place];
            if number == 0 {
                return None;
            }
            let position = number as usize - 1;
            if is_same_key(&self.entries[position].0, key) {
                return Some(position);
            }
            place = (place + 1) & mask;
        }
    }

    /// Puts the last entry into the index, and makes or enlarges the index when it is time.
    fn note_last(&mut self) {
        let count = self.entries.len();
        if count <= SEARCHED {
            return;
        }
        match &mut self.index {
            Some(index) if count * 2 <= index.places.len() => {
                index.note(&self.entries[count - 1].0, count);
            }
            _ => {
                let mut index = Index {
                    places: vec![0; (count * 4).next_power_of_two()],
                    hasher: self
                        .index
                        .take()
                        .map_or_else(RandomState::new, |old| old.hasher),
                };
                for (position, (key, _)) in self.entries.iter().enumerate() {
                    index.note(key, position + 1);
                }
                self.index = Some(index);
            }
        }
    }
}

impl Index {
    fn note(&mut self, key: &Value<'_>, number: usize) {
        let (Some(hash), Ok(number)) = (self.hash(key), u32::try_from(number)) else {
            return;
        };
        let mask = self.places.len() - 1;
        let mut place = hash as usize & mask;
        while self.places[place] != 0 {
            place = (place + 1) & mask;
        }
        self.places[place] = number;
    }

    /// Values of other types are never found as keys.
    fn hash(&self, key: &Value<'_>) -> Option<u64> {
        Some(match key {
            Value::Bool(value) => self.hasher.hash_one((0u8, value)),
            Value::Int(value) => self.hasher.hash_one((1u8, value)),
            Value::Uint(value) => self.hasher.hash_one((2u8, value)),
            // The two zeros are equal.
            Value::Double(value) => self.hasher.hash_one((3u8, (value + 0.0).to_bits())),
            Value::String(value) => self.hasher.hash_one((4u8, &**value)),
            Value::Null => self.hasher.hash_one(5u8),
            Value::Duration(value) => self.hasher.hash_one((6u8, value)),
            Value::Timestamp(value) => self.hasher.hash_one((7u8, value.seconds)),
            Value::List(items) => self.hasher.hash_one((8u8, Arc::as_ptr(items))),
            _ => return None,
        })
    }
}

impl<'a> Deref for Map<'a> {
    type Target = [(Value<'a>, Value<'a>)];

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl<'a> FromIterator<(Value<'a>, Value<'a>)> for Map<'a> {
    fn from_iter<T: IntoIterator<Item = (Value<'a>, Value<'a>)>>(entries: T) -> Self {
        let mut map = Map::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

fn is_same_key(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Int(left), Value::Int(right)) => left == right,
        (Value::Uint(left), Value::Uint(right)) => left == right,
        (Value::Double(left), Value::Double(right)) => left == right,
        (Value::String(left), Value::String(right)) => **left == **right,
        (Value::Null, Value::Null) => true,
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
        // As in Go, lists are the same key only where they are the same list.
        (Value::List(left), Value::List(right)) => Arc::ptr_eq(left, right),
        _ => false,
    }
}
