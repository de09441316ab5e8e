//! `metadata.managedFields`: who owns which fields, read into sets and written back, sorted and
//! bounded.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};

use super::field_set::FieldSet;
use crate::document::{Object, Value};
use crate::steps;

/// Updaters beyond this many are put together, the oldest first.
const MOST_UPDATERS: usize = 10;
const OLD_UPDATES: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// One owner.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub manager: String,
    pub operation: Operation,
    pub api_version: String,
    pub subresource: String,
    /// RFC 3339, or "" where it is not known.
    pub time: String,
    pub fields: FieldSet,
}

/// What distinguishes owners.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    operation: Operation,
    manager: String,
    subresource: String,
    api_version: String,
}

/// All owners of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entries(pub Vec<Entry>);

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

impl Entry {
    /// Whom it stands for. An applier stays the same in another API version.
    pub fn owner(&self) -> Owner {
        let api_version = match self.operation {
            Operation::Apply => "",
            Operation::Update => &self.api_version,
        };
        Owner {
            operation: self.operation,
            manager: self.manager.clone(),
            subresource: self.subresource.clone(),
            api_version: api_version.to_string(),
        }
    }

    /// Whether both stand for the same owner.
    pub fn same_owner(&self, other: &Entry) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }
}

impl Entries {
    /// Reads the list; `None` when any of it is not well-formed.
    pub fn read(list: Option<Value>) -> Option<Entries> {
        let mut entries = Entries::default();
        let list = match list {
            Some(Value::Array(list)) => list,
            _ => return Some(entries),
        };
        // Of several entries of one owner the last one counts, in the place of the first.
        let mut places: BTreeMap<Owner, usize> = BTreeMap::new();
        for item in list {
            steps::count(1);
            let entry = read_entry(item)?;
            match places.entry(entry.owner()) {
                Occupied(place) => entries.0[*place.get()] = entry,
                Vacant(place) => {
                    place.insert(entries.0.len());
                    entries.0.push(entry);
                }
            }
        }
        Some(entries)
    }

    /// Adds an entry, or replaces the one of the same owner.
    pub fn put(&mut self, entry: Entry) {
        match self.0.iter_mut().find(|known| known.same_owner(&entry)) {
            Some(known) => *known = entry,
            None => self.0.push(entry),
        }
    }

    /// Takes out the entry of the same owner.
    pub fn take(&mut self, owner: &Entry) -> Option<Entry> {
        let index = self.0.iter().position(|known| known.same_owner(owner))?;
        Some(self.0.remove(index))
    }

    /// Puts the oldest updaters of each API version together until there are few enough.
    pub fn cap(&mut self) {
        let mut updaters: Vec<Entry> = Vec::new();
        let count = |entries: &[Entry]| {
            let updaters = entries
                .iter()
                .filter(|entry| entry.operation == Operation::Update);
            updaters.count()
        };
        let mut left = count(&self.0);
        if left <= MOST_UPDATERS {
            return;
        }
        self.0.retain(|entry| {
            let is_updater = entry.operation == Operation::Update;
            if is_updater {
                updaters.push(entry.clone());
            }
            !is_updater
        });
        updaters.sort_by(|a, b| {
            (&a.time, &a.manager, &a.api_version, &a.subresource).cmp(&(
                &b.time,
                &b.manager,
                &b.api_version,
                &b.subresource,
            ))
        });
        let mut kept: Vec<Entry> = Vec::new();
        // The first of each API version, and the fields of those put together with it.
        let mut buckets: BTreeMap<String, (usize, Vec<FieldSet>)> = BTreeMap::new();
        for entry in updaters {
            steps::count(1);
            match buckets.entry(entry.api_version.clone()) {
                Occupied(mut first) if left > MOST_UPDATERS => {
                    let (place, fields) = first.get_mut();
                    let bucket = &mut kept[*place];
                    bucket.manager = OLD_UPDATES.to_string();
                    bucket.subresource = String::new();
                    // The later one's time, since it is more recent.
                    bucket.time = entry.time;
                    fields.push(entry.fields);
                    left -= 1;
                }
                Occupied(_) => kept.push(entry),
                Vacant(first) => {
                    first.insert((kept.len(), Vec::new()));
                    kept.push(entry);
                }
            }
        }
        for (place, mut fields) in buckets.into_values() {
            fields.push(std::mem::take(&mut kept[place].fields));
            kept[place].fields = FieldSet::union_of(fields);
        }
        self.0.extend(kept);
    }

    /// The list as objects carry it: appliers first, each by time, then by name. `None` where
    /// there is no owner.
    pub fn write(mut self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        self.0.sort_by(|a, b| {
            let order = (a.operation, &a.time).cmp(&(b.operation, &b.time));
            order.then_with(|| {
                (&a.manager, &a.api_version, &a.subresource).cmp(&(
                    &b.manager,
                    &b.api_version,
                    &b.subresource,
                ))
            })
        });
        Some(Value::Array(self.0.into_iter().map(write_entry).collect()))
    }
}

fn read_entry(item: Value) -> Option<Entry> {
    let Value::Object(mut item) = item else {
        return None;
    };
    let operation = match item.get("operation").and_then(Value::as_str) {
        Some("Apply") => Operation::Apply,
        Some("Update") => Operation::Update,
        _ => return None,
    };
    let mut text = |name: &str| match item.remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let (manager, api_version) = (text("manager"), text("apiVersion"));
    let (subresource, time) = (text("subresource"), text("time"));
    if api_version.is_empty() || text("fieldsType") != "FieldsV1" {
        return None;
    }
    let fields = item.remove("fieldsV1").unwrap_or_default();
    Some(Entry {
        manager,
        operation,
        api_version,
        subresource,
        time,
        fields: FieldSet::from_fields(fields).ok()?,
    })
}

fn write_entry(entry: Entry) -> Value {
    let mut item = Object::default();
    item.insert("apiVersion", entry.api_version);
    item.insert("fieldsType", "FieldsV1");
    item.insert("fieldsV1", entry.fields.into_fields());
    if !entry.manager.is_empty() {
        item.insert("manager", entry.manager);
    }
    item.insert("operation", entry.operation.name());
    if !entry.subresource.is_empty() {
        item.insert("subresource", entry.subresource);
    }
    if !entry.time.is_empty() {
        item.insert("time", entry.time);
    }
    Value::Object(item)
}

/// Whether two lists differ in nothing but times.
pub fn same_but_times(left: Option<&Value>, right: Option<&Value>) -> bool {
    let (Some(Value::Array(left)), Some(Value::Array(right))) = (left, right) else {
        return false;
    };
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .all(|(left, right)| timeless(left).eq(timeless(right)))
}

fn timeless(item: &Value) -> impl Iterator<Item = (&str, &Value)> {
    item.fields_at(&[]).filter(|(name, _)| *name != "time")
}
