//! SPDY/3 frames to bytes and back. The decoder keeps at most one control frame; data is handed on
//! as it arrives, so that a frame's announced length allocates nothing.

use bytes::{Buf, Bytes, BytesMut};

use super::decode_error::DecodeError;
use super::header_block::{Packer, Unpacker};
use crate::headers::Headers;

const VERSION: u16 = 3;
/// No control frame may be larger.
const LARGEST_CONTROL: usize = 64 * 1024;
const HEADER: usize = 8;
const FIN: u8 = 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// `RST_STREAM` statuses that we send.
pub(super) const REFUSED_STREAM: u32 = 3;
pub(super) const CANCEL: u32 = 5;

/// The meaning of a frame, or of a part of a data frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Open {
        id: u32,
        headers: Headers,
        fin: bool,
    },
    Reply {
        id: u32,
        fin: bool,
    },
    Data {
        id: u32,
        bytes: Bytes,
        fin: bool,
    },
    Reset {
        id: u32,
    },
    Ping(u32),
    GoAway,
    /// Settings, window updates and what the future brings: nothing for us.
    Other,
}

#[derive(Default)]
pub struct Decoder {
    buffer: BytesMut,
    unpacker: Option<Unpacker>,
    /// The data frame whose bytes are arriving.
    data: Option<Data>,
}

#[derive(Clone, Copy)]
struct Data {
    id: u32,
    left: usize,
    fin: bool,
}

impl Decoder {
    /// Where received bytes go.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next event in what was received, if there is a whole one.
    pub fn next_event(&mut self) -> Result<Option<Event>, DecodeError> {
        if let Some(data) = self.data {
            return Ok(self.take_data(data));
        }
        let Some(header) = self.buffer.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let flags = header[4];
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        if first >> 31 == 0 {
            self.buffer.advance(HEADER);
            return Ok(self.take_data(Data {
                id: first,
                left: length,
                fin: flags & FIN != 0,
            }));
        }
        let (version, kind) = ((first >> 16) as u16 & 0x7fff, first as u16);
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        if length > LARGEST_CONTROL {
            return Err(DecodeError::TooLarge);
        }
        if self.buffer.len() < HEADER + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER);
        let body = self.buffer.split_to(length);
        self.control(kind, flags & FIN != 0, &body).map(Some)
    }

    fn take_data(&mut self, mut data: Data) -> Option<Event> {
        let length = data.left.min(self.buffer.len());
        if length == 0 && data.left > 0 {
            self.data = Some(data);
            return None;
        }
        data.left -= length;
        self.data = (data.left > 0).then_some(data);
        Some(Event::Data {
            id: data.id,
            bytes: self.buffer.split_to(length).freeze(),
            fin: data.fin && data.left == 0,
        })
    }

    fn control(&mut self, kind: u16, fin: bool, body: &[u8]) -> Result<Event, DecodeError> {
        let number = |at: usize| {
            let bytes = body.get(at..at + 4).and_then(<[u8]>::first_chunk::<4>);
            bytes
                .map(|bytes| u32::from_be_bytes(*bytes))
                .ok_or(DecodeError::TooShort)
        };
        let stream = |at: usize| number(at).map(|id| id & 0x7fff_ffff);
        match kind {
            SYN_STREAM => {
                let id = stream(0)?;
                let packed = body.get(10..).ok_or(DecodeError::TooShort)?;
                let headers = self.unpack(packed)?;
                Ok(Event::Open { id, headers, fin })
            }
            SYN_REPLY => {
                let id = stream(0)?;
                self.unpack(body.get(4..).ok_or(DecodeError::TooShort)?)?;
                Ok(Event::Reply { id, fin })
            }
            HEADERS => {
                // All blocks share the state of the compression, so those that are not used are read too.
                self.unpack(body.get(4..).ok_or(DecodeError::TooShort)?)?;
                Ok(Event::Other)
            }
            RST_STREAM => Ok(Event::Reset { id: stream(0)? }),
            PING => Ok(Event::Ping(number(0)?)),
            GOAWAY => Ok(Event::GoAway),
            _ => Ok(Event::Other),
        }
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<Headers, DecodeError> {
        self.unpacker
            .get_or_insert_with(Unpacker::new)
            .unpack(packed)
    }
}

/// Writes frames; keeps the state of the header compression.
#[derive(Default)]
pub struct Encoder {
    packer: Option<Packer>,
}

impl Encoder {
    pub fn open(&mut self, id: u32, headers: &Headers, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(64);
        body.extend_from_slice(&id.to_be_bytes());
        // No associated stream, priority 0, no slot.
        body.extend_from_slice(&[0; 6]);
        self.pack(headers, &mut body);
        control(SYN_STREAM, 0, &body, out);
    }

    pub fn reply(&mut self, id: u32, out: &mut Vec<u8>) {
        let mut body = id.to_be_bytes().to_vec();
        self.pack(&Headers::default(), &mut body);
        control(SYN_REPLY, 0, &body, out);
    }

