//! Protobuf's wire format: tags, varints, lengths.

use super::Error;
use crate::schema::Wire;

/// Writes fields one after the other.
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn with_prefix(prefix: &[u8]) -> Writer {
        let mut bytes = Vec::with_capacity(1024);
        bytes.extend_from_slice(prefix);
        Writer { bytes }
    }

    pub(super) fn append_to(bytes: Vec<u8>) -> Writer {
        Writer { bytes }
    }

    /// Bytes that are encoded already.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn tag(&mut self, number: u32, wire: Wire) {
        let wire = match wire {
            Wire::Varint => 0,
            Wire::Fixed64 => 1,
            Wire::Bytes => 2,
        };
        self.varint(u64::from(number) << 3 | wire);
    }

    pub(super) fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    pub(super) fn integer(&mut self, number: u32, value: i64) {
        self.tag(number, Wire::Varint);
        self.varint(value as u64);
    }

    pub(super) fn fixed64(&mut self, number: u32, value: f64) {
        self.tag(number, Wire::Fixed64);
        self.bytes.extend_from_slice(&value.to_bits().to_le_bytes());
    }

    pub(super) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.tag(number, Wire::Bytes);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// A nested message. Its length is known only afterwards: one byte is kept free for it, and a
    /// longer length moves the message up.
    pub(super) fn message(&mut self, number: u32, write: impl FnOnce(&mut Writer)) {
        self.tag(number, Wire::Bytes);
        let start = self.bytes.len();
        self.bytes.push(0);
        write(self);
        let length = self.bytes.len() - start - 1;
        if length < 0x80 {
            self.bytes[start] = length as u8;
            return;
        }
        let end = self.bytes.len();
        self.varint(length as u64);
        let more = self.bytes.len() - end;
        self.bytes[start + 1..].rotate_right(more);
        // The free byte is one of the length's.
        self.bytes.remove(start);
    }
}

/// How many bytes a number takes.
pub(super) fn varint_length(number: usize) -> usize {
    let bits = (usize::BITS - number.leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

/// Reads fields one after the other.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// How many bytes are still to be read.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next field's number and payload.
    pub(super) fn next(
        &mut self,
        definition: &'static str,
    ) -> Result<Option<(u32, Payload<'a>)>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).unwrap_or(0);
        if number == 0 {
            return Err(Error::Malformed { definition });
        }
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?;
                Payload::Fixed64(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Error::Truncated)?;
                Payload::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Payload::Fixed32
            }
            other => return Err(Error::WireType(other)),
        };
        Ok(Some((number, payload)))
    }

    pub(super) fn varint(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Error::Truncated)?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Error::Truncated)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Payload<'a> {
    pub(super) fn bytes(&self, definition: &'static str) -> Result<&'a [u8], Error> {
        match self {
            Payload::Bytes(bytes) => Ok(bytes),
            _ => Err(Error::Malformed { definition }),
        }
    }

    pub(super) fn varint(&self, definition: &'static str) -> Result<u64, Error> {
        match self {
            Payload::Varint(number) => Ok(*number),
            _ => Err(Error::Malformed { definition }),
        }
    }
}
