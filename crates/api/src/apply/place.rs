//! What stands at a place of an object, as far as ownership is concerned: scalars, lists and maps,
//! each owned item by item or as a whole.
//!
//! Built-in kinds answer from `schema::Shape`, custom ones from the schema of their definition. Below
//! an embedded object nothing is declared; what stands there is told by the value itself.

use crate::custom::{self, Additional, Kind, ListType, MapType, Node};
use crate::document::{Object, Value};
use crate::schema::{self, Field, Shape, Type};

/// A place in an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    Declared(Shape),
    /// Declared by the definition of a custom resource.
    Custom(Custom<'a>),
    /// Not declared: maps are owned by key, lists as a whole.
    Deduced,
    /// Not declared and owned as a whole.
    Opaque,
}

/// A place in a custom resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Custom<'a> {
    node: &'a Node,
    /// Whether this is a whole object with metadata of its own.
    is_object: bool,
    /// Whether fields that nobody declared are kept here or further up.
    preserves: bool,
}

/// What stands at a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'a> {
    Scalar(Scalar),
    List(Items<'a>),
    /// Keys to values, declared one by one or alike.
    Map {
        atomic: bool,
        place: Place<'a>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    String,
    Number,
    Bool,
    Any,
}

/// How a list's items are owned and told apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum Items<'a> {
    Atomic {
        item: Option<Place<'a>>,
    },
    /// Each value is there once.
    Set {
        item: Place<'a>,
    },
    /// Items are told apart by these fields.
    Keyed {
        keys: Keys<'a>,
        item: Place<'a>,
    },
}

/// The names of the fields that tell items apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keys<'a> {
    BuiltIn(&'static [&'static str]),
    Custom(&'a [custom::Name]),
}

impl<'a> Keys<'a> {
    fn iter(self) -> impl Iterator<Item = &'a str> {
        let (built_in, custom): (&[&str], &[custom::Name]) = match self {
            Keys::BuiltIn(names) => (names, &[]),
            Keys::Custom(names) => (&[], names),
        };
        let custom = custom.iter().map(|name| &**name);
        built_in.iter().copied().chain(custom)
    }
}

const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl<'a> Custom<'a> {
    fn new(node: &'a Node, is_object: bool, preserved: bool) -> Custom<'a> {
        Custom {
            node,
            is_object: is_object || node.is_embedded_resource(),
            preserves: preserved || node.preserves_unknown_fields(),
        }
    }

    fn form(self, value: Option<&Value>) -> Form<'a> {
        match self.node.kind() {
            _ if self.node.is_int_or_string() => Form::Scalar(Scalar::Any),
            // What a format says is told by the value.
            Kind::String if !matches!(self.node.format(), "" | "byte") => Form::Scalar(Scalar::Any),
            Kind::String => Form::Scalar(Scalar::String),
            Kind::Boolean => Form::Scalar(Scalar::Bool),
            Kind::Integer | Kind::Number => Form::Scalar(Scalar::Number),
            Kind::Array => Form::List(self.items()),
            Kind::Object => Form::Map {
                atomic: self.node.map_type() == MapType::Atomic,
                place: Place::Custom(self),
            },
            Kind::Any => match value {
                Some(Value::Array(_)) => Form::List(self.items()),
                Some(Value::Object(_)) => Form::Map {
                    atomic: self.node.map_type() == MapType::Atomic,
                    place: Place::Custom(self),
                },
                value => Place::Deduced.undeclared(value),
            },
        }
    }

    fn items(self) -> Items<'a> {
        let item = match self.node.items() {
            Some(node) => Place::Custom(Custom::new(node, false, self.preserves)),
            None => Place::Opaque,
        };
        match self.node.list_type() {
            ListType::Set => Items::Set { item },
            ListType::Map => Items::Keyed {
                keys: Keys::Custom(self.node.list_map_keys()),
                item,
            },
            ListType::Undeclared | ListType::Atomic => Items::Atomic { item: Some(item) },
        }
    }

    fn child(self, name: &str) -> Option<Place<'a>> {
        if self.is_object {
            match name {
                "metadata" => return Shape::of(METADATA).map(Place::Declared),
                "apiVersion" | "kind" => return Some(Place::Deduced),
                _ => {}
            }
        }
        if let Some(node) = self.node.field(name) {
            return Some(Place::Custom(Custom::new(node, false, self.preserves)));
        }
        let is_open = match self.node.additional() {
            Additional::Allowed(allowed) => *allowed,
            _ => self.preserves || !self.is_object && self.node.properties().is_empty(),
        };
        is_open.then_some(Place::Deduced)
    }

    fn declares(self, name: &str) -> bool {
        let is_common = matches!(name, "apiVersion" | "kind" | "metadata");
        self.node.property(name).is_some() || self.is_object && is_common
    }
}

