//! The outer form of the engine's files: a header with the format version, then frames, each
//! checksummed and numbered. A frame is what one sync makes durable, so only the last can be torn.

use crate::Error;

/// The format this version writes. 1: the first; 2: a checkpoint's end counts its records, and
/// there are snapshots.
pub const FORMAT: u32 = 2;
/// The oldest format this version reads: always the one before.
pub const OLDEST_READABLE: u32 = FORMAT - 1;

pub const FILE_MAGIC: &[u8; 8] = b"CORSTORE";
const FRAME_MAGIC: [u8; 4] = [0xc0, 0x7a, 0xc1, 0xe5];
/// magic 8, format 4, kind 4, salt 8, checksum 4.
pub const HEADER_LENGTH: usize = 28;
/// magic 4, payload length 4, number 8, checksum 4.
const FRAME_HEADER_LENGTH: usize = 20;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Log = 1,
    Checkpoint = 2,
    Snapshot = 3,
}

/// Writes one file's header and frames into buffers.
pub struct FrameWriter {
    /// Random per file and part of every checksum, so that bytes of another file, or a value that
    /// looks like a frame, never pass for a frame of this one.
    salt: u64,
    next: u64,
}

impl FrameWriter {
    pub fn new(salt: u64) -> FrameWriter {
        FrameWriter { salt, next: 0 }
    }

    pub fn header(&self, kind: Kind) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_LENGTH);
        header.extend_from_slice(FILE_MAGIC);
        header.extend_from_slice(&FORMAT.to_le_bytes());
        header.extend_from_slice(&(kind as u32).to_le_bytes());
        header.extend_from_slice(&self.salt.to_le_bytes());
        let checksum = crc32fast::hash(&header);
        header.extend_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Turns a buffer made by [`FrameWriter::buffer`] and filled with a payload into a frame.
    pub fn seal(&mut self, frame: &mut [u8]) {
        let length = (frame.len() - FRAME_HEADER_LENGTH) as u32;
        let checksum = checksum(self.salt, self.next, &frame[FRAME_HEADER_LENGTH..]);
        frame[..4].copy_from_slice(&FRAME_MAGIC);
        frame[4..8].copy_from_slice(&length.to_le_bytes());
        frame[8..16].copy_from_slice(&self.next.to_le_bytes());
        frame[16..20].copy_from_slice(&checksum.to_le_bytes());
        self.next += 1;
    }

    /// A buffer with room for the frame's header, to which the payload is appended.
    pub fn buffer() -> Vec<u8> {
        vec![0; FRAME_HEADER_LENGTH]
    }

    pub fn is_empty(frame: &[u8]) -> bool {
        frame.len() <= FRAME_HEADER_LENGTH
    }
}

/// A file's frames, read back.
#[derive(Debug)]
pub struct Frames<'a> {
    /// The format they were written in.
    pub format: u32,
    pub payloads: Vec<&'a [u8]>,
    /// Where the last whole frame ends.
    pub valid_length: usize,
    /// Continues the file after its last whole frame.
    salt: u64,
}

impl Frames<'_> {
    pub fn writer(&self) -> FrameWriter {
        FrameWriter {
            salt: self.salt,
            next: self.payloads.len() as u64,
        }
    }
}

/// Reads a file. An invalid end is left out (see `valid_length`); an invalid frame with a valid
/// later one behind it is corruption, because that later one was only written after the first had
/// been made durable.
pub fn read<'a>(path: &str, kind: Kind, bytes: &'a [u8]) -> Result<Frames<'a>, Error> {
    let (format, salt) = read_header(path, kind, bytes)?;
    let mut payloads = Vec::new();
    let mut offset = HEADER_LENGTH;
    while let Some((number, payload)) = frame_at(salt, bytes, offset) {
        if number != payloads.len() as u64 {
            break;
        }
        payloads.push(payload);
        offset += FRAME_HEADER_LENGTH + payload.len();
    }
    let expected = payloads.len() as u64;
    for later in offset..bytes.len() {
        if bytes[later..].starts_with(&FRAME_MAGIC)
            && let Some((number, _)) = frame_at(salt, bytes, later)
        {
            return Err(corrupt(
                path,
                format!(
                    "frame {expected} at byte {offset} is damaged, frame {number} at byte {later} is whole"
                ),
            ));
        }
    }
    Ok(Frames {
        format,
        payloads,
        valid_length: offset,
        salt,
    })
}

