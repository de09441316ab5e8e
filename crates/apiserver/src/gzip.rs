//! gzip made of parts: each part is compressed once, on its own, and parts are strung together into
//! one member without touching their bytes. What lies between them is stored, not compressed.

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};

/// No name, no time, the fastest algorithm, an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
/// The longest stored block.
const LONGEST_STORED: usize = 65_535;

/// Compressed bytes that can stand anywhere in a stream: they end at a byte and refer to nothing
/// before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub bytes: Bytes,
    checksum: u32,
    length: u64,
}

/// Makes parts, one after another, in the same memory.
pub(crate) struct Compressor {
    compress: Compress,
    out: Vec<u8>,
}

impl Compressor {
    pub fn new() -> Compressor {
        Compressor {
            compress: Compress::new(Compression::fast(), false),
            out: Vec::new(),
        }
    }

    pub fn part(&mut self, plain: &[u8]) -> Part {
        self.compress.reset();
        self.out.clear();
        self.out.reserve(plain.len() / 2 + 64);
        loop {
            let taken = self.compress.total_in() as usize;
            let rest = &plain[taken..];
            let done = self
                .compress
                .compress_vec(rest, &mut self.out, FlushCompress::Sync);
            let is_taken = self.compress.total_in() as usize == plain.len();
            match done {
                // All is out when there was room left for more.
                Ok(_) if is_taken && self.out.len() < self.out.capacity() => break,
                Ok(_) => self.out.reserve(self.out.capacity()),
                Err(_) => return Part::stored(plain),
            }
        }
        Part {
            bytes: Bytes::copy_from_slice(&self.out),
            checksum: crc32fast::hash(plain),
            length: plain.len() as u64,
        }
    }
}

impl Part {
    /// As it is, in blocks that say so.
    pub fn stored(plain: &[u8]) -> Part {
        let mut bytes = Vec::with_capacity(plain.len() + 5);
        for block in plain.chunks(LONGEST_STORED) {
            store(&mut bytes, block, false);
        }
        Part {
            bytes: bytes.into(),
            checksum: crc32fast::hash(plain),
            length: plain.len() as u64,
        }
    }

    /// The length of what was compressed.
    pub fn plain_length(&self) -> usize {
        self.length as usize
    }
}

/// The parts as one gzip file.
pub(crate) fn join<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Vec<Bytes> {
    let mut chunks = vec![Bytes::from_static(&HEADER)];
    let mut whole = crc32fast::Hasher::new();
    let mut length = 0u64;
    for part in parts {
        let next = crc32fast::Hasher::new_with_initial_len(part.checksum, part.length);
        whole.combine(&next);
        length += part.length;
        chunks.push(part.bytes.clone());
    }
    let mut end = Vec::with_capacity(13);
    store(&mut end, b"", true);
    end.extend_from_slice(&whole.finalize().to_le_bytes());
    // The format has the length modulo 2^32.
    end.extend_from_slice(&(length as u32).to_le_bytes());
    chunks.push(end.into());
    chunks
}

fn store(out: &mut Vec<u8>, block: &[u8], is_last: bool) {
    let length = block.len() as u16;
    out.push(is_last.into());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(block);
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn unpacked(parts: &[Part]) -> Vec<u8> {
        let file: Vec<u8> = join(parts).concat();
        let mut plain = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(&file[..]);
        decoder.read_to_end(&mut plain).expect("a gzip file");
        plain
    }

    #[test]
    fn parts_become_one_file_whose_checksum_is_right() {
        let long: Vec<u8> = (0..300_000u32)
            .flat_map(|n| (n % 251).to_le_bytes())
            .collect();
        let noise: Vec<u8> = (0..70_000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let plain: [&[u8]; 5] = [b"head", &long, b"", &noise, b"tail"];
        let mut compressor = Compressor::new();
        let parts: Vec<Part> = plain
            .iter()
            .enumerate()
            .map(|(index, plain)| match index % 2 {
                0 => Part::stored(plain),
                _ => compressor.part(plain),
            })
            .collect();
        assert_eq!(unpacked(&parts), plain.concat());
        assert!(parts[1].bytes.len() < long.len() / 10);
        assert_eq!(unpacked(&[]), b"");
        assert_eq!(unpacked(&[Part::stored(&noise)]), noise);
        assert_eq!(unpacked(&[compressor.part(b"")]), b"");
    }
}
