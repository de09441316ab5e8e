//! The form of a D-Bus message on the wire (D-Bus specification, "Message Protocol").

use std::os::fd::OwnedFd;

use crate::Error;

/// Larger ones are not for us.
const LARGEST: usize = 1 << 20;
/// Type, flags, lengths and serial, up to the length of the header fields.
const FIXED: usize = 16;
const NO_REPLY_EXPECTED: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Call,
    Return,
    Error,
    Signal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Byte(u8),
    Bool(bool),
    Int32(i32),
    UInt32(u32),
    UInt64(u64),
    Text(String),
    Path(String),
    Signature(String),
    /// An index into the message's descriptors.
    Descriptor(u32),
    Variant(Box<Value>),
    /// The signature of its members, so that an empty one has one too, and the members.
    Array(&'static str, Vec<Value>),
    Struct(Vec<Value>),
}

#[derive(Debug)]
pub struct Message {
    pub kind: Kind,
    pub serial: u32,
    pub path: Option<String>,
    pub interface: Option<String>,
    pub member: Option<String>,
    pub error_name: Option<String>,
    pub reply_serial: Option<u32>,
    pub destination: Option<String>,
    pub sender: Option<String>,
    /// Empty for a body of types that are not known here.
    pub body: Vec<Value>,
    pub descriptors: Vec<OwnedFd>,
}

impl Message {
    pub fn new(kind: Kind) -> Message {
        Message {
            kind,
            serial: 0,
            path: None,
            interface: None,
            member: None,
            error_name: None,
            reply_serial: None,
            destination: None,
            sender: None,
            body: Vec::new(),
            descriptors: Vec::new(),
        }
    }

