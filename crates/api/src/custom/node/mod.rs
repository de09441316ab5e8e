//! One place of a compiled schema: what may stand there and what holds for it.
//!
//! Nodes are immutable and shared: equal ones exist once in the process (see `intern`), so that the
//! hundred places that say "a string" cost one, and copies of a definition cost next to nothing.
//! What few nodes have is a list of facts; descriptions are not kept.

mod rule;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::format::Format;
use super::kind::Kind;
use crate::document::Value;

pub use rule::{
    Compilation, CompiledRule, Expressions, OldSelf, Outcome, PER_CALL_LIMIT, Program, Rule, Rules,
    Run, Scope,
};

/// A name or text that equal ones share.
pub type Name = Arc<str>;

/// `x-kubernetes-list-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ListType {
    /// Which means atomic.
    #[default]
    Undeclared,
    Atomic,
    Set,
    Map,
}

/// `x-kubernetes-map-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MapType {
    /// Which means granular.
    #[default]
    Undeclared,
    Granular,
    Atomic,
}

/// `additionalProperties`.
#[derive(Clone, Debug, Default)]
pub enum Additional {
    #[default]
    Undeclared,
    Allowed(bool),
    Schema(Arc<Node>),
}

/// A property of an object.
#[derive(Clone, Debug)]
pub struct Property {
    pub name: Name,
    pub node: Arc<Node>,
}

/// What only some nodes say.
#[derive(Clone, Debug)]
pub(super) enum Fact {
    /// A type that there is not; the schema is refused for it.
    UnknownType(Name),
    /// As declared; `Node::format` is the one that is checked.
    Format(Name),
    Default(Box<Value>),
    /// Which of the properties have defaults.
    Defaulted(Box<[u32]>),
    Enum(Box<[Value]>),
    Pattern(Name),
    Maximum(f64),
    Minimum(f64),
    MultipleOf(f64),
    MaxLength(i64),
    MinLength(i64),
    MaxItems(i64),
    MinItems(i64),
    MaxProperties(i64),
    MinProperties(i64),
    Required(Box<[Name]>),
    Keys(Box<[Name]>),
    AllOf(Box<[Arc<Node>]>),
    AnyOf(Box<[Arc<Node>]>),
    OneOf(Box<[Arc<Node>]>),
    Not(Arc<Node>),
    Rules(Arc<Rules>),
}

/// The yes and no of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Flags {
    pub nullable: bool,
    pub preserve_unknown_fields: bool,
    pub embedded_resource: bool,
    pub int_or_string: bool,
    pub exclusive_maximum: bool,
    pub exclusive_minimum: bool,
    pub unique_items: bool,
    /// Somewhere at or below this node there are rules; walks without any skip the rest.
    pub rules_within: bool,
}

/// One place of a schema.
#[derive(Debug, Default)]
pub struct Node {
    pub(super) kind: Kind,
    pub(super) list_type: ListType,
    pub(super) map_type: MapType,
    pub(super) flags: Flags,
    /// The format that is checked; an unknown one or one of another type is not.
    pub(super) format: Option<Format>,
    /// Sorted by name.
    pub(super) properties: Box<[Property]>,
    pub(super) items: Option<Arc<Node>>,
    pub(super) additional: Additional,
    pub(super) facts: Box<[Fact]>,
}

/// Reads one fact of a node.
macro_rules! fact {
    ($node:expr, $variant:ident) => {
        $node.facts.iter().find_map(|fact| match fact {
            Fact::$variant(value) => Some(value),
            _ => None,
        })
    };
}

impl Node {
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The type as declared, known or not; "" for none.
    pub fn declared_type(&self) -> &str {
        fact!(self, UnknownType).map_or(self.kind.name(), |name| name)
    }

    pub fn list_type(&self) -> ListType {
        self.list_type
    }

    pub fn map_type(&self) -> MapType {
        self.map_type
    }

    pub fn is_nullable(&self) -> bool {
        self.flags.nullable
    }

    pub fn preserves_unknown_fields(&self) -> bool {
        self.flags.preserve_unknown_fields
    }

    pub fn is_embedded_resource(&self) -> bool {
        self.flags.embedded_resource
    }

    pub fn is_int_or_string(&self) -> bool {
        self.flags.int_or_string
    }

    pub fn excludes_maximum(&self) -> bool {
        self.flags.exclusive_maximum
    }

    pub fn excludes_minimum(&self) -> bool {
        self.flags.exclusive_minimum
    }

