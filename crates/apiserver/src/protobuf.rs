//! Reads `application/vnd.kubernetes.protobuf` bodies into documents by the type table, as clients
//! such as kubectl send them. Answers are JSON, which such clients accept too.

use api::Value;
use api::schema::{Definition, Field, Type, table};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What precedes the envelope.
const MAGIC: &[u8] = b"k8s\0";
/// Messages nested deeper than this are refused.
const DEPTH: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    Prefix,
    #[error("unexpected EOF")]
    Short,
    #[error("proto: illegal wireType {0}")]
    WireType(u64),
    #[error("proto: nested too deeply")]
    Depth,
    #[error("proto: invalid UTF-8 or JSON inside")]
    Content,
}

/// The object inside the envelope, with the apiVersion and kind the envelope names; `definition`
/// is what it is read as.
pub(crate) fn decode(body: &[u8], definition: &Definition) -> Result<Value, Error> {
    let mut envelope = Reader(body.strip_prefix(MAGIC).ok_or(Error::Prefix)?);
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    while let Some((number, content)) = envelope.next()? {
        match (number, content) {
            (1, Content::Bytes(bytes)) => {
                let mut names = Reader(bytes);
                while let Some((number, content)) = names.next()? {
                    match (number, content) {
                        (1, Content::Bytes(bytes)) => api_version = text(bytes)?,
                        (2, Content::Bytes(bytes)) => kind = text(bytes)?,
                        _ => {}
                    }
                }
            }
            (2, Content::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let mut object = Value::object();
    message(raw, definition, &mut object, 0)?;
    object.set(&["apiVersion"], api_version);
    object.set(&["kind"], kind);
    Ok(object)
}

/// Reads a message's fields into `object`.
fn message(
    bytes: &[u8],
    definition: &Definition,
    object: &mut Value,
    depth: usize,
) -> Result<(), Error> {
    if depth > DEPTH {
        return Err(Error::Depth);
    }
    let mut reader = Reader(bytes);
    while let Some((number, content)) = reader.next()? {
        let field = definition.fields.iter().find(|field| {
            field
                .protobuf
                .is_some_and(|(known, _)| u64::from(known) == number)
        });
        if let Some(field) = field {
            take(field, content, object, depth)?;
        }
    }
    Ok(())
}

fn take(
    field: &Field,
    content: Content<'_>,
    object: &mut Value,
    depth: usize,
) -> Result<(), Error> {
    if field.inline {
        // An inlined struct is a message of its own here.
        if let (Type::Object(index), Content::Bytes(bytes)) = (&field.kind, content) {
            message(bytes, table().at(*index), object, depth + 1)?;
        }
        return Ok(());
    }
    match &field.kind {
        Type::List {
            item,
            wrapped: false,
        } => {
            let mut items = match object.remove(&[field.name]) {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            };
            let is_number = matches!(**item, Type::Int32 | Type::Int64 | Type::Bool);
            match content {
                Content::Bytes(packed) if is_number => {
                    let mut reader = Reader(packed);
                    while !reader.0.is_empty() {
                        let number = reader.varint()?;
                        items.push(value(item, Content::Number(number), depth)?);
                    }
                }
                content => items.push(value(item, content, depth)?),
            }
            object.set(&[field.name], items);
        }
        Type::Map(item) => {
            let Content::Bytes(bytes) = content else {
                return Ok(());
            };
            let mut key = String::new();
            let mut entry = None;
            let mut reader = Reader(bytes);
            while let Some((number, content)) = reader.next()? {
                match (number, content) {
                    (1, Content::Bytes(bytes)) => key = text(bytes)?,
                    (2, content) => entry = Some(value(item, content, depth)?),
                    _ => {}
                }
            }
            let entry = match entry {
                Some(entry) => entry,
                None => value(item, Content::Bytes(&[]), depth)?,
            };
            object.set(&[field.name, &key], entry);
        }
        kind => {
            let value = value(kind, content, depth)?;
            object.set(&[field.name], value);
        }
    }
    Ok(())
}

fn value(kind: &Type, content: Content<'_>, depth: usize) -> Result<Value, Error> {
    Ok(match (kind, content) {
        (Type::Bool, Content::Number(number)) => Value::Bool(number != 0),
        (Type::Int32 | Type::Int64, Content::Number(number)) => Value::Integer(number as i64),
        (Type::Float, Content::Fixed(bits)) => Value::Float(f64::from_bits(bits)),
        (Type::String, Content::Bytes(bytes)) => text(bytes)?.into(),
        (Type::Bytes, Content::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Type::Time, Content::Bytes(bytes)) => time(bytes, false)?,
        (Type::MicroTime, Content::Bytes(bytes)) => time(bytes, true)?,
        (Type::Duration, Content::Bytes(bytes)) => {
            let nanoseconds = number(bytes, 1)?.unwrap_or(0) as i64;
            format!("{}s", nanoseconds as f64 / 1e9).into()
        }
        (Type::Quantity, Content::Bytes(bytes)) => match field_bytes(bytes, 1)? {
            Some(quantity) => text(quantity)?.into(),
            None => "0".into(),
        },
        (Type::IntOrString, Content::Bytes(bytes)) => match number(bytes, 1)?.unwrap_or(0) {
            0 => Value::Integer(number(bytes, 2)?.unwrap_or(0) as i32 as i64),
            _ => text(field_bytes(bytes, 3)?.unwrap_or_default())?.into(),
        },
        (Type::Raw | Type::Fields | Type::Json, Content::Bytes(bytes)) => {
            match field_bytes(bytes, 1)? {
                Some(json) if !json.is_empty() => {
                    Value::from_json(json).map_err(|_| Error::Content)?
                }
                _ => Value::Null,
            }
        }
        (Type::Object(index), Content::Bytes(bytes)) => {
            let mut object = Value::object();
            message(bytes, table().at(*index), &mut object, depth + 1)?;
            object
        }
        (Type::List { item, .. }, Content::Bytes(bytes)) => {
            // A list as an item of a map or list is a message with one repeated field.
            let mut items = Vec::new();
            let mut reader = Reader(bytes);
            while let Some((number, content)) = reader.next()? {
                if number == 1 {
                    items.push(value(item, content, depth + 1)?);
                }
            }
            items.into()
        }
        _ => Value::Null,
    })
}

fn text(bytes: &[u8]) -> Result<String, Error> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::Content)
}

fn time(bytes: &[u8], micro: bool) -> Result<Value, Error> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let seconds = number(bytes, 1)?.unwrap_or(0) as i64;
    let nanoseconds = number(bytes, 2)?.unwrap_or(0) as i32;
    let time = jiff::Timestamp::new(seconds, nanoseconds).map_err(|_| Error::Content)?;
    Ok(match micro {
        true => format!("{time:.6}").into(),
        false => crate::server::seconds_text(time).into(),
    })
}

