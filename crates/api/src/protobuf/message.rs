//! Encoded objects that are kept and written many times: the message once, and around it what
//! an answer needs (the envelope, a list, a watch event), with the resourceVersion spliced in.

use std::ops::Range;

use super::wire::{Reader, Writer, varint_length};
use super::{Error, MAGIC, encode, has_form};
use crate::document::Value;
use crate::schema::{Definition, Type, table};

const METADATA: &str = "metadata";
const RESOURCE_VERSION: &str = "resourceVersion";

/// The bare message of an object, with a gap for its resourceVersion.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// Encoded with an empty resourceVersion.
    bytes: Vec<u8>,
    /// The content of `metadata`, behind its tag and length at the very beginning.
    metadata: Range<usize>,
    /// The empty resourceVersion: a tag and a zero length.
    slot: Range<usize>,
}

impl Message {
    /// Encodes `object`, regardless of its resourceVersion.
    pub fn of(definition: &'static Definition, object: &Value) -> Result<Message, Error> {
        let malformed = || Error::NoProtobuf {
            definition: definition.name,
        };
        if !has_form(definition) {
            return Err(malformed());
        }
        let mut writer = Writer::with_prefix(b"");
        match object.at(&[METADATA, RESOURCE_VERSION]) {
            None => encode::message(&mut writer, definition, object),
            Some(_) => {
                let mut object = object.clone();
                object.remove(&[METADATA, RESOURCE_VERSION]);
                encode::message(&mut writer, definition, &object);
            }
        }
        let bytes = writer.finish();
        let (number, inner) = metadata_field(definition).ok_or_else(malformed)?;
        let (version, _) = inner
            .fields
            .iter()
            .find(|field| field.name == RESOURCE_VERSION)
            .and_then(|field| field.protobuf)
            .ok_or_else(malformed)?;
        // Every kind has its metadata in front.
        let mut reader = Reader::new(&bytes);
        let metadata = match reader.next(definition.name)? {
            Some((found, payload)) if found == number => {
                let content = payload.bytes(definition.name)?;
                let end = bytes.len() - reader.left();
                end - content.len()..end
            }
            _ => return Err(malformed()),
        };
        let mut reader = Reader::new(&bytes[metadata.clone()]);
        let mut slot = None;
        loop {
            let start = metadata.end - reader.left();
            match reader.next(definition.name)? {
                None => break,
                Some((found, _)) if found == version => {
                    slot = Some(start..metadata.end - reader.left());
                }
                Some(_) => {}
            }
        }
        let slot = slot.ok_or_else(malformed)?;
        Ok(Message {
            bytes,
            metadata,
            slot,
        })
    }

    /// The bytes it holds on to.
    pub fn size(&self) -> usize {
        self.bytes.capacity()
    }

    /// How many bytes [`Message::write`] appends.
    pub fn length(&self, version: &str) -> usize {
        let metadata = self.metadata_length(version);
        1 + varint_length(metadata) + metadata + self.bytes.len() - self.metadata.end
    }

    /// Appends the message with `version` as its resourceVersion.
    pub fn write(&self, out: &mut Vec<u8>, version: &str) {
        let mut writer = Writer::append_to(std::mem::take(out));
        writer.raw(&self.bytes[..1]);
        writer.varint(self.metadata_length(version) as u64);
        writer.raw(&self.bytes[self.metadata.start..self.slot.end - 1]);
        writer.varint(version.len() as u64);
        writer.raw(version.as_bytes());
        writer.raw(&self.bytes[self.slot.end..]);
        *out = writer.finish();
    }

    fn metadata_length(&self, version: &str) -> usize {
        self.metadata.len() - 1 + varint_length(version.len()) + version.len()
    }

    /// The object on its own, with the envelope.
    pub fn write_enveloped(&self, out: &mut Vec<u8>, api_version: &str, kind: &str, version: &str) {
        envelope(out, api_version, kind, self.length(version), |out| {
            self.write(out, version);
        });
    }

    /// The object as one event of a watch stream.
    pub fn write_event(
        &self,
        out: &mut Vec<u8>,
        event: &str,
        (api_version, kind): (&str, &str),
        version: &str,
    ) {
        let mut object = Vec::with_capacity(self.length(version) + 64);
        self.write_enveloped(&mut object, api_version, kind, version);
        out.extend_from_slice(&super::watch_frame(event, &object));
    }
}

/// A list around the messages of its items.
#[derive(Debug)]
pub struct ListMessage {
    /// The encoded metadata, which precedes the items.
    head: Vec<u8>,
    /// The number of the field `items`.
    item: u32,
}

impl ListMessage {
    pub fn of(definition: &'static Definition, metadata: &Value) -> Result<ListMessage, Error> {
        let malformed = || Error::NoProtobuf {
            definition: definition.name,
        };
        let number = |name: &str| {
            let field = definition.fields.iter().find(|field| field.name == name);
            let (number, _) = field
                .and_then(|field| field.protobuf)
                .ok_or_else(malformed)?;
            Ok(number)
        };
        let (_, list_meta) = metadata_field(definition).ok_or_else(malformed)?;
        let mut head = Writer::with_prefix(b"");
        head.message(number(METADATA)?, |inner| {
            encode::message(inner, list_meta, metadata);
        });
        Ok(ListMessage {
            head: head.finish(),
            item: number("items")?,
        })
    }

    /// Appends an item with `version` as its resourceVersion.
    pub fn write_item(&self, out: &mut Vec<u8>, item: &Message, version: &str) {
        let mut writer = Writer::append_to(std::mem::take(out));
        writer.tag(self.item, crate::schema::Wire::Bytes);
        writer.varint(item.length(version) as u64);
        *out = writer.finish();
        item.write(out, version);
    }

    /// What stands before and after items of `length` bytes in all, the envelope included.
    pub fn around(&self, api_version: &str, kind: &str, length: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut whole, mut middle) = (Vec::new(), 0);
        let length = self.head.len() + length;
        envelope(&mut whole, api_version, kind, length, |out| {
            out.extend_from_slice(&self.head);
            middle = out.len();
        });
        let end = whole.split_off(middle);
        (whole, end)
    }
}

/// Writes the envelope around a message of `length` bytes.
fn envelope(
    out: &mut Vec<u8>,
    api_version: &str,
    kind: &str,
    length: usize,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let mut writer = Writer::append_to(std::mem::take(out));
    writer.raw(MAGIC);
    writer.message(1, |meta| {
        meta.bytes(1, api_version.as_bytes());
        meta.bytes(2, kind.as_bytes());
    });
    writer.tag(2, crate::schema::Wire::Bytes);
    writer.varint(length as u64);
    *out = writer.finish();
    write(out);
    let mut writer = Writer::append_to(std::mem::take(out));
    writer.bytes(3, b"");
    writer.bytes(4, b"");
    *out = writer.finish();
}

fn metadata_field(definition: &Definition) -> Option<(u32, &'static Definition)> {
    let field = definition
        .fields
        .iter()
        .find(|field| field.name == METADATA)?;
    match (&field.kind, field.protobuf) {
        (Type::Object(index), Some((number, _))) => Some((number, table().at(*index))),
        _ => None,
    }
}