impl<'a> Place<'a> {
    /// An object of the kind that this schema is of.
    pub fn of_custom(schema: &'a custom::Schema) -> Place<'a> {
        Place::Custom(Custom::new(schema.root(), true, false))
    }

    /// What stands here when `value` does; where several kinds are allowed the value decides.
    pub fn form(self, value: Option<&Value>) -> Form<'a> {
        let shape = match self {
            Place::Declared(shape) => shape,
            Place::Custom(custom) => return custom.form(value),
            Place::Deduced | Place::Opaque => return self.undeclared(value),
        };
        match shape.kind() {
            Type::String | Type::Bytes | Type::Duration => Form::Scalar(Scalar::String),
            Type::Bool => Form::Scalar(Scalar::Bool),
            Type::Int32 | Type::Int64 | Type::Float => Form::Scalar(Scalar::Number),
            Type::Time | Type::MicroTime | Type::Quantity | Type::IntOrString => {
                Form::Scalar(Scalar::Any)
            }
            Type::List { .. } => Form::List(items(shape)),
            Type::Object(_) | Type::Map(_) => Form::Map {
                atomic: shape.map_type() == "atomic",
                place: self,
            },
            Type::Raw => Place::Opaque.undeclared(value),
            Type::Fields => Form::Map {
                atomic: false,
                place: Place::Deduced,
            },
            Type::Json
            | Type::Any
            | Type::SchemaOrArray
            | Type::SchemaOrBool
            | Type::SchemaOrStrings => Place::Deduced.undeclared(value),
        }
    }

    fn undeclared(self, value: Option<&Value>) -> Form<'a> {
        match value {
            Some(Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::String(_)) => {
                Form::Scalar(Scalar::Any)
            }
            Some(Value::Array(_)) => Form::List(Items::Atomic { item: None }),
            _ => Form::Map {
                atomic: matches!(self, Place::Opaque),
                place: self,
            },
        }
    }

    /// The place of a map's or object's field; `None` when nothing of that name is declared.
    pub fn child(self, name: &str) -> Option<Place<'a>> {
        match self {
            Place::Declared(shape) => shape.child(name).map(Place::Declared),
            Place::Custom(custom) => custom.child(name),
            other => Some(other),
        }
    }

    /// Whether `name` is a field of an object rather than a key of a map.
    pub fn declares(self, name: &str) -> bool {
        match self {
            Place::Declared(shape) => shape
                .definition()
                .is_some_and(|definition| definition.property(name).is_some()),
            Place::Custom(custom) => custom.declares(name),
            Place::Deduced | Place::Opaque => false,
        }
    }

    /// What an object without the field `name` has there all the same: Go's structs write some
    /// fields always.
    pub fn implied(self, name: &str) -> Option<&'static Value> {
        let Place::Declared(shape) = self else {
            return None;
        };
        implied(shape.definition()?.field(name)?)
    }

    /// Whether Go's struct does not show `value` at all in the field `name`: an empty list or map
    /// of those left out when empty.
    pub fn leaves_out(self, name: &str, value: &Value) -> bool {
        let Place::Declared(shape) = self else {
            return false;
        };
        let field = shape.definition().and_then(|known| known.field(name));
        field.is_some_and(|field| schema::is_left_out(field, value))
    }

    /// The names of the fields that an object always has, and that documents leave out for being
    /// null.
    pub fn nulls(self) -> impl Iterator<Item = &'static str> + use<'a> {
        let definition = match self {
            Place::Declared(shape) => shape.definition(),
            _ => None,
        };
        definition
            .into_iter()
            .flat_map(|definition| &definition.properties)
            .map(|property| property.name)
            .filter(move |name| self.implied(name).is_some_and(Value::is_null))
    }
}

static NULL: Value = Value::Null;
static EMPTY: std::sync::LazyLock<Value> = std::sync::LazyLock::new(Value::object);
static BLANK: Value = Value::String(String::new());
static ZERO: Value = Value::Integer(0);
static FALSE: Value = Value::Bool(false);
static NOTHING: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| "0".into());

