//! A map that an expression made: entries in the order of insertion, found by key through a table of
//! hashes once there are more than a few.

use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;

use crate::numbers::{lossless_int, lossless_uint};
use crate::value::Value;

/// Up to this many entries are searched one by one.
const SEARCHED: usize = 8;

#[derive(Clone, Debug, Default)]
pub struct Map<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    index: Option<Index>,
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
        }
    }

    /// Adds an entry, or replaces the value of a key of the same type and value.
    pub fn insert(&mut self, key: Value<'a>, value: Value<'a>) {
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
        _ => false,
    }
}
