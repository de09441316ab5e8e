//! The types of a whole kind for expressions: from the table of the built-in kinds, or from the OpenAPI
//! document of a group version that others define.
//!
//! The types of objects have names that say where they are, such as `Pod0.spec.containers.@idx`, so that
//! nothing but the schema has to be kept.

use std::sync::Arc;

use cel::ast::Name;
use cel::types::{Type, TypeProvider};

use crate::document::Value;
use crate::expressions::names;
use crate::schema::{self, Shape};

const ITEM: &str = "@idx";
const ENTRY: &str = "@elem";
const REFERENCES: &str = "#/components/schemas/";
/// Lists of lists that are nested more deeply than this have no type. A document can refer to itself.
const DEEPEST: usize = 32;

/// Where the fields of a kind are declared.
#[derive(Clone, Debug)]
pub enum KindSchema {
    /// The name of a type in the table, e.g. `io.k8s.api.core.v1.Pod`.
    BuiltIn(&'static str),
    /// The name of a schema in the OpenAPI v3 document of its group version.
    Published { document: Arc<Value>, name: String },
}

/// The types of one kind.
pub struct KindTypes {
    /// The name of the type of the whole object.
    pub name: Name,
    pub schema: KindSchema,
}

#[derive(Clone, Copy)]
enum Place<'a> {
    BuiltIn(Shape),
    Published {
        schema: &'a Value,
        /// Whether this is a whole object with metadata of its own.
        is_object: bool,
    },
    /// What every object has, where a schema does not say it.
    Metadata,
    Text,
}

impl KindTypes {
    /// The type of the object; nothing where expressions cannot see it.
    pub fn object_type(&self) -> Option<Type> {
        self.declared(self.root()?, &self.name, 0)
    }