fn implied(field: &Field) -> Option<&'static Value> {
    if field.omit_zero || field.inline {
        return None;
    }
    if field.pointer {
        return (!field.omit_empty).then_some(&NULL);
    }
    match field.kind {
        Type::Object(_) => Some(&EMPTY),
        Type::Quantity => Some(&NOTHING),
        // A struct in Go, which is never left out for being empty.
        Type::Time | Type::MicroTime => Some(&NULL),
        _ if field.omit_empty => None,
        Type::String => Some(&BLANK),
        Type::Bool => Some(&FALSE),
        Type::Int32 | Type::Int64 | Type::Float => Some(&ZERO),
        Type::List { .. } | Type::Map(_) | Type::Bytes => Some(&NULL),
        _ => None,
    }
}

fn items(shape: Shape) -> Items<'static> {
    let item = shape.item().map_or(Place::Deduced, Place::Declared);
    match shape.list_type() {
        "set" => Items::Set { item },
        "map" => Items::Keyed {
            keys: Keys::BuiltIn(shape.list_map_keys()),
            item,
        },
        "" if shape.has_patch_strategy("merge") => match shape.field() {
            Some(field) if !field.patch_merge_key.is_empty() => Items::Keyed {
                keys: Keys::BuiltIn(std::slice::from_ref(&field.patch_merge_key)),
                item,
            },
            _ => Items::Set { item },
        },
        _ => Items::Atomic { item: Some(item) },
    }
}

/// Why an item has no path element, in upstream's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElementError {
    #[error("invalid indexing of non-associative list")]
    Atomic,
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
    #[error("associative list with keys may not have a null element")]
    NullWithKeys,
    #[error("associative list with keys may not have non-map elements")]
    NoMapWithKeys,
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't \
         have default values for any key fields)"
    )]
    NoKeys(String),
}

impl<'a> Items<'a> {
    pub fn is_atomic(self) -> bool {
        matches!(self, Items::Atomic { .. })
    }

    pub fn item(self) -> Place<'a> {
        match self {
            Items::Atomic { item } => item.unwrap_or(Place::Opaque),
            Items::Set { item } | Items::Keyed { item, .. } => item,
        }
    }

    /// The path element of a list's item, or why it has none.
    pub fn element(self, value: &Value) -> Result<String, ElementError> {
        match self {
            Items::Atomic { .. } => Err(ElementError::Atomic),
            Items::Set { .. } => match value {
                Value::Object(_) => Err(ElementError::MapInSet),
                Value::Array(_) => Err(ElementError::ListInSet),
                Value::Null => Err(ElementError::NullInSet),
                scalar => Ok(super::element::value(scalar)),
            },
            Items::Keyed { keys, item } => keyed(keys, item, value),
        }
    }
}

/// A key that the item leaves out counts with its default; one without a default is left out.
fn keyed(keys: Keys<'_>, place: Place<'_>, value: &Value) -> Result<String, ElementError> {
    let item = match value {
        Value::Object(item) => item,
        Value::Null => return Err(ElementError::NullWithKeys),
        _ => return Err(ElementError::NoMapWithKeys),
    };
    let mut found = Object::default();
    for key in keys.iter() {
        if let Some(value) = item.get(key) {
            found.insert(key, value.clone());
        } else if let Some(value) = key_default(place, key) {
            found.insert(key, value);
        }
    }
    let names: Vec<String> = match found.is_empty() {
        true => keys.iter().map(|key| format!("{key:?}")).collect(),
        false => Vec::new(),
    };
    if !names.is_empty() {
        return Err(ElementError::NoKeys(names.join(" ")));
    }
    Ok(super::element::keyed(found))
}

fn key_default(place: Place<'_>, key: &str) -> Option<Value> {
    let shape = match place {
        Place::Declared(shape) => shape,
        Place::Custom(custom) => return custom.node.property(key)?.default().cloned(),
        Place::Deduced | Place::Opaque => return None,
    };
    let field = shape.definition()?.field(key)?;
    if !field.default.is_empty() {
        return Value::from_json(field.default.as_bytes()).ok();
    }
    // The schema shows the zero of a field that is always written as its default.
    let zero = implied(field)?;
    (!zero.is_null()).then(|| zero.clone())
}
