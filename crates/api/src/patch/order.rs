//! The order of merged lists: what the patch orders, and what only the server has, kept apart and
//! then woven together by the server's order.

use std::collections::BTreeMap;

use crate::document::Value;
use crate::patch::Error;
use crate::steps;

/// What distinguishes two elements: the value of the merge key, or the scalar itself.
pub fn identity<'a>(item: &'a Value, merge_key: &str) -> Option<&'a Value> {
    match merge_key {
        "" => Some(item),
        key => item.get(key),
    }
}

/// An identity in a form that can be sorted. Equal values have equal keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key<'a> {
    Text(&'a str),
    /// JSON of anything but a text.
    Other(String),
}

impl<'a> Key<'a> {
    pub fn of(value: &'a Value) -> Key<'a> {
        match value {
            Value::String(text) => Key::Text(text),
            other => Key::Other(other.to_string()),
        }
    }
}

/// Where the elements of a list stand. Of several alike the first one counts.
#[derive(Debug)]
pub struct Positions<'a> {
    merge_key: &'a str,
    places: BTreeMap<Key<'a>, usize>,
}

impl<'a> Positions<'a> {
    pub fn of(list: &'a [Value], merge_key: &'a str) -> Positions<'a> {
        let mut positions = Positions {
            merge_key,
            places: BTreeMap::new(),
        };
        for (index, item) in list.iter().enumerate() {
            positions.add(item, index);
        }
        positions
    }

    pub fn add(&mut self, item: &'a Value, index: usize) {
        if let Some(identity) = identity(item, self.merge_key) {
            steps::count(1);
            self.places.entry(Key::of(identity)).or_insert(index);
        }
    }

    pub fn find(&self, item: &Value) -> Option<usize> {
        self.find_identity(identity(item, self.merge_key)?)
    }

    pub fn find_identity(&self, identity: &Value) -> Option<usize> {
        steps::count(1);
        self.places.get(&Key::of(identity)).copied()
    }
}

pub fn has_keys(list: &[Value], merge_key: &str) -> Result<(), Error> {
    for item in list {
        if identity(item, merge_key).is_none() {
            return Err(no_merge_key(item, merge_key));
        }
    }
    Ok(())
}

pub fn no_merge_key(item: &Value, merge_key: &str) -> Error {
    Error::NoMergeKey {
        map: super::in_go(item),
        key: merge_key.to_string(),
    }
}

/// Splits `merged` by whether an element stands in `by`.
pub fn partition(
    merged: Vec<Value>,
    by: &[Value],
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    has_keys(&merged, merge_key)?;
    let by = Positions::of(by, merge_key);
    Ok(merged.into_iter().partition(|item| by.find(item).is_some()))
}

/// Sorts by the positions in `order`; elements to be deleted go last.
pub fn sort_by(list: Vec<Value>, order: &[Value], merge_key: &str) -> Result<Vec<Value>, Error> {
    if !merge_key.is_empty() {
        has_keys(&list, merge_key)?;
        has_keys(order, merge_key)?;
    }
    let deleted = |item: &Value| item.str_at(&["$patch"]) == "delete";
    let (deletions, mut kept): (Vec<Value>, Vec<Value>) =
        list.into_iter().partition(|item| deleted(item));
    let order = Positions::of(order, merge_key);
    kept.sort_by_cached_key(|item| order.find(item).unwrap_or(usize::MAX));
    kept.extend(deletions);
    Ok(kept)
}

/// Weaves the elements of the patch and those only the server has into one list.
pub fn weave(
    patch_items: Vec<Value>,
    server_only: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    merge_key: &str,
) -> Result<Vec<Value>, Error> {
    let patch_items = sort_by(patch_items, patch_order, merge_key)?;
    let server_only = sort_by(server_only, server_order, merge_key)?;
    let server_order = Positions::of(server_order, merge_key);
    let mut woven = Vec::with_capacity(patch_items.len() + server_only.len());
    let mut server = server_only.into_iter().peekable();
    for item in patch_items {
        let place = server_order.find(&item);
        while let (Some(place), Some(next)) = (place, server.peek()) {
            match server_order.find(next) {
                Some(before) if before < place => woven.extend(server.next()),
                _ => break,
            }
        }
        woven.push(item);
    }
    woven.extend(server);
    Ok(woven)
}