    pub fn has_unique_items(&self) -> bool {
        self.flags.unique_items
    }

    /// Whether there are rules here or further down.
    pub fn has_rules_within(&self) -> bool {
        self.flags.rules_within
    }

    /// Sorted by name.
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    pub fn property(&self, name: &str) -> Option<&Arc<Node>> {
        let found = self
            .properties
            .binary_search_by(|property| (*property.name).cmp(name));
        found.ok().map(|index| &self.properties[index].node)
    }

    /// The properties that have defaults, sorted by name.
    pub fn defaulted(&self) -> impl Iterator<Item = &Property> {
        let indices: &[u32] = fact!(self, Defaulted).map_or(&[], |indices| indices);
        indices
            .iter()
            .map(|index| &self.properties[*index as usize])
    }

    pub fn items(&self) -> Option<&Arc<Node>> {
        self.items.as_ref()
    }

    pub fn additional(&self) -> &Additional {
        &self.additional
    }

    /// The schema of properties without a name of their own.
    pub fn additional_schema(&self) -> Option<&Arc<Node>> {
        match &self.additional {
            Additional::Schema(node) => Some(node),
            Additional::Undeclared | Additional::Allowed(_) => None,
        }
    }

    /// The schema of the field `name`: its own, or that of all other fields.
    pub fn field(&self, name: &str) -> Option<&Arc<Node>> {
        self.property(name).or_else(|| self.additional_schema())
    }

    /// As declared, checked or not; "" for none.
    pub fn format(&self) -> &str {
        fact!(self, Format).map_or("", |name| name)
    }

    pub fn default(&self) -> Option<&Value> {
        fact!(self, Default).map(|value| &**value)
    }

    pub fn enumeration(&self) -> &[Value] {
        fact!(self, Enum).map_or(&[], |values| values)
    }

    /// "" for none.
    pub fn pattern(&self) -> &str {
        fact!(self, Pattern).map_or("", |pattern| pattern)
    }

    pub fn maximum(&self) -> Option<f64> {
        fact!(self, Maximum).copied()
    }

    pub fn minimum(&self) -> Option<f64> {
        fact!(self, Minimum).copied()
    }

    pub fn multiple_of(&self) -> Option<f64> {
        fact!(self, MultipleOf).copied()
    }

    pub fn max_length(&self) -> Option<i64> {
        fact!(self, MaxLength).copied()
    }

    pub fn min_length(&self) -> Option<i64> {
        fact!(self, MinLength).copied()
    }

    pub fn max_items(&self) -> Option<i64> {
        fact!(self, MaxItems).copied()
    }

    pub fn min_items(&self) -> Option<i64> {
        fact!(self, MinItems).copied()
    }

    pub fn max_properties(&self) -> Option<i64> {
        fact!(self, MaxProperties).copied()
    }

    pub fn min_properties(&self) -> Option<i64> {
        fact!(self, MinProperties).copied()
    }

    pub fn required(&self) -> &[Name] {
        fact!(self, Required).map_or(&[], |names| names)
    }

    /// The fields that distinguish the items of a list of type map.
    pub fn list_map_keys(&self) -> &[Name] {
        fact!(self, Keys).map_or(&[], |names| names)
    }

    pub fn all_of(&self) -> &[Arc<Node>] {
        fact!(self, AllOf).map_or(&[], |nodes| nodes)
    }

    pub fn any_of(&self) -> &[Arc<Node>] {
        fact!(self, AnyOf).map_or(&[], |nodes| nodes)
    }

    pub fn one_of(&self) -> &[Arc<Node>] {
        fact!(self, OneOf).map_or(&[], |nodes| nodes)
    }

    pub fn not(&self) -> Option<&Arc<Node>> {
        fact!(self, Not)
    }

    /// The rules that hold here.
    pub fn rules(&self) -> Option<&Arc<Rules>> {
        fact!(self, Rules)
    }
}

// Equality and hash look at what a node says; the nodes below it are the same only if they are the
// same node, which `intern` sees to.

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.kind == other.kind
            && self.list_type == other.list_type
            && self.map_type == other.map_type
            && self.flags == other.flags
            && self.format == other.format
            && self.properties == other.properties
            && match (&self.items, &other.items) {
                (Some(one), Some(another)) => Arc::ptr_eq(one, another),
                (None, None) => true,
                _ => false,
            }
            && self.additional == other.additional
            && self.facts == other.facts
    }
}

