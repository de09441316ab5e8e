//! Protobuf to documents. Unknown fields are skipped, as by any protobuf reader.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Error;
use super::wire::{Payload, Reader};
use crate::document::{MAX_DEPTH, Object, Value};
use crate::quantity::Quantity;
use crate::schema::{Definition, JSON_SCHEMA, Type, table};

/// Decodes a message. `depth` is how many messages stand around it, embedded objects included: only
/// schemas and embedded objects nest without end.
pub(super) fn message(
    bytes: &[u8],
    definition: &'static Definition,
    depth: usize,
) -> Result<Value, Error> {
    let mut filled = Filled::default();
    into(&mut filled, bytes, definition, depth)?;
    let mut object = filled.object;
    for (name, fields) in filled.maps {
        object.insert(name, Object::from_fields(fields));
    }
    Ok(Value::Object(object))
}

/// The fields of an object that have been read. The entries of maps come one by one, in any order;
/// they are sorted when all are there.
#[derive(Default)]
struct Filled {
    object: Object,
    maps: BTreeMap<&'static str, Vec<(String, Value)>>,
}

/// Inlined messages fill the object around them.
fn into(
    filled: &mut Filled,
    bytes: &[u8],
    definition: &'static Definition,
    depth: usize,
) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next(definition.name)? {
        let Some(field) = definition.numbered(number) else {
            continue;
        };
        match &field.kind {
            Type::Object(index) if field.inline => {
                let inner = payload.bytes(definition.name)?;
                into(filled, inner, table().at(*index), depth + 1)?;
            }
            Type::List {
                item,
                wrapped: false,
            } => {
                let mut values = Vec::new();
                match (&payload, &**item) {
                    // Numbers may come packed.
                    (Payload::Bytes(packed), Type::Bool | Type::Int32 | Type::Int64) => {
                        let mut numbers = Reader::new(packed);
                        while numbers.left() > 0 {
                            let number = Payload::Varint(numbers.varint()?);
                            values.push(single(&number, item, definition, depth)?);
                        }
                    }
                    _ => values.push(single(&payload, item, definition, depth)?),
                }
                match filled.object.entry(field.name) {
                    Value::Array(items) => items.extend(values),
                    slot => *slot = Value::Array(values),
                }
            }
            Type::Map(item) => {
                let bytes = payload.bytes(definition.name)?;
                let entry = entry(bytes, item, definition, depth)?;
                filled.maps.entry(field.name).or_default().push(entry);
            }
            kind => {
                let value = single(&payload, kind, definition, depth)?;
                filled.object.insert(field.name, value);
            }
        }
    }
    Ok(())
}

fn entry(
    bytes: &[u8],
    item: &Type,
    definition: &'static Definition,
    depth: usize,
) -> Result<(String, Value), Error> {
    let (mut key, mut value) = (String::new(), None);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next(definition.name)? {
        match number {
            1 => key = text(payload.bytes(definition.name)?),
            2 => value = Some(single(&payload, item, definition, depth)?),
            _ => {}
        }
    }
    // A value that was left out is the zero of its type.
    let value = match value {
        Some(value) => value,
        None => single(&Payload::Bytes(b""), item, definition, depth)?,
    };
    Ok((key, value))
}