    pub fn call(
        destination: &str,
        path: &str,
        interface: &str,
        member: &str,
        body: Vec<Value>,
    ) -> Message {
        Message {
            path: Some(path.to_owned()),
            interface: Some(interface.to_owned()),
            member: Some(member.to_owned()),
            destination: Some(destination.to_owned()),
            body,
            ..Message::new(Kind::Call)
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        let mut signature = String::new();
        for value in &self.body {
            signature.push_str(&value.signature());
            body.value(value);
        }
        let texts = [
            (1, self.path.clone().map(Value::Path)),
            (2, self.interface.clone().map(Value::Text)),
            (3, self.member.clone().map(Value::Text)),
            (4, self.error_name.clone().map(Value::Text)),
            (5, self.reply_serial.map(Value::UInt32)),
            (6, self.destination.clone().map(Value::Text)),
            (7, self.sender.clone().map(Value::Text)),
            (
                8,
                Some(signature)
                    .filter(|signature| !signature.is_empty())
                    .map(Value::Signature),
            ),
            (
                9,
                Some(self.descriptors.len() as u32)
                    .filter(|count| *count > 0)
                    .map(Value::UInt32),
            ),
        ];
        let (kind, flags) = match self.kind {
            Kind::Call => (1, 0),
            Kind::Return => (2, NO_REPLY_EXPECTED),
            Kind::Error => (3, NO_REPLY_EXPECTED),
            Kind::Signal => (4, NO_REPLY_EXPECTED),
        };
        let mut header = Writer {
            bytes: vec![b'l', kind, flags, 1],
        };
        header.u32(body.bytes.len() as u32);
        header.u32(self.serial);
        // Replaced below, when the length of the fields is known.
        header.u32(0);
        for (code, value) in texts {
            if let Some(value) = value {
                header.align(8);
                header.bytes.push(code);
                header.value(&Value::Variant(Box::new(value)));
            }
        }
        let length = (header.bytes.len() - FIXED) as u32;
        header.bytes[12..FIXED].copy_from_slice(&length.to_le_bytes());
        header.align(8);
        header.bytes.extend(body.bytes);
        header.bytes
    }

    /// The length of the message at the start of `bytes`; `None` while too few bytes are there.
    pub fn length(bytes: &[u8]) -> Result<Option<usize>, Error> {
        if bytes.len() < FIXED {
            return Ok(None);
        }
        let mut reader = Reader::new(bytes)?;
        reader.at = 4;
        let body = reader.u32()? as usize;
        reader.at = 12;
        let fields = reader.u32()? as usize;
        if body > LARGEST || fields > LARGEST {
            return Err(Error::Protocol("a message is too large"));
        }
        Ok(Some((FIXED + fields).next_multiple_of(8) + body))
    }

    /// Reads one whole message. Returns it and how many descriptors belong to it.
    pub fn decode(bytes: &[u8]) -> Result<(Message, usize), Error> {
        let mut reader = Reader::new(bytes)?;
        let kind = match bytes.get(1) {
            Some(1) => Kind::Call,
            Some(2) => Kind::Return,
            Some(3) => Kind::Error,
            Some(4) => Kind::Signal,
            _ => return Err(Error::Protocol("a message of an unknown type")),
        };
        let mut message = Message::new(kind);
        reader.at = 8;
        message.serial = reader.u32()?;
        let end = FIXED + reader.u32()? as usize;
        let (mut signature, mut descriptors) = (String::new(), 0);
        while reader.at < end {
            reader.align(8);
            let code = reader.u8()?;
            match (code, reader.variant()?) {
                (1, Value::Path(path)) => message.path = Some(path),
                (2, Value::Text(text)) => message.interface = Some(text),
                (3, Value::Text(text)) => message.member = Some(text),
                (4, Value::Text(text)) => message.error_name = Some(text),
                (5, Value::UInt32(serial)) => message.reply_serial = Some(serial),
                (6, Value::Text(text)) => message.destination = Some(text),
                (7, Value::Text(text)) => message.sender = Some(text),
                (8, Value::Signature(text)) => signature = text,
                (9, Value::UInt32(count)) => descriptors = count as usize,
                _ => {}
            }
        }
        reader.align(8);
        if signature.chars().all(|kind| "ybiuthsogv".contains(kind)) {
            for kind in signature.chars() {
                message.body.push(reader.value(kind)?);
            }
        }
        Ok((message, descriptors))
    }
}

impl Value {
    fn signature(&self) -> String {
        let letter = match self {
            Value::Array(members, _) => return format!("a{members}"),
            Value::Struct(fields) => {
                let fields: String = fields.iter().map(Value::signature).collect();
                return format!("({fields})");
            }
            Value::Byte(_) => "y",
            Value::Bool(_) => "b",
            Value::Int32(_) => "i",
            Value::UInt32(_) => "u",
            Value::UInt64(_) => "t",
            Value::Text(_) => "s",
            Value::Path(_) => "o",
            Value::Signature(_) => "g",
            Value::Descriptor(_) => "h",
            Value::Variant(_) => "v",
        };
        letter.to_owned()
    }
}

/// Always little-endian, which the message states; the reader converts numbers if it must.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn u32(&mut self, number: u32) {
        self.align(4);
        self.bytes.extend(number.to_le_bytes());
    }

    fn signature(&mut self, text: &str) {
        self.bytes.push(text.len() as u8);
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Bool(yes) => self.u32(u32::from(*yes)),
            Value::Int32(number) => self.u32(number.cast_unsigned()),
            Value::UInt32(number) | Value::Descriptor(number) => self.u32(*number),
            Value::UInt64(number) => {
                self.align(8);
                self.bytes.extend(number.to_le_bytes());
            }
            Value::Text(text) | Value::Path(text) => {
                self.u32(text.len() as u32);
                self.bytes.extend(text.as_bytes());
                self.bytes.push(0);
            }
            Value::Signature(text) => self.signature(text),
            Value::Byte(byte) => self.bytes.push(*byte),
            Value::Struct(fields) => {
                self.align(8);
                for field in fields {
                    self.value(field);
                }
            }
            Value::Array(members, values) => {
                // The length, without what aligns the first member; replaced when it is known.
                self.u32(0);
                let length_at = self.bytes.len() - 4;
                self.align(alignment(members));
                let begin = self.bytes.len();
                for value in values {
                    self.value(value);
                }
                let length = (self.bytes.len() - begin) as u32;
                self.bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
            }
            Value::Variant(inner) => {
                self.signature(&inner.signature());
                self.value(inner);
            }
        }
    }
}

