//! A structural schema as types of expressions.
//!
//! The types of objects have names that say where they are in the schema, such as
//! `selfType.spec.@idx`, so that nothing but the schema has to be kept.

use std::sync::Arc;

use cel::ast::Name;
use cel::function::{SizeBounds, SizeEstimate};
use cel::types::{Type, TypeProvider};

use super::names;
use crate::custom::{self, Kind, Node};

/// The type of `self` where that is an object.
const SELF: &str = "selfType";
const ITEM: &str = "@idx";
const ENTRY: &str = "@elem";

/// The types below a node that has rules.
pub struct SchemaTypes {
    pub node: Arc<Node>,
    pub is_root: bool,
}

/// A place in a schema, or one of the fields that every resource has.
#[derive(Clone, Copy)]
enum Place<'a> {
    Node { node: &'a Arc<Node>, is_root: bool },
    Metadata,
    Text,
}

impl SchemaTypes {
    /// The type of the node itself; nothing where expressions cannot see it.
    pub fn self_type(&self) -> Option<Type> {
        self.root().declared(SELF)
    }

    fn root(&self) -> Place<'_> {
        Place::Node {
            node: &self.node,
            is_root: self.is_root,
        }
    }

    /// The place that the name of an object's type says.
    fn named(&self, type_name: &str) -> Option<Place<'_>> {
        let mut steps = type_name.split('.');
        if steps.next() != Some(SELF) {
            return None;
        }
        steps.try_fold(self.root(), |place, step| match step {
            ITEM => place.item(),
            ENTRY => place.entry(),
            field => place.field(field),
        })
    }
}

impl<'a> Place<'a> {
    fn below(node: &'a Arc<Node>) -> Place<'a> {
        Place::Node {
            node,
            is_root: node.is_embedded_resource(),
        }
    }

    fn item(self) -> Option<Place<'a>> {
        match self {
            Place::Node { node, .. } => node.items().map(Place::below),
            _ => None,
        }
    }

    fn entry(self) -> Option<Place<'a>> {
        match self {
            Place::Node { node, .. } => node.additional_schema().map(Place::below),
            _ => None,
        }
    }

    /// The field of an object, by its identifier.
    fn field(self, identifier: &str) -> Option<Place<'a>> {
        match self {
            Place::Text => None,
            Place::Metadata => matches!(identifier, "name" | "generateName").then_some(Place::Text),
            Place::Node { node, is_root } => {
                if is_root && !declares_metadata(node) {
                    match identifier {
                        "apiVersion" | "kind" => return Some(Place::Text),
                        "metadata" => return Some(Place::Metadata),
                        _ => {}
                    }
                }
                let name = names::unescape(identifier)?;
                // What expressions would have to write in another way is not there.
                let is_the_way = names::is_reserved(identifier)
                    || names::escape(&name).is_some_and(|known| known == identifier);
                node.property(&name)
                    .filter(|_| is_the_way)
                    .map(Place::below)
            }
        }
    }

    /// The type; `name` is that of the object if it is one.
    fn declared(self, name: &str) -> Option<Type> {
        let node = match self {
            Place::Text => return Some(Type::String),
            Place::Metadata => return Some(Type::Object(Name::from(name))),
            Place::Node { node, .. } if node.is_int_or_string() => return Some(Type::Dyn),
            Place::Node { node, .. } => node,
        };
        Some(match node.kind() {
            Kind::Array => Type::list(self.item()?.declared(&format!("{name}.{ITEM}"))?),
            Kind::Object => match self.entry() {
                Some(entry) => Type::map(Type::String, entry.declared(&format!("{name}.{ENTRY}"))?),
                None => Type::Object(Name::from(name)),
            },
            Kind::String => match node.format() {
                "byte" => Type::Bytes,
                "duration" => Type::Duration,
                "date" | "date-time" => Type::Timestamp,
                _ => Type::String,
            },
            Kind::Boolean => Type::Bool,
            Kind::Number => Type::Double,
            Kind::Integer => Type::Int,
            Kind::Any => return None,
        })
    }

    fn max_elements(self) -> i64 {
        match self {
            Place::Node { node, is_root } => {
                custom::estimate(node, is_root).map_or(0, |size| size.max_elements)
            }
            Place::Metadata => 0,
            Place::Text => custom::MAX_REQUEST_SIZE - 2,
        }
    }
}

/// Whether a resource's schema itself has all that every resource has.
pub fn declares_metadata(node: &Node) -> bool {
    let is = |node: &Node, name: &str, kind: Kind| {
        node.property(name)
            .is_some_and(|known| known.kind() == kind)
    };
    let metadata = node.property("metadata");
    is(node, "kind", Kind::String)
        && is(node, "apiVersion", Kind::String)
        && metadata.is_some_and(|metadata| {
            metadata.kind() == Kind::Object
                && is(metadata, "name", Kind::String)
                && is(metadata, "generateName", Kind::String)
        })
}

impl TypeProvider for SchemaTypes {
    fn has_type(&self, name: &str) -> bool {
        let place = self.named(name);
        place.is_some_and(|place| matches!(place.declared(name), Some(Type::Object(_))))
    }

    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        let place = self.named(type_name)?.field(field)?;
        place.declared(&format!("{type_name}.{field}"))
    }

    fn fields(&self, type_name: &str) -> Vec<Name> {
        let Some(Place::Node { node, is_root }) = self.named(type_name) else {
            return Vec::new();
        };
        let own = node.properties().iter();
        let own = own.filter_map(|property| names::escape(&property.name));
        let mut all: Vec<Name> = own.map(|name| Name::from(&*name)).collect();
        if is_root {
            all.extend(["apiVersion", "kind", "metadata"].map(Name::from));
        }
        all.sort();
        all.dedup();
        all
    }
}

impl SizeBounds for SchemaTypes {
    fn size(&self, path: &[Name], _type_of: &Type) -> Option<SizeEstimate> {
        // The first name is that of the variable, which is the node either way.
        let (_, steps) = path.split_first()?;
        let mut place = self.root();
        for step in steps {
            place = match &**step {
                "@items" | "@values" => place.item().or_else(|| place.entry())?,
                // Keys have no bound of their own.
                "@keys" => {
                    place.entry()?;
                    return Some(SizeEstimate { min: 0, max: 0 });
                }
                field => place.field(field)?,
            };
            // What expressions cannot see has no type and no size.
            place.declared("")?;
        }
        let max = place.max_elements().unsigned_abs();
        Some(SizeEstimate { min: 0, max })
    }
}