fn number(bytes: &[u8], wanted: u64) -> Result<Option<u64>, Error> {
    let mut reader = Reader(bytes);
    let mut found = None;
    while let Some((number, content)) = reader.next()? {
        if let (true, Content::Number(value)) = (number == wanted, content) {
            found = Some(value);
        }
    }
    Ok(found)
}

fn field_bytes(bytes: &[u8], wanted: u64) -> Result<Option<&[u8]>, Error> {
    let mut reader = Reader(bytes);
    let mut found = None;
    while let Some((number, content)) = reader.next()? {
        if let (true, Content::Bytes(value)) = (number == wanted, content) {
            found = Some(value);
        }
    }
    Ok(found)
}

#[derive(Clone, Copy)]
enum Content<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(u64, Content<'a>)>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => Content::Number(self.varint()?),
            1 => Content::Fixed(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Error::Short)?;
                if length > self.0.len() {
                    return Err(Error::Short);
                }
                let (bytes, rest) = self.0.split_at(length);
                self.0 = rest;
                Content::Bytes(bytes)
            }
            5 => Content::Fixed(u32::from_le_bytes(self.array()?).into()),
            other => return Err(Error::WireType(other)),
        };
        Ok(Some((tag >> 3, content)))
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Error::Short)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Short)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (bytes, rest) = self.0.split_first_chunk::<N>().ok_or(Error::Short)?;
        self.0 = rest;
        Ok(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_config_map_and_refuses_what_is_cut() {
        // metadata.name "a", data {"k":"v"}, in the envelope of v1 ConfigMap.
        let object = b"\x0a\x03\x0a\x01a\x12\x06\x0a\x01k\x12\x01v";
        let mut body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12".to_vec();
        body.push(object.len() as u8);
        body.extend_from_slice(object);
        let definition = table().of_kind("", "v1", "ConfigMap").unwrap();
        let value = decode(&body, definition).unwrap();
        assert_eq!(
            value.to_string(),
            r#"{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"a"}}"#
        );
        assert!(decode(b"{}", definition).is_err());
        for length in 5..body.len() {
            // Never a panic, whatever is missing.
            let _ = decode(&body[..length], definition);
        }
    }
}
