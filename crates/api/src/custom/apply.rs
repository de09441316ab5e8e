//! What server-side apply must know of a place: whether it is owned as a whole or in parts, and how
//! the items of a list are distinguished.

use std::sync::Arc;

use super::kind::Kind;
use super::node::{Additional, ListType, MapType, Name, Node};
use crate::document::Value;

/// A place of an object, as far as ownership is concerned.
#[derive(Clone, Debug)]
pub enum Place {
    Declared {
        node: Arc<Node>,
        /// The root of a resource, where `metadata` is that of every object.
        is_root: bool,
        /// Fields that nobody declared are kept here, because this place or one above says so.
        preserves: bool,
    },
    /// The metadata of a resource, which has the schema of every object's.
    Metadata,
    /// `apiVersion` or `kind`.
    Text,
    /// Not declared: maps are owned by key, lists as a whole.
    Deduced,
    /// Not declared and owned as a whole.
    Opaque,
}

/// What stands at a place.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    Text,
    Number,
    Bool,
    /// Text or number, or a text with a format.
    AnyScalar,
    /// Owned item by item unless atomic; items of a set are distinguished by value, of a map by keys.
    List {
        list_type: ListType,
    },
    /// Owned field by field unless atomic.
    Map {
        atomic: bool,
    },
    /// Several kinds are allowed: the value decides.
    Any {
        list_type: ListType,
        atomic: bool,
    },
}

impl Place {
    /// The whole object of a kind.
    pub fn root(node: Arc<Node>) -> Place {
        let preserves = node.preserves_unknown_fields();
        Place::Declared {
            node,
            is_root: true,
            preserves,
        }
    }

    pub fn form(&self) -> Form {
        let node = match self {
            Place::Declared { node, .. } => node,
            Place::Metadata => return Form::Map { atomic: false },
            Place::Text => return Form::Text,
            Place::Deduced => {
                return Form::Any {
                    list_type: ListType::Atomic,
                    atomic: false,
                };
            }
            Place::Opaque => {
                return Form::Any {
                    list_type: ListType::Atomic,
                    atomic: true,
                };
            }
        };
        let atomic = node.map_type() == MapType::Atomic;
        let list_type = match node.list_type() {
            ListType::Undeclared => ListType::Atomic,
            declared => declared,
        };
        match node.kind() {
            Kind::Any => Form::Any { list_type, atomic },
            Kind::Object => Form::Map { atomic },
            Kind::Array => Form::List { list_type },
            Kind::Integer | Kind::Number => Form::Number,
            Kind::Boolean => Form::Bool,
            Kind::String => match node.format() {
                "" | "byte" => Form::Text,
                _ => Form::AnyScalar,
            },
        }
    }

    /// The place of a field; `None` where no field of that name may be.
    pub fn field(&self, name: &str) -> Option<Place> {
        let (node, is_root, preserves) = match self {
            Place::Declared {
                node,
                is_root,
                preserves,
            } => (node, *is_root, *preserves),
            Place::Deduced => return Some(Place::Deduced),
            Place::Opaque => return Some(Place::Opaque),
            Place::Metadata | Place::Text => return None,
        };
        if is_root || node.is_embedded_resource() {
            match name {
                "apiVersion" | "kind" => return Some(Place::Text),
                "metadata" => return Some(Place::Metadata),
                _ => {}
            }
        }
        if let Some(below) = node.property(name) {
            return Some(Place::below(below, preserves));
        }
        match node.additional() {
            Additional::Schema(below) => Some(Place::below(below, preserves)),
            Additional::Allowed(true) => Some(Place::Deduced),
            Additional::Allowed(false) => None,
            Additional::Undeclared => {
                let has_properties =
                    is_root || node.is_embedded_resource() || !node.properties().is_empty();
                (preserves || !has_properties).then_some(Place::Deduced)
            }
        }
    }

    /// Whether `name` is declared by itself rather than as a key of a map.
    pub fn declares(&self, name: &str) -> bool {
        match self {
            Place::Declared { node, is_root, .. } => {
                let is_resource = *is_root || node.is_embedded_resource();
                node.property(name).is_some()
                    || (is_resource && matches!(name, "apiVersion" | "kind" | "metadata"))
            }
            _ => false,
        }
    }

    /// The place of a list's items.
    pub fn item(&self) -> Place {
        match self {
            Place::Declared {
                node, preserves, ..
            } => match node.items() {
                Some(below) => Place::below(below, *preserves),
                None => Place::Opaque,
            },
            _ => Place::Opaque,
        }
    }

    /// The keys of a list of type map.
    pub fn list_map_keys(&self) -> &[Name] {
        match self {
            Place::Declared { node, .. } => node.list_map_keys(),
            _ => &[],
        }
    }

    /// The value that a key has in an item of this place which leaves it out.
    pub fn key_default(&self, key: &str) -> Option<&Value> {
        match self {
            Place::Declared { node, .. } => node.property(key)?.default(),
            _ => None,
        }
    }

    fn below(node: &Arc<Node>, preserves: bool) -> Place {
        Place::Declared {
            node: node.clone(),
            is_root: false,
            preserves: preserves || node.preserves_unknown_fields(),
        }
    }
}