    pub fn data(id: u32, bytes: &[u8], fin: bool, out: &mut Vec<u8>) {
        let length = (bytes.len() as u32).to_be_bytes();
        out.extend_from_slice(&(id & 0x7fff_ffff).to_be_bytes());
        out.extend_from_slice(&[u8::from(fin) * FIN, length[1], length[2], length[3]]);
        out.extend_from_slice(bytes);
    }

    pub fn reset(id: u32, status: u32, out: &mut Vec<u8>) {
        let body = [id.to_be_bytes(), status.to_be_bytes()].concat();
        control(RST_STREAM, 0, &body, out);
    }

    pub fn ping(id: u32, out: &mut Vec<u8>) {
        control(PING, 0, &id.to_be_bytes(), out);
    }

    pub fn go_away(last: u32, out: &mut Vec<u8>) {
        let body = [last.to_be_bytes(), [0; 4]].concat();
        control(GOAWAY, 0, &body, out);
    }

    fn pack(&mut self, headers: &Headers, body: &mut Vec<u8>) {
        self.packer
            .get_or_insert_with(Packer::new)
            .pack(headers, body);
    }
}

fn control(kind: u16, flags: u8, body: &[u8], out: &mut Vec<u8>) {
    let length = (body.len() as u32).to_be_bytes();
    out.extend_from_slice(&(0x8000 | VERSION).to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[flags, length[1], length[2], length[3]]);
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(decoder: &mut Decoder, bytes: &[u8]) -> Result<Vec<Event>, DecodeError> {
        decoder.buffer().extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(event) = decoder.next_event()? {
            events.push(event);
        }
        Ok(events)
    }

    fn sample() -> (Vec<u8>, Vec<Event>) {
        let (mut encoder, mut out) = (Encoder::default(), Vec::new());
        let headers = Headers::new(&[("streamType", "stdin")]);
        encoder.open(1, &headers, &mut out);
        encoder.open(3, &headers, &mut out);
        encoder.reply(1, &mut out);
        Encoder::data(1, b"hello", false, &mut out);
        Encoder::data(1, b"", true, &mut out);
        Encoder::ping(7, &mut out);
        Encoder::reset(3, CANCEL, &mut out);
        Encoder::go_away(3, &mut out);
        let open = |id| Event::Open {
            id,
            headers: headers.clone(),
            fin: false,
        };
        let data = |bytes: &'static [u8], fin| Event::Data {
            id: 1,
            bytes: Bytes::from_static(bytes),
            fin,
        };
        let events = vec![
            open(1),
            open(3),
            Event::Reply { id: 1, fin: false },
            data(b"hello", false),
            data(b"", true),
            Event::Ping(7),
            Event::Reset { id: 3 },
            Event::GoAway,
        ];
        (out, events)
    }

    #[test]
    fn encoded_frames_are_decoded_unchanged() {
        let (bytes, events) = sample();
        assert_eq!(decode(&mut Decoder::default(), &bytes), Ok(events));
    }

    #[test]
    fn frames_are_decoded_from_any_pieces() {
        let (bytes, events) = sample();
        for size in 1..40 {
            let mut decoder = Decoder::default();
            let mut seen: Vec<Event> = Vec::new();
            for piece in bytes.chunks(size) {
                for event in decode(&mut decoder, piece).unwrap() {
                    match (seen.last_mut(), event) {
                        // Data may come in parts.
                        (
                            Some(Event::Data { id, bytes, fin }),
                            Event::Data {
                                id: same,
                                bytes: more,
                                fin: end,
                            },
                        ) if *id == same && !more.is_empty() && bytes.len() < 5 => {
                            *bytes = [bytes.as_ref(), more.as_ref()].concat().into();
                            *fin = end;
                        }
                        (_, event) => seen.push(event),
                    }
                }
            }
            assert_eq!(seen, events, "in pieces of {size}");
        }
    }

    #[test]
    fn an_announced_length_allocates_nothing() {
        let mut decoder = Decoder::default();
        let data = decode(&mut decoder, &[0, 0, 0, 1, 0, 0xff, 0xff, 0xff, b'x']).unwrap();
        assert_eq!(data.len(), 1);
        assert!(decoder.buffer().capacity() < 4096);
        let control = [0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff];
        let refused = decode(&mut Decoder::default(), &control);
        assert_eq!(refused, Err(DecodeError::TooLarge));
    }

    /// Bytes from a small generator, and frames with bytes flipped: errors are fine, panics and
    /// endless loops are not, and what is kept stays small.
    #[test]
    fn random_bytes_are_refused_without_a_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (sample, _) = sample();
        for round in 0..20_000 {
            let mut bytes = if round % 2 == 0 {
                (0..random() % 200).map(|_| random() as u8).collect()
            } else {
                sample.clone()
            };
            for _ in 0..random() % 8 {
                let length = bytes.len().max(1) as u64;
                if let Some(byte) = bytes.get_mut((random() % length) as usize) {
                    *byte = random() as u8;
                }
            }
            let mut decoder = Decoder::default();
            let piece = 1 + (random() % 64) as usize;
            for piece in bytes.chunks(piece) {
                if decode(&mut decoder, piece).is_err() {
                    break;
                }
                assert!(decoder.buffer().len() <= HEADER + LARGEST_CONTROL);
            }
        }
    }
}
