//! Documents to protobuf. Go's generated code decides what is written: a field without a pointer
//! always, even its zero value; a pointer, a list, a map or bytes only when they are there.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use super::wire::Writer;
use crate::document::Value;
use crate::schema::{Definition, Field, JSON_SCHEMA, Type, table};

/// Writes the fields of an object in the order of their numbers.
pub(super) fn message(writer: &mut Writer, definition: &Definition, object: &Value) {
    for field in definition.by_number() {
        let Some((number, _)) = field.protobuf else {
            continue;
        };
        if let (true, Type::Object(index)) = (field.inline, &field.kind) {
            // In JSON its fields are among ours.
            writer.message(number, |inner| message(inner, table().at(*index), object));
            continue;
        }
        match object.get(field.name) {
            Some(value) if !value.is_null() => present(writer, number, &field.kind, value),
            _ => absent(writer, number, field),
        }
    }
}

fn present(writer: &mut Writer, number: u32, kind: &Type, value: &Value) {
    match (kind, value) {
        (
            Type::List {
                item,
                wrapped: false,
            },
            Value::Array(values),
        ) => {
            for value in values {
                single(writer, number, item, value);
            }
        }
        (Type::Map(item), Value::Object(fields)) => {
            for (name, value) in fields.iter() {
                writer.message(number, |entry| {
                    entry.bytes(1, name.as_bytes());
                    single(entry, 2, item, value);
                });
            }
        }
        _ => single(writer, number, kind, value),
    }
}

/// What Go writes for a field that is not set.
fn absent(writer: &mut Writer, number: u32, field: &Field) {
    if field.pointer {
        return;
    }
    match &field.kind {
        Type::List { wrapped: false, .. } | Type::Map(_) | Type::Bytes => {}
        Type::String => writer.bytes(number, b""),
        Type::Bool | Type::Int32 | Type::Int64 => writer.integer(number, 0),
        Type::Float => writer.fixed64(number, 0.0),
        Type::Quantity => single(writer, number, &field.kind, &"0".into()),
        Type::IntOrString => single(writer, number, &field.kind, &0.into()),
        Type::Object(index) => {
            writer.message(number, |inner| {
                message(inner, table().at(*index), &Value::Null)
            });
        }
        // A zero time and an empty raw value are messages without content.
        _ => writer.bytes(number, b""),
    }
}

/// One value that is neither list nor map.
fn single(writer: &mut Writer, number: u32, kind: &Type, value: &Value) {
    match kind {
        Type::String => writer.bytes(number, value.as_str().unwrap_or_default().as_bytes()),
        Type::Bool => writer.integer(number, value.as_bool().unwrap_or_default().into()),
        Type::Int32 | Type::Int64 => writer.integer(number, value.as_i64().unwrap_or_default()),
        Type::Float => writer.fixed64(number, float(value)),
        Type::Bytes => {
            let text = value.as_str().unwrap_or_default();
            writer.bytes(number, &STANDARD.decode(text).unwrap_or_default());
        }
        Type::Time | Type::MicroTime => writer.message(number, |inner| time(inner, kind, value)),
        Type::Duration => writer.message(number, |inner| {
            inner.integer(1, value.as_i64().unwrap_or_default());
        }),
        Type::Quantity => writer.message(number, |inner| {
            inner.bytes(1, value.as_str().unwrap_or_default().as_bytes());
        }),
        Type::IntOrString => writer.message(number, |inner| {
            let text = value.as_str();
            inner.integer(1, text.is_some().into());
            inner.integer(2, value.as_i64().unwrap_or_default());
            inner.bytes(3, text.unwrap_or_default().as_bytes());
        }),
        Type::Raw | Type::Fields | Type::Json | Type::Any => writer.message(number, |inner| {
            if !value.is_null() {
                inner.bytes(1, &value.to_json());
            }
        }),
        Type::SchemaOrArray => writer.message(number, |inner| match value {
            Value::Array(schemas) => schemas.iter().for_each(|value| schema(inner, 2, value)),
            value => schema(inner, 1, value),
        }),
        Type::SchemaOrBool => writer.message(number, |inner| match value {
            Value::Bool(flag) => inner.integer(1, (*flag).into()),
            value => {
                inner.integer(1, 1);
                schema(inner, 2, value);
            }
        }),
        Type::SchemaOrStrings => writer.message(number, |inner| match value {
            Value::Array(names) => present(inner, 2, &STRINGS, &Value::Array(names.clone())),
            value => schema(inner, 1, value),
        }),
        Type::Object(index) => {
            writer.message(number, |inner| message(inner, table().at(*index), value));
        }
        Type::List { item, .. } => writer.message(number, |inner| {
            for value in value.as_array().into_iter().flatten() {
                single(inner, 1, item, value);
            }
        }),
        // No list of maps and no map of maps exists.
        Type::Map(_) => {}
    }
}

/// Seconds and nanoseconds; plain times have whole seconds.
fn time(writer: &mut Writer, kind: &Type, value: &Value) {
    let Some(moment) = value
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok())
    else {
        return;
    };
    let mut nanoseconds = i64::from(moment.subsec_nanosecond());
    let mut seconds = moment.as_second();
    if nanoseconds < 0 {
        seconds -= 1;
        nanoseconds += 1_000_000_000;
    }
    writer.integer(1, seconds);
    writer.integer(
        2,
        if *kind == Type::MicroTime {
            nanoseconds
        } else {
            0
        },
    );
}

fn schema(writer: &mut Writer, number: u32, value: &Value) {
    if let Some(definition) = table().definition(JSON_SCHEMA) {
        writer.message(number, |inner| message(inner, definition, value));
    }
}

fn float(value: &Value) -> f64 {
    match value {
        Value::Float(number) => *number,
        other => other.as_i64().unwrap_or_default() as f64,
    }
}

static STRINGS: std::sync::LazyLock<Type> = std::sync::LazyLock::new(|| Type::List {
    item: Box::new(Type::String),
    wrapped: false,
});