pub fn corrupt(path: &str, reason: impl Into<String>) -> Error {
    Error::Corrupt {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

fn read_header(path: &str, kind: Kind, bytes: &[u8]) -> Result<(u32, u64), Error> {
    let Some(header) = bytes.first_chunk::<HEADER_LENGTH>() else {
        return Err(corrupt(path, "shorter than a file header"));
    };
    if &header[..8] != FILE_MAGIC {
        return Err(corrupt(path, "not a store file"));
    }
    let number = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    // The version comes before the checksum: a newer format may place that elsewhere.
    let format = number(8);
    if format > FORMAT {
        return Err(Error::NewerFormat {
            path: path.to_owned(),
            found: format,
            supported: FORMAT,
        });
    }
    if number(24) != crc32fast::hash(&header[..24]) {
        return Err(corrupt(path, "header checksum does not match"));
    }
    if format < OLDEST_READABLE {
        return Err(corrupt(
            path,
            format!(
                "format {format} is too old: this version reads {OLDEST_READABLE} and {FORMAT}; \
                 start the version between once"
            ),
        ));
    }
    if number(12) != kind as u32 {
        return Err(corrupt(path, format!("not a {kind:?} file")));
    }
    let salt = u64::from(number(16)) | u64::from(number(20)) << 32;
    Ok((format, salt))
}

/// The frame at `offset` if it is whole: its number and payload.
fn frame_at(salt: u64, bytes: &[u8], offset: usize) -> Option<(u64, &[u8])> {
    let (header, rest) = bytes.get(offset..)?.split_at_checked(FRAME_HEADER_LENGTH)?;
    if header[..4] != FRAME_MAGIC {
        return None;
    }
    let length = u32::from_le_bytes(header[4..8].try_into().ok()?) as usize;
    let number = u64::from_le_bytes(header[8..16].try_into().ok()?);
    let expected = u32::from_le_bytes(header[16..20].try_into().ok()?);
    let payload = rest.get(..length)?;
    (checksum(salt, number, payload) == expected).then_some((number, payload))
}

fn checksum(salt: u64, number: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let mut writer = FrameWriter::new(42);
        let mut bytes = writer.header(Kind::Log);
        for payload in payloads {
            let mut frame = FrameWriter::buffer();
            frame.extend_from_slice(payload);
            writer.seal(&mut frame);
            bytes.extend_from_slice(&frame);
        }
        bytes
    }

    #[test]
    fn a_torn_tail_is_left_out_wherever_it_is_cut() {
        let whole = file(&[b"first", b"second"]);
        let first = file(&[b"first"]).len();
        for length in first..whole.len() {
            let frames = read("f", Kind::Log, &whole[..length]).expect("a torn tail is no error");
            assert_eq!(frames.payloads, [b"first"]);
            assert_eq!(frames.valid_length, first);
        }
    }

    #[test]
    fn damage_in_the_middle_is_reported() {
        let whole = file(&[b"first", b"second", b"third"]);
        let third = file(&[b"first", b"second"]).len();
        for offset in HEADER_LENGTH..third {
            let mut damaged = whole.clone();
            damaged[offset] ^= 1;
            let error = read("f", Kind::Log, &damaged).expect_err("damage goes unnoticed");
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
    }

    #[test]
    fn newer_formats_and_foreign_files_are_refused() {
        let mut newer = file(&[]);
        newer[8] = FORMAT as u8 + 1;
        assert!(matches!(
            read("f", Kind::Log, &newer),
            Err(Error::NewerFormat { found, supported: FORMAT, .. }) if found == FORMAT + 1
        ));
        for bytes in [&b"short"[..], &[0; 64]] {
            assert!(matches!(
                read("f", Kind::Log, bytes),
                Err(Error::Corrupt { .. })
            ));
        }
        assert!(matches!(
            read("f", Kind::Checkpoint, &file(&[])),
            Err(Error::Corrupt { .. })
        ));
    }
}
