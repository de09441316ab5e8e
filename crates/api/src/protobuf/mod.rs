//! Objects as `application/vnd.kubernetes.protobuf`, byte for byte as Go writes them, driven by the
//! type table: documents in, bytes out, and back.

mod decode;
mod encode;
mod message;
mod wire;

use crate::document::{MAX_DEPTH, Value};
use crate::resource::{Resource, split_api_version};
use crate::schema::{Definition, normalise, table};

use wire::{Reader, Writer};

pub use message::{ListMessage, Message};

/// What every encoded object begins with.
pub const MAGIC: &[u8; 4] = b"k8s\0";

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    NoEnvelope,
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
    #[error("{definition} has no protobuf form")]
    NoProtobuf { definition: &'static str },
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: illegal tag or wire type in {definition}")]
    Malformed { definition: &'static str },
    #[error("proto: illegal wireType {0}")]
    WireType(u64),
    #[error("nested too deeply")]
    TooDeep,
    #[error("{0}")]
    Value(String),
}

/// Encodes an object of a served kind, with the envelope.
pub fn encode(resource: &Resource, object: &Value) -> Result<Vec<u8>, Error> {
    let definition = table()
        .definition(resource.definition)
        .expect("every kind of the catalogue is in the table");
    let api_version = resource.api_version();
    encode_as(definition, &api_version, &resource.kind, object)
}

/// Encodes any object with the envelope: a list, a `Status`, what a subresource answers.
pub fn encode_as(
    definition: &'static Definition,
    api_version: &str,
    kind: &str,
    object: &Value,
) -> Result<Vec<u8>, Error> {
    if !has_form(definition) {
        return Err(Error::NoProtobuf {
            definition: definition.name,
        });
    }
    let mut writer = Writer::with_prefix(MAGIC);
    writer.message(1, |meta| {
        meta.bytes(1, api_version.as_bytes());
        meta.bytes(2, kind.as_bytes());
    });
    writer.message(2, |raw| encode::message(raw, definition, object));
    writer.bytes(3, b"");
    writer.bytes(4, b"");
    Ok(writer.finish())
}

/// Encodes the object that its own `apiVersion` and `kind` name.
pub fn encode_object(object: &Value) -> Result<Vec<u8>, Error> {
    let (api_version, kind) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
    encode_as(definition_of(api_version, kind)?, api_version, kind, object)
}

/// Decodes an object with its envelope; `apiVersion` and `kind` are set from there. Fields that
/// protobuf cannot leave out appear as JSON would show them.
pub fn decode(bytes: &[u8]) -> Result<Value, Error> {
    decode_within(bytes, 0)
}

/// As [`decode`], of an object that is embedded in `depth` messages.
fn decode_within(bytes: &[u8], depth: usize) -> Result<Value, Error> {
    let envelope = Envelope::read(bytes)?;
    let definition = definition_of(&envelope.api_version, &envelope.kind)?;
    envelope.decode(definition, depth)
}

/// As [`decode`], reading what is of no known kind as `expected`: `DeleteOptions` are sent in the
/// version of any group.
pub fn decode_as(expected: &'static Definition, bytes: &[u8]) -> Result<Value, Error> {
    let envelope = Envelope::read(bytes)?;
    let known = definition_of(&envelope.api_version, &envelope.kind);
    envelope.decode(known.unwrap_or(expected), 0)
}

struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Envelope<'a>, Error> {
        let body = bytes.strip_prefix(MAGIC).ok_or(Error::NoEnvelope)?;
        let mut envelope = Envelope {
            api_version: String::new(),
            kind: String::new(),
            raw: &[],
        };
        let mut reader = Reader::new(body);
        while let Some((number, payload)) = reader.next("Unknown")? {
            match number {
                1 => {
                    let mut meta = Reader::new(payload.bytes("Unknown")?);
                    while let Some((number, payload)) = meta.next("TypeMeta")? {
                        let text = String::from_utf8_lossy(payload.bytes("TypeMeta")?).into_owned();
                        match number {
                            1 => envelope.api_version = text,
                            2 => envelope.kind = text,
                            _ => {}
                        }
                    }
                }
                2 => envelope.raw = payload.bytes("Unknown")?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn decode(&self, definition: &'static Definition, depth: usize) -> Result<Value, Error> {
        let mut object = decode_message_within(definition, self.raw, depth)?;
        object.set(&["apiVersion"], self.api_version.as_str());
        object.set(&["kind"], self.kind.as_str());
        Ok(object)
    }
}

/// Decodes the bare message of a definition.
pub fn decode_message(definition: &'static Definition, bytes: &[u8]) -> Result<Value, Error> {
    decode_message_within(definition, bytes, 0)
}

fn decode_message_within(
    definition: &'static Definition,
    bytes: &[u8],
    depth: usize,
) -> Result<Value, Error> {
    if !has_form(definition) {
        return Err(Error::NoProtobuf {
            definition: definition.name,
        });
    }
    let mut object = decode::message(bytes, definition, depth)?;
    // A message may be several levels of a document, and JSON may be embedded in it; messages
    // within messages are bounded already.
    if depth == 0 && object.is_deeper_than(MAX_DEPTH) {
        return Err(Error::TooDeep);
    }
    normalise(definition, &mut object);
    Ok(object)
}

/// One event of a watch stream: the length, then a bare `WatchEvent` around an encoded object.
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut writer = Writer::with_prefix(&[0; 4]);
    writer.bytes(1, event.as_bytes());
    writer.message(2, |raw| raw.bytes(1, object));
    let mut frame = writer.finish();
    let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// `Table` has none: it exists for people.
fn has_form(definition: &Definition) -> bool {
    definition.fields.is_empty()
        || definition
            .fields
            .iter()
            .any(|field| field.protobuf.is_some())
}

/// The definition behind a kind. Those of `meta.k8s.io` are answers only, registered nowhere.
pub fn definition_of(api_version: &str, kind: &str) -> Result<&'static Definition, Error> {
    let (group, version) = split_api_version(api_version);
    let definition = match (group, version) {
        ("meta.k8s.io", "v1") => table().definition(&format!("{META}{kind}")),
        _ => table().of_kind(group, version, kind),
    };
    definition.ok_or_else(|| Error::UnknownKind {
        api_version: api_version.to_string(),
        kind: kind.to_string(),
    })
}

#[cfg(test)]
mod tests;
