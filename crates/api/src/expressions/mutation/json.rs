//! Values of expressions as documents, for the objects and patches that mutations make.
//!
//! An expression can make a value that is small in memory and huge when it is written down, because its
//! parts are shared. What is written is bounded in depth and size.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cel::duration;
use cel::value::{HostKind, HostValue, Object, Value};

use crate::document::{self, MAX_DEPTH};

/// About the largest document that one request can bring (upstream's limit of a body).
const MOST_BYTES: usize = 3 << 20;
/// What an item or field counts beside its text.
const PER_NODE: usize = 4;
/// The largest whole number that every reader of JSON reads as it is; larger ones are text.
const LARGEST_SAFE: u64 = (1 << 53) - 1;

/// Why a value cannot be written as a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotJson {
    #[error("unsupported type conversion: {0}")]
    Type(String),
    #[error("map key of type {0}, not string")]
    Key(String),
    #[error("exceeded max depth of {MAX_DEPTH}")]
    TooDeep,
    #[error("the value is larger than {MOST_BYTES} bytes")]
    TooLarge,
}

/// A value that was written down.
pub struct Written {
    pub document: document::Value,
    /// The objects whose types do not say where they are.
    pub mismatches: Vec<String>,
}

/// How values that are none of JSON are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Refused.
    Plain,
    /// As protocol buffers do it: times, durations and bytes as text, large numbers too.
    Protobuf,
}

/// What may still be written for one mutation.
pub struct Budget(usize);

impl Default for Budget {
    fn default() -> Budget {
        Budget(MOST_BYTES)
    }
}

impl Budget {
    pub fn charge(&mut self, bytes: usize) -> Result<(), NotJson> {
        self.0 = self.0.checked_sub(bytes).ok_or(NotJson::TooLarge)?;
        Ok(())
    }
}

pub fn written(value: &Value<'_>, rules: Rules, budget: &mut Budget) -> Result<Written, NotJson> {
    let mut writer = Writer {
        rules,
        path: match value {
            Value::Object(object) => Some(object.type_name.to_string()),
            _ => None,
        },
        budget,
        mismatches: Vec::new(),
    };
    let document = writer.value(value, 0)?;
    Ok(Written {
        document,
        mismatches: writer.mismatches,
    })
}

struct Writer<'b> {
    rules: Rules,
    /// The type that an object must have here, where types are checked.
    path: Option<String>,
    budget: &'b mut Budget,
    mismatches: Vec<String>,
}

impl Writer<'_> {
    /// The depth is bounded, so that this ends well before the stack does.
    fn value(&mut self, value: &Value<'_>, depth: usize) -> Result<document::Value, NotJson> {
        if depth > MAX_DEPTH {
            return Err(NotJson::TooDeep);
        }
        self.budget.charge(PER_NODE)?;
        let is_protobuf = self.rules == Rules::Protobuf;
        Ok(match value {
            Value::Null => document::Value::Null,
            Value::Bool(value) => document::Value::Bool(*value),
            Value::Int(number) if is_protobuf && number.unsigned_abs() > LARGEST_SAFE => {
                number.to_string().into()
            }
            Value::Int(number) => document::Value::Integer(*number),
            Value::Uint(number) if is_protobuf && *number > LARGEST_SAFE => {
                number.to_string().into()
            }
            Value::Uint(number) => match i64::try_from(*number) {
                Ok(number) => document::Value::Integer(number),
                Err(_) => document::Value::Float(*number as f64),
            },
            Value::Double(number) if number.is_finite() => document::Value::Float(*number),
            Value::String(text) => {
                self.budget.charge(text.len())?;
                (**text).into()
            }
            Value::Bytes(bytes) if is_protobuf => {
                self.budget.charge(bytes.len())?;
                STANDARD.encode(&**bytes).into()
            }
            Value::Duration(nanoseconds) if is_protobuf => {
                duration::in_seconds(*nanoseconds).into()
            }
            Value::Timestamp(time) if is_protobuf => time.to_string().into(),
            Value::List(items) => {
                let items = items.iter().map(|item| self.value(item, depth + 1));
                document::Value::Array(items.collect::<Result<_, _>>()?)
            }
            Value::Map(entries) => {
                let mut fields = document::Object::default();
                for (key, value) in entries.iter() {
                    let Value::String(key) = key else {
                        return Err(NotJson::Key(type_name(key)));
                    };
                    self.budget.charge(key.len())?;
                    fields.insert(key.to_string(), self.value(value, depth + 1)?);
                }
                document::Value::Object(fields)
            }
            Value::Object(object) => self.object(object, depth)?,
            Value::Host(host) => self.host(host, depth)?,
            Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
            | Value::Double(_)
            | Value::Optional(_)
            | Value::Type(_)
            | Value::Opaque(_) => return Err(NotJson::Type(type_name(value))),
        })
    }

    fn object(&mut self, object: &Object<'_>, depth: usize) -> Result<document::Value, NotJson> {
        if let Some(expected) = self
            .path
            .as_deref()
            .filter(|path| **path != *object.type_name)
        {
            self.mismatches.push(format!(
                "unexpected type name {:?}, expected {expected:?}, which matches field name path from root Object type",
                &*object.type_name
            ));
        }
        let mut fields = document::Object::default();
        for (name, value) in object.fields() {
            self.budget.charge(name.len())?;
            let outer = self.path.as_ref().map(String::len);
            if let Some(path) = &mut self.path {
                path.push('.');
                path.push_str(name);
            }
            let written = self.value(value, depth + 1)?;
            if let (Some(path), Some(outer)) = (&mut self.path, outer) {
                path.truncate(outer);
            }
            fields.insert(name.to_string(), written);
        }
        Ok(document::Value::Object(fields))
    }

    fn host(&mut self, host: &HostValue<'_>, depth: usize) -> Result<document::Value, NotJson> {
        let (shape, data) = (host.shape, host.data);
        let count = shape.len(data);
        if shape.kind(data) == HostKind::List {
            let items = (0..count).filter_map(|index| shape.at(data, index));
            let items = items.map(|item| self.value(&item, depth + 1));
            return Ok(document::Value::Array(items.collect::<Result<_, _>>()?));
        }
        let mut fields = document::Object::default();
        for index in 0..count {
            let (Some(key), Some(value)) = (shape.key_at(data, index), shape.at(data, index))
            else {
                continue;
            };
            self.budget.charge(key.len())?;
            fields.insert(key.to_string(), self.value(&value, depth + 1)?);
        }
        Ok(document::Value::Object(fields))
    }
}

pub fn type_name(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null_type",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Uint(_) => "uint",
        Value::Double(_) => "double",
        Value::String(_) => "string",
        Value::Bytes(_) => "bytes",
        Value::Duration(_) => "google.protobuf.Duration",
        Value::Timestamp(_) => "google.protobuf.Timestamp",
        Value::List(_) => "list",
        Value::Map(_) | Value::Host(_) => "map",
        Value::Object(object) => &object.type_name,
        Value::Optional(_) => "optional_type",
        Value::Type(_) => "type",
        Value::Opaque(value) => return value.type_of().name().to_string(),
    }
    .to_string()
}
