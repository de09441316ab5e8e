//! Documents without a schema as values of expressions, read in place: what is known of them is known
//! when the expression runs.

use std::any::Any;

use cel::types::Type;
use cel::value::{HostKind, HostValue, Shape, Value};

use crate::document;

type Data = dyn Any + Send + Sync;

struct Dynamic;

/// A document as a value.
pub fn dynamic(value: &document::Value) -> Value<'_> {
    match value {
        document::Value::Null => Value::Null,
        document::Value::Bool(is) => Value::Bool(*is),
        document::Value::Integer(number) => Value::Int(*number),
        document::Value::Float(number) => Value::Double(*number),
        document::Value::String(text) => Value::from(text.as_str()),
        document::Value::Array(_) | document::Value::Object(_) => Value::Host(HostValue {
            data: value,
            shape: &Dynamic,
        }),
    }
}

fn of(data: &Data) -> Option<&document::Value> {
    data.downcast_ref()
}

impl Shape for Dynamic {
    fn kind(&self, data: &Data) -> HostKind {
        match of(data) {
            Some(document::Value::Array(_)) => HostKind::List,
            _ => HostKind::Map,
        }
    }

    fn type_of(&self, data: &Data) -> Type {
        match of(data) {
            Some(document::Value::Array(_)) => Type::list(Type::Dyn),
            _ => Type::map(Type::Dyn, Type::Dyn),
        }
    }

    fn len(&self, data: &Data) -> usize {
        match of(data) {
            Some(document::Value::Array(items)) => items.len(),
            Some(document::Value::Object(fields)) => fields.len(),
            _ => 0,
        }
    }

    fn at<'a>(&'a self, data: &'a Data, index: usize) -> Option<Value<'a>> {
        match of(data)? {
            document::Value::Array(items) => items.get(index).map(dynamic),
            document::Value::Object(fields) => fields.at(index).map(|(_, value)| dynamic(value)),
            _ => None,
        }
    }

    fn key_at<'a>(&'a self, data: &'a Data, index: usize) -> Option<&'a str> {
        let fields = of(data)?.as_object()?;
        fields.at(index).map(|(name, _)| name)
    }

    fn get<'a>(&'a self, data: &'a Data, key: &str) -> Option<Value<'a>> {
        of(data)?.get(key).map(dynamic)
    }
}
