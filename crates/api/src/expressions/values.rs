//! Documents as values of expressions, read in place by their structural schema.

use std::any::Any;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cel::EvalError;
use cel::timestamp::Timestamp;
use cel::types::Type;
use cel::value::{HostKind, HostValue, ListType, Opaque, Shape, Value};

use super::{names, types};
use crate::custom::{self, Kind, Node};
use crate::document;

type Data = dyn Any + Send + Sync;

/// The root of a resource, whose type and metadata are there even if the schema does not say so.
pub struct Root<'n>(pub &'n Node);

/// The metadata of a resource whose schema does not declare it.
struct Metadata;

/// A value that no schema describes: it can be compared and nothing else.
#[derive(Debug)]
struct Preserved(document::Value);

/// A document as its schema says it is.
pub fn value_of<'a>(node: &'a Node, value: &'a document::Value) -> Result<Value<'a>, EvalError> {
    if value.is_null() {
        return match node.is_nullable() {
            true => Ok(Value::Null),
            false => Err(message(
                "invalid data, got null for schema with nullable=false",
            )),
        };
    }
    if node.is_int_or_string() {
        return match value {
            document::Value::String(text) => Ok(Value::from(text.as_str())),
            document::Value::Integer(number) => Ok(Value::Int(*number)),
            _ => Err(message(
                "invalid data, expected XIntOrString value to be either a string or integer",
            )),
        };
    }
    match (node.kind(), value) {
        (Kind::Object, document::Value::Object(_)) | (Kind::Array, document::Value::Array(_)) => {
            Ok(Value::Host(HostValue {
                data: value,
                shape: node,
            }))
        }
        (Kind::Object, _) => Err(message(
            "invalid data, expected a map for the provided schema with type=object",
        )),
        (Kind::Array, _) => Err(message(
            "invalid data, expected an array for the provided schema with type=array",
        )),
        (Kind::String, document::Value::String(text)) => formatted(node.format(), text),
        (Kind::Number, document::Value::Integer(number)) => Ok(Value::Double(*number as f64)),
        (Kind::Number, document::Value::Float(number)) => Ok(Value::Double(*number)),
        (Kind::Integer, document::Value::Integer(number)) => Ok(Value::Int(*number)),
        (Kind::Boolean, document::Value::Bool(is)) => Ok(Value::Bool(*is)),
        (Kind::Any, _) => Ok(preserved(value)),
        (kind, _) => Err(message(match kind {
            Kind::String => "invalid data, expected string",
            Kind::Number => "invalid data, expected float",
            Kind::Integer => "invalid data, expected int",
            _ => "invalid data, expected bool",
        })),
    }
}

/// The whole resource.
pub fn root_value<'a>(root: &'a Root<'a>, value: &'a document::Value) -> Value<'a> {
    match value {
        document::Value::Object(_) => Value::Host(HostValue {
            data: value,
            shape: root,
        }),
        _ => value_of(root.0, value).unwrap_or_default(),
    }
}

/// A text by its format.
fn formatted<'a>(format: &str, text: &'a str) -> Result<Value<'a>, EvalError> {
    match format {
        "duration" => match custom::duration(text) {
            Some(nanoseconds) => Ok(Value::Duration(nanoseconds)),
            None => Err(message(format!("Invalid duration {text}"))),
        },
        "date" => match Timestamp::parse(&format!("{text}T00:00:00Z")) {
            Some(time) => Ok(Value::Timestamp(time)),
            None => Err(message(format!("Invalid date formatted string {text}"))),
        },
        "date-time" => match Timestamp::parse(&text.to_uppercase()) {
            Some(time) => Ok(Value::Timestamp(time)),
            None => Err(message(format!(
                "Invalid date-time formatted string {text}"
            ))),
        },
        "byte" => match STANDARD.decode(text) {
            Ok(octets) => Ok(Value::from(octets)),
            Err(_) => Err(message(format!("Invalid byte formatted string {text}"))),
        },
        _ => Ok(Value::from(text)),
    }
}

fn message(text: impl Into<String>) -> EvalError {
    EvalError::Message(text.into())
}

fn preserved<'a>(value: &document::Value) -> Value<'a> {
    Value::Opaque(Arc::new(Preserved(value.clone())))
}

impl Opaque for Preserved {
    fn type_of(&self) -> Type {
        Type::Dyn
    }

    fn equals(&self, other: &Value<'_>) -> Option<bool> {
        let Value::Opaque(other) = other else {
            return Some(false);
        };
        let other = other.as_any().downcast_ref::<Preserved>();
        Some(other.is_some_and(|other| other.0 == self.0))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn object(data: &Data) -> Option<&document::Object> {
    data.downcast_ref::<document::Value>()?.as_object()
}

fn items(data: &Data) -> &[document::Value] {
    let value = data.downcast_ref::<document::Value>();
    value
        .and_then(document::Value::as_array)
        .map_or(&[], |items| items.as_slice())
}

/// The value of a field that is present, whatever it is. Null where nothing may be null is no value.
fn field_value<'a>(
    node: Option<&'a Arc<Node>>,
    value: &'a document::Value,
) -> Result<Value<'a>, EvalError> {
    match node {
        Some(node) => value_of(node, value),
        None => Ok(preserved(value)),
    }
}

