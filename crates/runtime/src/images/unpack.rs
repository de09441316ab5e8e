//! From a compressed layer stream to a finished layer directory: decompression, both digests,
//! sync and rename. `layer` handles the entries.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use crate::failpoint;

use super::{
    Error,
    content::Hashing,
    layer::{self, Limits},
    recipe::Tape,
    seal::Seal,
};

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

/// Where one layer is made and where it goes.
pub struct Places<'a> {
    /// The unfinished layer; its recipe is made next to it.
    pub ingest: &'a Path,
    pub target: &'a Path,
    pub seal: &'a Path,
    pub recipe: &'a Path,
}

/// Unpacks `compressed` into its place, which appears only when both digests are right, with its
/// seal and its recipe. `parents` are the layer directories below it, highest first.
pub fn unpack(
    compressed: impl Read,
    digest: Option<&str>,
    diff_id: &str,
    parents: &[PathBuf],
    limits: Limits,
    places: &Places<'_>,
) -> Result<(), Error> {
    let (ingest, target) = (places.ingest, places.target);
    let taped = ingest.with_extension("recipe");
    let _ = fs::remove_dir_all(ingest);
    fs::create_dir_all(ingest).map_err(Error::file(ingest))?;
    let result = unpack_into(compressed, digest, diff_id, parents, limits, ingest, &taped)
        .and_then(|(seal, has_recipe)| {
            failpoint::reach("a layer is unpacked");
            seal.write(places.seal)?;
            if has_recipe {
                fs::rename(&taped, places.recipe).map_err(Error::file(places.recipe))?;
            }
            sync_filesystem(ingest)?;
            failpoint::reach("before a layer is put in its place");
            match fs::rename(ingest, target) {
                // Another process has unpacked the same layer meanwhile; its copy is kept, but the
                // seal describes this one.
                Err(_) if target.exists() => {
                    Seal::of(target, &Default::default())?.write(places.seal)
                }
                other => other.map_err(Error::file(target)),
            }
        });
    let _ = fs::remove_file(&taped);
    let _ = fs::remove_dir_all(ingest);
    result
}

fn unpack_into(
    compressed: impl Read,
    digest: Option<&str>,
    diff_id: &str,
    parents: &[PathBuf],
    limits: Limits,
    directory: &Path,
    taped: &Path,
) -> Result<(Seal, bool), Error> {
    let tape = Tape::create(taped)?;
    let apply = |tar: &mut dyn Read| {
        let mut hashing = Hashing::new(tar);
        let digests = layer::apply(&mut hashing, directory, parents, limits, &tape)?;
        let diff_id = hashing
            .finish()
            .map_err(|error| Error::Layer(error.to_string()))?;
        Ok::<_, Error>((diff_id, digests))
    };
    let broken = |error: io::Error| Error::Layer(error.to_string());
    let mut compressed = BufReader::with_capacity(1 << 17, Hashing::new(compressed));
    let magic = compressed.fill_buf().map_err(broken)?;
    let kind = Compression::of(magic);
    let (actual_diff_id, digests) = match kind {
        Compression::Gzip => apply(&mut flate2::bufread::MultiGzDecoder::new(&mut compressed)),
        Compression::Zstd => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(&mut compressed).map_err(broken)?;
            // A frame may not ask for more memory than any honest encoder does.
            decoder.window_log_max(27).map_err(broken)?;
            apply(&mut decoder)
        }
        Compression::None => apply(&mut compressed),
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
    let has_recipe = tape.finish().map_err(Error::file(taped))?;
    Ok((Seal::of(directory, &digests)?, has_recipe))
}

pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Detected by the first bytes, since media types are often wrong.
    pub fn of(magic: &[u8]) -> Compression {
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
