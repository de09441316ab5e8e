//! Header blocks: counted names and values, compressed by one zlib stream per direction that lives
//! as long as the connection.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::{decode_error::DecodeError, dictionary::DICTIONARY};
use crate::headers::Headers;

/// No header block may unpack to more.
const LARGEST_BLOCK: usize = 64 * 1024;

pub struct Packer(Compress);

impl Packer {
    pub fn new() -> Packer {
        let mut compress = Compress::new(Compression::best(), true);
        // Only refused when compression has begun.
        let _ = compress.set_dictionary(DICTIONARY);
        Packer(compress)
    }

    pub fn pack(&mut self, headers: &Headers, out: &mut Vec<u8>) {
        let mut plain = Vec::new();
        let number = |plain: &mut Vec<u8>, value: usize| {
            plain.extend_from_slice(&(value as u32).to_be_bytes());
        };
        number(&mut plain, headers.0.len());
        for (name, value) in &headers.0 {
            for text in [name, value] {
                number(&mut plain, text.len());
                plain.extend_from_slice(text.as_bytes());
            }
        }
        let (mut taken, mut piece) = (0, [0; 4096]);
        loop {
            let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
            let result = self
                .0
                .compress(&plain[taken..], &mut piece, FlushCompress::Sync);
            taken += (self.0.total_in() - before_in) as usize;
            let made = (self.0.total_out() - before_out) as usize;
            out.extend_from_slice(&piece[..made]);
            // A piece that was not filled means that nothing is left inside.
            if result.is_err() || (made < piece.len() && taken == plain.len()) {
                return;
            }
        }
    }
}

pub struct Unpacker(Decompress);

impl Unpacker {
    pub fn new() -> Unpacker {
        Unpacker(Decompress::new(true))
    }

    pub fn unpack(&mut self, packed: &[u8]) -> Result<Headers, DecodeError> {
        parse(&self.inflate(packed)?)
    }

    fn inflate(&mut self, packed: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let (mut plain, mut taken, mut piece) = (Vec::new(), 0, [0; 4096]);
        let mut primed = false;
        loop {
            let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
            let result = self
                .0
                .decompress(&packed[taken..], &mut piece, FlushDecompress::Sync);
            taken += (self.0.total_in() - before_in) as usize;
            let made = (self.0.total_out() - before_out) as usize;
            plain.extend_from_slice(&piece[..made]);
            if plain.len() > LARGEST_BLOCK {
                return Err(DecodeError::TooLarge);
            }
            match result {
                Ok(flate2::Status::StreamEnd) => return Err(DecodeError::Compression),
                // No progress: everything there was has come out.
                Ok(_) if made < piece.len() && taken == packed.len() => return Ok(plain),
                Ok(flate2::Status::BufError) => return Ok(plain),
                Ok(flate2::Status::Ok) => {}
                Err(error) if error.needs_dictionary().is_some() && !primed => {
                    primed = true;
                    self.0
                        .set_dictionary(DICTIONARY)
                        .map_err(|_| DecodeError::Compression)?;
                }
                Err(_) => return Err(DecodeError::Compression),
            }
        }
    }
}

fn parse(mut plain: &[u8]) -> Result<Headers, DecodeError> {
    fn number(plain: &mut &[u8]) -> Result<usize, DecodeError> {
        let (head, rest) = plain
            .split_first_chunk::<4>()
            .ok_or(DecodeError::HeaderBlock)?;
        *plain = rest;
        Ok(u32::from_be_bytes(*head) as usize)
    }
    fn text(plain: &mut &[u8]) -> Result<String, DecodeError> {
        let length = number(plain)?;
        let (head, rest) = plain
            .split_at_checked(length)
            .ok_or(DecodeError::HeaderBlock)?;
        *plain = rest;
        Ok(String::from_utf8_lossy(head).into_owned())
    }
    let count = number(&mut plain)?;
    let mut headers = Headers::default();
    for _ in 0..count {
        // Ends at the latest when the bytes do: every pair takes eight of them.
        headers.0.push((text(&mut plain)?, text(&mut plain)?));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_headers_are_unpacked_unchanged() {
        let (mut packer, mut unpacker) = (Packer::new(), Unpacker::new());
        let long = "x".repeat(20_000);
        for headers in [
            Headers::new(&[("streamType", "stdin")]),
            Headers::default(),
            Headers::new(&[("streamtype", "data"), ("port", "80"), ("requestID", "1")]),
            Headers::new(&[("long", &long)]),
        ] {
            let mut packed = Vec::new();
            packer.pack(&headers, &mut packed);
            assert_eq!(unpacker.unpack(&packed), Ok(headers));
        }
    }

    #[test]
    fn headers_that_unpack_to_too_much_are_refused() {
        let (mut packer, mut unpacker) = (Packer::new(), Unpacker::new());
        let mut packed = Vec::new();
        let long = "x".repeat(10 << 20);
        packer.pack(&Headers::new(&[("bomb", &long)]), &mut packed);
        assert!(packed.len() < 64 * 1024);
        assert_eq!(unpacker.unpack(&packed), Err(DecodeError::TooLarge));
    }
}