impl Shape for Node {
    fn kind(&self, _data: &Data) -> HostKind {
        match self.kind() {
            Kind::Array => HostKind::List,
            _ if self.additional_schema().is_some() => HostKind::Map,
            _ => HostKind::Object,
        }
    }

    fn type_of(&self, _data: &Data) -> Type {
        match self.kind() {
            Kind::Array => Type::list(Type::Dyn),
            _ => Type::map(Type::Dyn, Type::Dyn),
        }
    }

    fn len(&self, data: &Data) -> usize {
        match object(data) {
            Some(fields) => fields.len(),
            None => items(data).len(),
        }
    }

    fn at<'a>(&'a self, data: &'a Data, index: usize) -> Option<Value<'a>> {
        if let Some(fields) = object(data) {
            let (name, value) = fields.at(index)?;
            let node = self.property(name).or_else(|| self.additional_schema());
            return field_value(node, value).ok();
        }
        let value = items(data).get(index)?;
        value_of(self.items()?, value).ok()
    }

    fn key_at<'a>(&'a self, data: &'a Data, index: usize) -> Option<&'a str> {
        object(data)?.at(index).map(|(name, _)| name)
    }

    fn get<'a>(&'a self, data: &'a Data, key: &str) -> Option<Value<'a>> {
        self.try_get(data, key).ok().flatten()
    }

    fn try_get<'a>(&'a self, data: &'a Data, key: &str) -> Result<Option<Value<'a>>, EvalError> {
        if self.is_embedded_resource() {
            return root_field(self, data, key);
        }
        own_field(self, data, key)
    }

    fn list_type(&self) -> ListType<'_> {
        match self.list_type() {
            custom::ListType::Set => ListType::Set,
            custom::ListType::Map => ListType::Map(self.list_map_keys()),
            _ => ListType::Atomic,
        }
    }
}

fn own_field<'a>(
    node: &'a Node,
    data: &'a Data,
    key: &str,
) -> Result<Option<Value<'a>>, EvalError> {
    let Some(fields) = object(data) else {
        return Ok(None);
    };
    if let Some(entry) = node.additional_schema() {
        return fields
            .get(key)
            .map(|value| value_of(entry, value))
            .transpose();
    }
    let Some(name) = names::unescape(key) else {
        return Ok(None);
    };
    let value = fields.get(&name);
    value
        .map(|value| field_value(node.property(&name), value))
        .transpose()
}

fn root_field<'a>(
    node: &'a Node,
    data: &'a Data,
    key: &str,
) -> Result<Option<Value<'a>>, EvalError> {
    let is_implied = matches!(key, "apiVersion" | "kind" | "metadata");
    if !is_implied || types::declares_metadata(node) {
        return own_field(node, data, key);
    }
    let Some(value) = object(data).and_then(|fields| fields.get(key)) else {
        return Ok(None);
    };
    Ok(match value {
        document::Value::String(text) => Some(Value::from(text.as_str())),
        document::Value::Object(_) => Some(Value::Host(HostValue {
            data: value,
            shape: &Metadata,
        })),
        _ => None,
    })
}

impl Shape for Root<'_> {
    fn kind(&self, _data: &Data) -> HostKind {
        HostKind::Object
    }

    fn type_of(&self, data: &Data) -> Type {
        self.0.type_of(data)
    }

    fn len(&self, data: &Data) -> usize {
        Shape::len(self.0, data)
    }

    fn at<'a>(&'a self, data: &'a Data, index: usize) -> Option<Value<'a>> {
        let name = self.0.key_at(data, index)?;
        let known = root_field(self.0, data, &names::escape(name)?)
            .ok()
            .flatten();
        known.or_else(|| self.0.at(data, index))
    }

    fn key_at<'a>(&'a self, data: &'a Data, index: usize) -> Option<&'a str> {
        self.0.key_at(data, index)
    }

    fn get<'a>(&'a self, data: &'a Data, key: &str) -> Option<Value<'a>> {
        self.try_get(data, key).ok().flatten()
    }

    fn try_get<'a>(&'a self, data: &'a Data, key: &str) -> Result<Option<Value<'a>>, EvalError> {
        root_field(self.0, data, key)
    }
}

impl Shape for Metadata {
    fn kind(&self, _data: &Data) -> HostKind {
        HostKind::Object
    }

    fn type_of(&self, _data: &Data) -> Type {
        Type::map(Type::Dyn, Type::Dyn)
    }

    fn len(&self, data: &Data) -> usize {
        object(data).map_or(0, |fields| fields.len())
    }

    fn at<'a>(&'a self, data: &'a Data, index: usize) -> Option<Value<'a>> {
        let (name, value) = object(data)?.at(index)?;
        self.get(data, name).or_else(|| Some(preserved(value)))
    }

    fn key_at<'a>(&'a self, data: &'a Data, index: usize) -> Option<&'a str> {
        object(data)?.at(index).map(|(name, _)| name)
    }

    fn get<'a>(&'a self, data: &'a Data, key: &str) -> Option<Value<'a>> {
        let value = object(data)?.get(key)?;
        match (key, value) {
            ("name" | "generateName", document::Value::String(text)) => {
                Some(Value::from(text.as_str()))
            }
            _ => Some(preserved(value)),
        }
    }
}
