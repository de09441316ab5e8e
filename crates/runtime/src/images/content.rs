//! Blobs by their sha256: written to a private file, hashed on the way, synced, then renamed into
//! place. A blob is checked again when it is read, and removed if it is damaged.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use environment::chain;
use ring::digest::{Context, SHA256};

use super::Error;
use crate::failpoint;

/// The blobs under one directory.
#[derive(Clone, Debug)]
pub struct Content {
    directory: PathBuf,
}

impl Content {
    pub fn open(directory: PathBuf) -> Result<Content, Error> {
        fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
        Ok(Content { directory })
    }

    pub fn path(&self, digest: &str) -> Result<PathBuf, Error> {
        Ok(self.directory.join(hex_of(digest)?))
    }

    pub fn contains(&self, digest: &str) -> Result<bool, Error> {
        Ok(self.path(digest)?.exists())
    }

    pub fn read(&self, digest: &str) -> Result<Vec<u8>, Error> {
        let path = self.path(digest)?;
        let bytes = fs::read(&path).map_err(Error::file(path))?;
        if let Err(error) = check(digest, &bytes) {
            tracing::warn!(error = %chain(&error), "a stored blob is damaged");
            self.remove(digest)?;
            return Err(error);
        }
        Ok(bytes)
    }

    /// Stores small content (manifests, configurations) after checking it against its digest.
    pub fn put(&self, digest: &str, bytes: &[u8], ingest: &Path) -> Result<(), Error> {
        check(digest, bytes)?;
        if self.read(digest).is_ok() {
            return Ok(());
        }
        let mut file = File::create(ingest).map_err(Error::file(ingest))?;
        file.write_all(bytes).map_err(Error::file(ingest))?;
        self.commit(digest, &file, ingest)
    }

    /// Moves a verified, fully written file into the store.
    pub fn commit(&self, digest: &str, file: &File, written: &Path) -> Result<(), Error> {
        let target = self.path(digest)?;
        file.sync_all().map_err(Error::file(written))?;
        failpoint::reach("before a blob is put in its place");
        fs::rename(written, &target).map_err(Error::file(&target))?;
        sync_directory(&self.directory)
    }

    pub fn remove(&self, digest: &str) -> Result<(), Error> {
        let path = self.path(digest)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file(path)(error)),
            _ => Ok(()),
        }
    }

    /// The bytes of all blobs on disk, and how many there are; `None` if they cannot be read.
    pub fn usage(&self) -> Option<(u64, u64)> {
        files::disk_usage::usage(&self.directory)
    }

    /// Every blob present, as digests.
    pub fn list(&self) -> Result<Vec<String>, Error> {
        let entries = fs::read_dir(&self.directory).map_err(Error::file(&self.directory))?;
        Ok(entries
            .flatten()
            .map(|entry| format!("sha256:{}", entry.file_name().to_string_lossy()))
            .collect())
    }
}

/// The 64 hexadecimal characters of a `sha256:` digest; refuses everything else, so that a digest
/// can be used as a file name.
pub fn hex_of(digest: &str) -> Result<&str, Error> {
    digest
        .strip_prefix("sha256:")
        .filter(|hex| {
            hex.len() == 64
                && hex
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        })
        .ok_or_else(|| Error::DigestFormat(digest.into()))
}

pub fn sha256(bytes: &[u8]) -> String {
    let mut context = Context::new(&SHA256);
    context.update(bytes);
    finish(context)
}

/// Fails unless `bytes` hash to `digest`.
pub fn check(digest: &str, bytes: &[u8]) -> Result<(), Error> {
    let actual = sha256(bytes);
    if actual != digest {
        return Err(Error::Digest {
            expected: digest.into(),
            actual,
        });
    }
    Ok(())
}

pub fn sync_directory(directory: &Path) -> Result<(), Error> {
    File::open(directory)
        .and_then(|file| file.sync_all())
        .map_err(Error::file(directory))
}

/// The digest of what the context has seen.
pub fn finish(context: Context) -> String {
    format!("sha256:{}", hex::encode(context.finish()))
}

/// A reader that hashes what passes through it.
pub struct Hashing<R> {
    inner: R,
    context: Context,
}

impl<R: Read> Hashing<R> {
    pub fn new(inner: R) -> Hashing<R> {
        Hashing {
            inner,
            context: Context::new(&SHA256),
        }
    }

    /// Reads what is left, so that the digest covers the whole stream, and returns the digest.
    pub fn finish(mut self) -> io::Result<String> {
        let mut rest = [0; 16384];
        while self.read(&mut rest)? > 0 {}
        Ok(finish(self.context))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.context.update(&buffer[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_safe_file_names() {
        assert!(hex_of(&sha256(b"")).is_ok());
        for bad in ["sha256:../../etc/passwd", "sha512:00", "sha256:ABC", ""] {
            assert!(hex_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wrong_blob_is_refused() {
        assert!(check(&sha256(b"a"), b"a").is_ok());
        assert!(check(&sha256(b"a"), b"b").is_err());
    }
}
