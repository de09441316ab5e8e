//! Netlink messages as bytes: writing headers and attributes, and walking over received ones.

/// Collects messages; lengths are filled in when a message or a nested attribute is closed.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

const NLA_F_NESTED: u16 = 1 << 15;
const NLA_TYPE_MASK: u16 = 0x3fff;

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One whole message: header, then what `body` writes.
    pub fn message(
        &mut self,
        kind: u16,
        flags: u16,
        sequence: u32,
        body: impl FnOnce(&mut Writer),
    ) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        body(self);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.align();
    }

    /// Bytes of a fixed structure that precedes the attributes.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.bytes
            .extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.align();
    }

    /// A string with its closing zero byte.
    pub fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = Vec::with_capacity(value.len() + 1);
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
        self.attribute(kind, &bytes);
    }

    /// A number in the machine's byte order (route netlink).
    pub fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// A number in network byte order (netfilter netlink).
    pub fn network_number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// An attribute holding attributes. Its content must stay under 64 KiB.
    pub fn nested(&mut self, kind: u16, body: impl FnOnce(&mut Writer)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes
            .extend_from_slice(&(kind | NLA_F_NESTED).to_ne_bytes());
        body(self);
        let length = self.bytes.len() - start;
        debug_assert!(length <= usize::from(u16::MAX), "nested attribute too long");
        self.bytes[start..start + 2].copy_from_slice(&(length as u16).to_ne_bytes());
        self.align();
    }

    fn align(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

/// One received message, borrowed from the receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    pub payload: &'a [u8],
}

/// Walks over the messages of one datagram; stops at the first malformed one.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        if length < 16 || length > bytes.len() {
            return None;
        }
        let message = Message {
            kind: u16_at(bytes, 4)?,
            flags: u16_at(bytes, 6)?,
            sequence: u32_at(bytes, 8)?,
            payload: &bytes[16..length],
        };
        bytes = &bytes[align(length).min(bytes.len())..];
        Some(message)
    })
}

/// Walks over attributes as (type, value); stops at the first malformed one.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & NLA_TYPE_MASK;
        if length < 4 || length > bytes.len() {
            return None;
        }
        let value = &bytes[4..length];
        bytes = &bytes[align(length).min(bytes.len())..];
        Some((kind, value))
    })
}

pub fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(found, value)| (found == kind).then_some(value))
}

/// A zero-terminated string attribute.
pub fn text(value: &[u8]) -> String {
    let end = value
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(
        bytes.get(offset..offset + 4)?.try_into().ok()?,
    ))
}

pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(
        bytes.get(offset..offset + 2)?.try_into().ok()?,
    ))
}

fn align(length: usize) -> usize {
    length.div_ceil(4) * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_attributes_are_read_back() {
        let mut writer = Writer::new();
        writer.message(7, 5, 42, |body| {
            body.raw(&[1, 2, 3, 4]);
            body.text(1, "abc");
            body.nested(2, |inner| inner.network_number(9, 0x0102_0304));
        });
        writer.message(8, 0, 43, |_| {});
        let found: Vec<Message<'_>> = messages(writer.bytes()).collect();
        assert_eq!(
            (found[0].kind, found[0].flags, found[0].sequence),
            (7, 5, 42)
        );
        assert_eq!(found[1].sequence, 43);
        let attributes = &found[0].payload[4..];
        assert_eq!(text(find(attributes, 1).unwrap()), "abc");
        assert_eq!(find(find(attributes, 2).unwrap(), 9).unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    fn malformed_attributes_end_the_iteration() {
        assert_eq!(messages(&[1, 0, 0]).count(), 0);
        assert_eq!(messages(&[255; 20]).count(), 0);
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0);
        assert_eq!(attributes(&[9, 0, 1, 0, 7]).count(), 0);
    }
}