impl PartialEq for Property {
    fn eq(&self, other: &Property) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.node, &other.node)
    }
}

impl PartialEq for Additional {
    fn eq(&self, other: &Additional) -> bool {
        match (self, other) {
            (Additional::Undeclared, Additional::Undeclared) => true,
            (Additional::Allowed(one), Additional::Allowed(another)) => one == another,
            (Additional::Schema(one), Additional::Schema(another)) => Arc::ptr_eq(one, another),
            _ => false,
        }
    }
}

impl PartialEq for Fact {
    fn eq(&self, other: &Fact) -> bool {
        let nodes = |one: &[Arc<Node>], another: &[Arc<Node>]| {
            one.len() == another.len()
                && one
                    .iter()
                    .zip(another)
                    .all(|(one, another)| Arc::ptr_eq(one, another))
        };
        match (self, other) {
            (Fact::UnknownType(one), Fact::UnknownType(another))
            | (Fact::Format(one), Fact::Format(another))
            | (Fact::Pattern(one), Fact::Pattern(another)) => one == another,
            (Fact::Default(one), Fact::Default(another)) => one == another,
            (Fact::Defaulted(one), Fact::Defaulted(another)) => one == another,
            (Fact::Enum(one), Fact::Enum(another)) => one == another,
            (Fact::Maximum(one), Fact::Maximum(another))
            | (Fact::Minimum(one), Fact::Minimum(another))
            | (Fact::MultipleOf(one), Fact::MultipleOf(another)) => {
                one.to_bits() == another.to_bits()
            }
            (Fact::MaxLength(one), Fact::MaxLength(another))
            | (Fact::MinLength(one), Fact::MinLength(another))
            | (Fact::MaxItems(one), Fact::MaxItems(another))
            | (Fact::MinItems(one), Fact::MinItems(another))
            | (Fact::MaxProperties(one), Fact::MaxProperties(another))
            | (Fact::MinProperties(one), Fact::MinProperties(another)) => one == another,
            (Fact::Required(one), Fact::Required(another))
            | (Fact::Keys(one), Fact::Keys(another)) => one == another,
            (Fact::AllOf(one), Fact::AllOf(another))
            | (Fact::AnyOf(one), Fact::AnyOf(another))
            | (Fact::OneOf(one), Fact::OneOf(another)) => nodes(one, another),
            (Fact::Not(one), Fact::Not(another)) => Arc::ptr_eq(one, another),
            (Fact::Rules(one), Fact::Rules(another)) => one.declared() == another.declared(),
            _ => false,
        }
    }
}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
        self.list_type.hash(state);
        self.map_type.hash(state);
        self.flags.hash(state);
        self.format.hash(state);
        for property in &self.properties {
            property.name.hash(state);
            Arc::as_ptr(&property.node).hash(state);
        }
        self.items.as_ref().map(Arc::as_ptr).hash(state);
        match &self.additional {
            Additional::Undeclared => 0_u8.hash(state),
            Additional::Allowed(allowed) => (1_u8, allowed).hash(state),
            Additional::Schema(node) => (2_u8, Arc::as_ptr(node)).hash(state),
        }
        for fact in &self.facts {
            fact.hash(state);
        }
    }
}

impl Hash for Fact {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Fact::UnknownType(name) | Fact::Format(name) | Fact::Pattern(name) => {
                name.hash(state);
            }
            Fact::Default(value) => value.to_json().hash(state),
            Fact::Defaulted(indices) => indices.hash(state),
            Fact::Enum(values) => {
                for value in values {
                    value.to_json().hash(state);
                }
            }
            Fact::Maximum(number) | Fact::Minimum(number) | Fact::MultipleOf(number) => {
                number.to_bits().hash(state);
            }
            Fact::MaxLength(number)
            | Fact::MinLength(number)
            | Fact::MaxItems(number)
            | Fact::MinItems(number)
            | Fact::MaxProperties(number)
            | Fact::MinProperties(number) => number.hash(state),
            Fact::Required(names) | Fact::Keys(names) => names.hash(state),
            Fact::AllOf(nodes) | Fact::AnyOf(nodes) | Fact::OneOf(nodes) => {
                for node in nodes {
                    Arc::as_ptr(node).hash(state);
                }
            }
            Fact::Not(node) => Arc::as_ptr(node).hash(state),
            Fact::Rules(rules) => rules.declared().hash(state),
        }
    }
}