/// Where a value of this signature may begin.
fn alignment(signature: &str) -> usize {
    match signature.bytes().next() {
        Some(b'y' | b'g' | b'v') => 1,
        Some(b'n' | b'q') => 2,
        Some(b'(' | b'{' | b't' | b'x' | b'd') => 8,
        _ => 4,
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Reader<'a>, Error> {
        let big_endian = match bytes.first() {
            Some(b'l') => false,
            Some(b'B') => true,
            _ => return Err(Error::Protocol("a message of an unknown byte order")),
        };
        Ok(Reader {
            bytes,
            at: 0,
            big_endian,
        })
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn read_bytes(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(length);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or(Error::Protocol("a message is cut short"))?;
        self.at += length;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.align(N);
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.read_bytes(N)?);
        if self.big_endian {
            bytes.reverse();
        }
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.read_bytes(1)?[0])
    }

    fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.number()?))
    }

    fn text(&mut self, length: usize) -> Result<String, Error> {
        let text = self.read_bytes(length)?.to_vec();
        self.read_bytes(1)?;
        String::from_utf8(text).map_err(|_| Error::Protocol("a text is not UTF-8"))
    }

    fn signature(&mut self) -> Result<String, Error> {
        let length = self.u8()?;
        self.text(length.into())
    }

    fn variant(&mut self) -> Result<Value, Error> {
        let signature = self.signature()?;
        match signature.as_bytes() {
            // Variants inside variants would have no bound.
            [kind] if *kind != b'v' => self.value(char::from(*kind)),
            _ => Err(Error::Protocol("a variant of a type that is not known")),
        }
    }

    fn value(&mut self, kind: char) -> Result<Value, Error> {
        Ok(match kind {
            'y' => Value::Byte(self.u8()?),
            'b' => Value::Bool(self.u32()? != 0),
            'i' => Value::Int32(self.u32()?.cast_signed()),
            'u' => Value::UInt32(self.u32()?),
            'h' => Value::Descriptor(self.u32()?),
            't' => Value::UInt64(u64::from_le_bytes(self.number()?)),
            's' | 'o' => {
                let length = self.u32()? as usize;
                let text = self.text(length)?;
                match kind {
                    's' => Value::Text(text),
                    _ => Value::Path(text),
                }
            }
            'g' => Value::Signature(self.signature()?),
            'v' => Value::Variant(Box::new(self.variant()?)),
            _ => return Err(Error::Protocol("a value of a type that is not known")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Message {
        Message {
            serial: 7,
            ..Message::call(
                "org.example.Boat",
                "/org/example/Boat",
                "org.example.Boat1",
                "Row",
                vec![
                    Value::Bool(true),
                    Value::Text("to the other side".to_owned()),
                    Value::UInt64(1 << 40),
                    Value::Int32(-3),
                    Value::Variant(Box::new(Value::UInt32(9))),
                    Value::Signature("su".to_owned()),
                    Value::Descriptor(0),
                ],
            )
        }
    }

    #[test]
    fn written_messages_are_read_back() {
        let sent = everything();
        let bytes = sent.encode();
        assert_eq!(Message::length(&bytes).unwrap(), Some(bytes.len()));
        let (read, descriptors) = Message::decode(&bytes).unwrap();
        assert_eq!(descriptors, 0);
        assert_eq!((read.kind, read.serial), (Kind::Call, 7));
        assert_eq!(
            (read.path, read.member, read.destination),
            (sent.path, sent.member, sent.destination)
        );
        assert_eq!(read.body, sent.body);
    }

    #[test]
    fn arrays_and_structures_are_laid_out_as_specified() {
        let member = Value::Struct(vec![
            Value::Text("A".to_owned()),
            Value::Variant(Box::new(Value::Array("u", vec![Value::UInt32(7)]))),
        ]);
        let mut writer = Writer::default();
        writer.value(&Value::Byte(1));
        writer.value(&Value::Array("(sv)", vec![member]));
        writer.value(&Value::Array("(sa(sv))", Vec::new()));
        assert_eq!(
            writer.bytes,
            [
                // The byte; the array's length, which counts from its first member.
                1, 0, 0, 0, 20, 0, 0, 0, //
                1, 0, 0, 0, b'A', 0, 2, b'a', //
                b'u', 0, 0, 0, 4, 0, 0, 0, //
                7, 0, 0, 0, 0, 0, 0, 0,
            ]
        );
        let call = Message::call(
            "a.b",
            "/",
            "a.b",
            "C",
            vec![
                Value::Text("x".to_owned()),
                Value::Array("(sv)", Vec::new()),
            ],
        );
        let (read, _) = Message::decode(&call.encode()).unwrap();
        assert!(read.body.is_empty(), "written and never read");
    }

    #[test]
    fn damaged_messages_never_cause_a_panic() {
        let bytes = everything().encode();
        for length in 0..bytes.len() {
            let _ = Message::length(&bytes[..length]);
            assert!(Message::decode(&bytes[..length]).is_err(), "{length}");
        }
        for place in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = bytes.clone();
                damaged[place] = value;
                let _ = Message::length(&damaged);
                let _ = Message::decode(&damaged);
            }
        }
    }
}