fn single(
    payload: &Payload<'_>,
    kind: &Type,
    definition: &'static Definition,
    depth: usize,
) -> Result<Value, Error> {
    let name = definition.name;
    Ok(match kind {
        Type::String => Value::String(text(payload.bytes(name)?)),
        Type::Bool => Value::Bool(payload.varint(name)? != 0),
        Type::Int32 => Value::Integer(i64::from(payload.varint(name)? as i32)),
        Type::Int64 => Value::Integer(payload.varint(name)? as i64),
        Type::Float => match payload {
            Payload::Fixed64(bits) => float(f64::from_bits(*bits)),
            _ => return Err(Error::Malformed { definition: name }),
        },
        Type::Bytes => Value::String(STANDARD.encode(payload.bytes(name)?)),
        Type::Time | Type::MicroTime => time(payload.bytes(name)?, kind, name)?,
        Type::Duration => Value::Integer(parts(payload.bytes(name)?, name)?.numbers[0]),
        Type::Quantity => {
            let written = parts(payload.bytes(name)?, name)?.texts[0].unwrap_or_default();
            match String::from_utf8_lossy(written).as_ref() {
                "" => "0".into(),
                text => Quantity::parse(text)
                    .map_err(|error| Error::Value(error.to_string()))?
                    .to_string()
                    .into(),
            }
        }
        Type::IntOrString => {
            let parts = parts(payload.bytes(name)?, name)?;
            match parts.numbers[0] {
                0 => Value::Integer(i64::from(parts.numbers[1] as i32)),
                _ => Value::String(text(parts.texts[2].unwrap_or_default())),
            }
        }
        Type::Raw | Type::Fields | Type::Json | Type::Any => {
            match parts(payload.bytes(name)?, name)?.texts[0] {
                None => Value::Null,
                Some(raw) if raw.starts_with(super::MAGIC) => super::decode_within(raw, depth + 1)?,
                Some(raw) => {
                    Value::from_json(raw).map_err(|error| Error::Value(error.to_string()))?
                }
            }
        }
        Type::SchemaOrArray | Type::SchemaOrBool | Type::SchemaOrStrings => {
            schema_or(payload.bytes(name)?, kind, name, depth)?
        }
        Type::Object(index) => message(payload.bytes(name)?, table().at(*index), depth + 1)?,
        Type::List { item, .. } => {
            let mut values = Vec::new();
            let mut reader = Reader::new(payload.bytes(name)?);
            while let Some((_, payload)) = reader.next(name)? {
                values.push(single(&payload, item, definition, depth)?);
            }
            // Go cannot distinguish an empty one from none.
            match values.is_empty() {
                true => Value::Null,
                false => Value::Array(values),
            }
        }
        Type::Map(_) => return Err(Error::Malformed { definition: name }),
    })
}

/// The JSON schema positions that allow two forms.
fn schema_or(bytes: &[u8], kind: &Type, name: &'static str, depth: usize) -> Result<Value, Error> {
    let definition = table()
        .definition(JSON_SCHEMA)
        .ok_or(Error::Malformed { definition: name })?;
    let (mut schema, mut items, mut allows) = (None, Vec::new(), false);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next(name)? {
        match (kind, number) {
            (Type::SchemaOrBool, 1) => allows = payload.varint(name)? != 0,
            (Type::SchemaOrBool, 2) | (Type::SchemaOrArray | Type::SchemaOrStrings, 1) => {
                schema = Some(message(payload.bytes(name)?, definition, depth + 1)?);
            }
            (Type::SchemaOrArray, 2) => {
                items.push(message(payload.bytes(name)?, definition, depth + 1)?);
            }
            (Type::SchemaOrStrings, 2) => items.push(text(payload.bytes(name)?).into()),
            _ => {}
        }
    }
    Ok(match (schema, kind) {
        (Some(schema), _) => schema,
        (None, Type::SchemaOrBool) => Value::Bool(allows),
        (None, _) if items.is_empty() => Value::Null,
        (None, _) => Value::Array(items),
    })
}

/// The first three fields of a small message: all that the special types have.
#[derive(Default)]
struct Parts<'a> {
    numbers: [i64; 3],
    texts: [Option<&'a [u8]>; 3],
}

fn parts<'a>(bytes: &'a [u8], name: &'static str) -> Result<Parts<'a>, Error> {
    let mut parts = Parts::default();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next(name)? {
        let index = number as usize - 1;
        match payload {
            Payload::Varint(number) if index < 3 => parts.numbers[index] = number as i64,
            Payload::Bytes(bytes) if index < 3 => parts.texts[index] = Some(bytes),
            _ => {}
        }
    }
    Ok(parts)
}

/// A message without content is the zero time, which JSON shows as `null`.
fn time(bytes: &[u8], kind: &Type, name: &'static str) -> Result<Value, Error> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let [seconds, nanoseconds, _] = parts(bytes, name)?.numbers;
    let invalid = |error: jiff::Error| Error::Value(error.to_string());
    let (nanoseconds, format) = match kind {
        Type::MicroTime => (nanoseconds as i32, "%Y-%m-%dT%H:%M:%S.%6fZ"),
        _ => (0, "%Y-%m-%dT%H:%M:%SZ"),
    };
    let moment = Timestamp::new(seconds, nanoseconds).map_err(invalid)?;
    Ok(moment
        .to_zoned(TimeZone::UTC)
        .strftime(format)
        .to_string()
        .into())
}

/// Go writes whole floats without a fraction.
fn float(number: f64) -> Value {
    match number.fract() == 0.0 && number.abs() < 9e15 {
        true => Value::Integer(number as i64),
        false => Value::Float(number),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
