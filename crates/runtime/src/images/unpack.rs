//! From a compressed layer stream to a finished layer directory: decompression, both digests,
//! sync and rename. What the entries mean is `layer`'s business.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use super::{Error, content::Hashing, layer};

/// The chain ids of a stack of layers, as the OCI image specification defines them.
pub fn chain_ids(diff_ids: &[String]) -> Result<Vec<String>, Error> {
    let mut chain: Vec<String> = Vec::with_capacity(diff_ids.len());
    for diff_id in diff_ids {
        super::content::hex_of(diff_id)?;
        chain.push(match chain.last() {
            None => diff_id.clone(),
            Some(parent) => super::content::sha256(format!("{parent} {diff_id}").as_bytes()),
        });
    }
    Ok(chain)
}

/// Unpacks `compressed` into `target`, which appears only when both digests are right.
/// `parents` are the layer directories below it, highest first.
pub fn unpack(
    compressed: impl Read,
    digest: Option<&str>,
    diff_id: &str,
    parents: &[PathBuf],
    ingest: &Path,
    target: &Path,
) -> Result<(), Error> {
    let _ = fs::remove_dir_all(ingest);
    fs::create_dir_all(ingest).map_err(Error::file(ingest))?;
    let result = unpack_into(compressed, digest, diff_id, parents, ingest);
    if result.is_ok() {
        sync_filesystem(ingest)?;
        match fs::rename(ingest, target) {
            // Somebody else unpacked the same layer meanwhile: theirs is as good.
            Err(_) if target.exists() => {}
            other => return other.map_err(Error::file(target)),
        }
    }
    let _ = fs::remove_dir_all(ingest);
    result
}

fn unpack_into(
    compressed: impl Read,
    digest: Option<&str>,
    diff_id: &str,
    parents: &[PathBuf],
    directory: &Path,
) -> Result<(), Error> {
    let broken = |error: io::Error| Error::Layer(error.to_string());
    let mut compressed = BufReader::with_capacity(1 << 17, Hashing::new(compressed));
    let magic = compressed.fill_buf().map_err(broken)?;
    let kind = Compression::of(magic);
    let actual_diff_id = match kind {
        Compression::Gzip => apply(
            flate2::bufread::MultiGzDecoder::new(&mut compressed),
            directory,
            parents,
        ),
        Compression::Zstd => apply(
            zstd::stream::read::Decoder::with_buffer(&mut compressed).map_err(broken)?,
            directory,
            parents,
        ),
        Compression::None => apply(&mut compressed, directory, parents),
    }?;
    if let Some(expected) = digest {
        // What the buffer holds has already been hashed; the rest follows here.
        let actual = compressed.into_inner().finish().map_err(broken)?;
        if actual != expected {
            return Err(Error::Digest {
                expected: expected.into(),
                actual,
            });
        }
    }
    if actual_diff_id != diff_id {
        return Err(Error::Digest {
            expected: diff_id.into(),
            actual: actual_diff_id,
        });
    }
    Ok(())
}

fn apply(tar: impl Read, directory: &Path, parents: &[PathBuf]) -> Result<String, Error> {
    let mut hashing = Hashing::new(tar);
    layer::apply(&mut hashing, directory, parents)?;
    hashing
        .finish()
        .map_err(|error| Error::Layer(error.to_string()))
}

enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Decided by the first bytes: media types lie more often.
    fn of(magic: &[u8]) -> Compression {
        match magic {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

/// One call instead of an fsync per file.
fn sync_filesystem(directory: &Path) -> Result<(), Error> {
    let file = File::open(directory).map_err(Error::file(directory))?;
    // SAFETY: syncfs only reads the descriptor, which `file` keeps open.
    if unsafe { libc::syncfs(file.as_raw_fd()) } != 0 {
        return Err(Error::file(directory)(io::Error::last_os_error()));
    }
    Ok(())
}
