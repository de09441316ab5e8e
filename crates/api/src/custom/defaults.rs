//! Defaults: filling them in, taking out nulls that stand where none may, and bringing the defaults
//! of a schema into the form in which they are filled in.

use super::metadata::{self, Malformed};
use super::node::{Additional, Node};
use super::prune;
use crate::document::{Object, Value};

/// What the defaults of one object may take at most, in bytes as JSON: twice of what is ever stored.
/// Every item of a list gets a copy of its own, so that a short list could become any size.
const MOST_BYTES: usize = 3 << 20;

/// Fills in what is missing, and what is null without being allowed to.
///
/// An object whose defaults take more than [`MOST_BYTES`] gets no further ones: it is too large to be
/// stored, and refused for that.
pub(super) fn apply(value: &mut Value, node: &Node) {
    let mut filling = Filling { left: MOST_BYTES };
    filling.apply(value, node);
}

struct Filling {
    /// How many bytes of defaults may still be filled in.
    left: usize,
}

impl Filling {
    fn apply(&mut self, value: &mut Value, node: &Node) {
        match value {
            Value::Object(fields) => {
                for property in node.defaulted() {
                    let Some(default) = property.node.default() else {
                        continue;
                    };
                    let missing = match fields.get(&property.name) {
                        None => true,
                        Some(value) => value.is_null() && !property.node.is_nullable(),
                    };
                    if missing && self.spend(property.name.len() + 3 + least_bytes(default)) {
                        fields.insert(&*property.name, default.clone());
                    }
                    if self.left == 0 {
                        return;
                    }
                }
                for (name, value) in fields.iter_mut() {
                    if let Some(below) = node.property(name) {
                        self.apply(value, below);
                    } else if let Additional::Schema(below) = node.additional() {
                        self.replace_null(value, below);
                        self.apply(value, below);
                    }
                }
            }
            Value::Array(items) => {
                let Some(below) = node.items() else { return };
                for item in items {
                    if self.left == 0 {
                        return;
                    }
                    self.replace_null(item, below);
                    self.apply(item, below);
                }
            }
            _ => {}
        }
    }

    fn replace_null(&mut self, value: &mut Value, node: &Node) {
        if let (Value::Null, false, Some(default)) = (&*value, node.is_nullable(), node.default())
            && self.spend(least_bytes(default))
        {
            *value = default.clone();
        }
    }

    /// Whether so many bytes may be filled in. The first default that is too many is filled in too,
    /// so that the object is certainly too large.
    fn spend(&mut self, bytes: usize) -> bool {
        let had_some = self.left > 0;
        self.left = self.left.saturating_sub(bytes);
        had_some
    }
}

/// How many bytes a value has at least as JSON.
fn least_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Integer(_) | Value::Float(_) => 1,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(least_bytes).sum::<usize>(),
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| name.len() + 3 + least_bytes(value));
            2 + fields.sum::<usize>()
        }
    }
}

/// Takes out the fields that are null, may not be and have no default.
pub(super) fn prune_nulls(value: &mut Value, node: Option<&Node>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let below = node.and_then(|node| node.field(name)).map(|below| &**below);
            let is_wrong = value.is_null()
                && below.is_some_and(|below| !below.is_nullable() && below.default().is_none());
            if !is_wrong {
                prune_nulls(value, below);
            }
            !is_wrong
        }),
        Value::Array(items) => {
            let below = node.and_then(|node| node.items()).map(|below| &**below);
            for item in items {
                prune_nulls(item, below);
            }
        }
        _ => {}
    }
}

/// Where a default stands as far as a resource's metadata is concerned, which has rules of its own.
pub(super) struct Surroundings<'a> {
    above: Option<&'a Surroundings<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, PartialEq)]
enum Step<'a> {
    /// The root of a resource.
    Root,
    /// `apiVersion`, `kind` or `metadata` of a resource, and what lies below.
    Field(&'a str),
    Item,
    /// Not in the metadata of anything.
    Content,
}

impl<'a> Surroundings<'a> {
    pub fn root() -> Surroundings<'static> {
        Surroundings {
            above: None,
            step: Step::Root,
        }
    }

    pub fn is_root(&self) -> bool {
        self.step == Step::Root
    }

    pub fn is_metadata(&self) -> bool {
        matches!(self.step, Step::Field(_) | Step::Item)
    }

    /// Below a field; `is_resource` when this is the root of a resource.
    pub fn field(&'a self, name: &'a str, is_resource: bool) -> Surroundings<'a> {
        let within = is_resource && matches!(name, "apiVersion" | "kind" | "metadata");
        Surroundings {
            above: Some(self),
            step: match within || self.is_metadata() {
                true => Step::Field(name),
                false => Step::Content,
            },
        }
    }

    pub fn item(&'a self) -> Surroundings<'a> {
        Surroundings {
            above: Some(self),
            step: match self.is_metadata() {
                true => Step::Item,
                false => Step::Content,
            },
        }
    }

    /// A resource that has nothing but `value` in this place.
    pub fn surround(&self, value: Value) -> Value {
        let wrapped = match self.step {
            Step::Root | Step::Content => return value,
            Step::Field(name) => {
                Value::Object(Object::from_fields(vec![(name.to_string(), value)]))
            }
            Step::Item => Value::Array(vec![value]),
        };
        match self.above {
            Some(above) => above.surround(wrapped),
            None => wrapped,
        }
    }

    /// What stands in this place of a resource.
    pub fn extract(&self, resource: Value) -> Option<Value> {
        let step = match self.step {
            Step::Root | Step::Content => return Some(resource),
            step => step,
        };
        let around = match self.above {
            Some(above) => above.extract(resource)?,
            None => resource,
        };
        match (step, around) {
            (Step::Field(name), Value::Object(mut fields)) => fields.remove(name),
            (Step::Item, Value::Array(items)) => items.into_iter().next(),
            _ => None,
        }
    }
}

/// A default without what would be pruned from it, so that an object with it filled in is as an
/// object that was sent with it. Null when nothing is left.
pub(super) fn pruned(default: &Value, node: &Node, around: &Surroundings<'_>) -> Value {
    if around.is_metadata() {
        let mut resource = around.surround(default.clone());
        let _ = metadata::coerce_resource(&mut resource, Malformed::Dropped);
        return around.extract(resource).unwrap_or_default();
    }
    let mut default = default.clone();
    let is_resource = node.is_embedded_resource();
    let _ = metadata::coerce(&mut default, node, is_resource, Malformed::Dropped);
    prune::prune(&mut default, Some(node), is_resource, None);
    default
}