    fn root(&self) -> Option<Place<'_>> {
        match &self.schema {
            KindSchema::BuiltIn(name) => Shape::of(name).map(Place::BuiltIn),
            KindSchema::Published { document, name } => Some(Place::Published {
                schema: document.at(&["components", "schemas", name])?,
                is_object: true,
            }),
        }
    }

    /// The place that the name of an object's type says.
    fn named(&self, type_name: &str) -> Option<Place<'_>> {
        let mut steps = type_name.split('.');
        if steps.next() != Some(&*self.name) {
            return None;
        }
        steps.try_fold(self.root()?, |place, step| match step {
            ITEM => self.item(place),
            ENTRY => self.entry(place),
            field => self.property(place, field),
        })
    }

    /// A schema, or what it refers to.
    fn at<'a>(&'a self, schema: &'a Value) -> Option<Place<'a>> {
        let wrapped = schema.list_at(&["allOf"]).iter();
        let reference = std::iter::once(schema)
            .chain(wrapped)
            .find_map(|schema| schema.get("$ref")?.as_str());
        let is_object = |schema: &Value| flag(schema, "x-kubernetes-embedded-resource");
        let Some(reference) = reference else {
            return Some(Place::Published {
                schema,
                is_object: is_object(schema),
            });
        };
        let name = reference.strip_prefix(REFERENCES)?;
        if let Some(shape) = Shape::of(name) {
            return Some(Place::BuiltIn(shape));
        }
        let KindSchema::Published { document, .. } = &self.schema else {
            return None;
        };
        let schema = document.at(&["components", "schemas", name])?;
        Some(Place::Published {
            schema,
            is_object: is_object(schema),
        })
    }

    fn item<'a>(&'a self, place: Place<'a>) -> Option<Place<'a>> {
        match place {
            Place::BuiltIn(shape) if shape.is_list() => shape.item().map(Place::BuiltIn),
            Place::Published { schema, .. } => self.at(schema.get("items")?),
            _ => None,
        }
    }

    fn entry<'a>(&'a self, place: Place<'a>) -> Option<Place<'a>> {
        match place {
            Place::BuiltIn(shape) => match shape.kind() {
                schema::Type::Map(_) => shape.item().map(Place::BuiltIn),
                _ => None,
            },
            Place::Published { schema, .. } => {
                let schema = schema.get("additionalProperties")?;
                schema.as_object()?;
                self.at(schema)
            }
            _ => None,
        }
    }

    /// The field of an object, by its identifier.
    fn property<'a>(&'a self, place: Place<'a>, identifier: &str) -> Option<Place<'a>> {
        let name = names::unescape(identifier)?;
        if names::escape(&name).is_none_or(|known| known != identifier) {
            // Expressions have to write it in another way.
            return None;
        }
        match place {
            Place::Text => None,
            Place::Metadata => matches!(&*name, "name" | "generateName").then_some(Place::Text),
            Place::BuiltIn(shape) => {
                shape.definition()?;
                shape.child(&name).map(Place::BuiltIn)
            }
            Place::Published { schema, is_object } => match schema.at(&["properties", &name]) {
                Some(property) => self.at(property),
                None if !is_object => None,
                None => match &*name {
                    "apiVersion" | "kind" => Some(Place::Text),
                    "metadata" => Some(Place::Metadata),
                    _ => None,
                },
            },
        }
    }

    /// The type of a place; `name` is that of the object if it is one.
    fn declared(&self, place: Place<'_>, name: &str, depth: usize) -> Option<Type> {
        if depth > DEEPEST {
            return None;
        }
        let object = || Some(Type::Object(Name::from(name)));
        let list = || {
            let item = self.declared(self.item(place)?, &format!("{name}.{ITEM}"), depth + 1)?;
            Some(Type::list(item))
        };
        let map = || {
            let entry = self.declared(self.entry(place)?, &format!("{name}.{ENTRY}"), depth + 1)?;
            Some(Type::map(Type::String, entry))
        };
        match place {
            Place::Text => Some(Type::String),
            Place::Metadata => object(),
            Place::BuiltIn(shape) => match shape.kind() {
                schema::Type::String | schema::Type::Duration => Some(Type::String),
                schema::Type::Bytes => Some(Type::Bytes),
                schema::Type::Bool => Some(Type::Bool),
                schema::Type::Int32 | schema::Type::Int64 => Some(Type::Int),
                schema::Type::Float => Some(Type::Double),
                schema::Type::Time | schema::Type::MicroTime => Some(Type::Timestamp),
                schema::Type::IntOrString => Some(Type::Dyn),
                schema::Type::List { .. } => list(),
                schema::Type::Map(_) => map(),
                schema::Type::Object(_) | schema::Type::Raw | schema::Type::Fields => object(),
                // Their schemas have no type of their own, so that expressions do not see them.
                schema::Type::Quantity
                | schema::Type::Json
                | schema::Type::Any
                | schema::Type::SchemaOrArray
                | schema::Type::SchemaOrBool
                | schema::Type::SchemaOrStrings => None,
            },
            Place::Published { schema, .. } => {
                let format = schema.str_at(&["format"]);
                if flag(schema, "x-kubernetes-int-or-string") || format == "int-or-string" {
                    return Some(Type::Dyn);
                }
                match (schema.str_at(&["type"]), format) {
                    ("array", _) => list(),
                    ("object", _) if self.entry(place).is_some() => map(),
                    ("object", _) => object(),
                    ("string", "byte") => Some(Type::Bytes),
                    ("string", "duration") => Some(Type::Duration),
                    ("string", "date" | "date-time") => Some(Type::Timestamp),
                    ("string", _) => Some(Type::String),
                    ("boolean", _) => Some(Type::Bool),
                    ("number", _) => Some(Type::Double),
                    ("integer", _) => Some(Type::Int),
                    _ => None,
                }
            }
        }
    }
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool) == Some(true)
}

impl TypeProvider for KindTypes {
    fn has_type(&self, name: &str) -> bool {
        let place = self.named(name);
        let of = place.and_then(|place| self.declared(place, name, 0));
        matches!(of, Some(Type::Object(_)))
    }

    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        let place = self.property(self.named(type_name)?, field)?;
        self.declared(place, &format!("{type_name}.{field}"), 0)
    }

    fn fields(&self, type_name: &str) -> Vec<Name> {
        let mut all: Vec<Name> = Vec::new();
        let mut add = |name: &str| all.extend(names::escape(name).map(|name| Name::from(&*name)));
        match self.named(type_name) {
            Some(Place::BuiltIn(shape)) => {
                let properties = shape
                    .definition()
                    .map_or(&[][..], |known| &known.properties);
                properties.iter().for_each(|property| add(property.name));
            }
            Some(Place::Published { schema, .. }) => {
                for (name, _) in schema.fields_at(&["properties"]) {
                    add(name);
                }
            }
            _ => {}
        }
        all
    }
}
