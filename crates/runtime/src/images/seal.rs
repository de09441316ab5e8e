//! A layer's seal: the attributes and digests of its files when it was unpacked, so that damage is
//! noticed before a container runs on it.
//!
//! Looking at every file's attributes and change time is cheap and finds what was done through
//! the file system; where the change time differs, and in a deep check, the content is hashed too.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
};

use files::atomic_file::{self, Options};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::{Error, content};

/// The files of a layer when it was unpacked.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Seal {
    /// Disk space and inodes that the layer takes.
    pub bytes: u64,
    pub inodes: u64,
    /// By path, as bytes in hexadecimal where it is not plain text.
    entries: BTreeMap<String, SealedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SealedFile {
    /// File type and permissions.
    mode: u32,
    owner: (u32, u32),
    /// Length of a file or link, device number of a device.
    size: u64,
    /// When anything about it last changed, in nanoseconds.
    changed: i64,
    /// Of a file's content or a link's target.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    digest: String,
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub enum LayerCondition {
    Sound,
    /// Content and attributes are right, only the change times are others: it was copied.
    Moved,
    Damaged(String),
}

impl Seal {
    /// Describes a directory. `known` gives digests of files by inode that need not be read again.
    pub fn of(directory: &Path, known: &BTreeMap<u64, String>) -> Result<Seal, Error> {
        let mut seal = Seal::default();
        walk(directory, directory, &mut |path, metadata, name| {
            let digest = match known.get(&metadata.ino()) {
                Some(digest) if metadata.is_file() => digest.clone(),
                _ => digest_of(path, metadata)?,
            };
            seal.bytes += metadata.blocks() * 512;
            seal.inodes += 1;
            seal.entries.insert(name, SealedFile::of(metadata, digest));
            Ok(())
        })
        .map_err(Error::file(directory))?;
        Ok(seal)
    }

    /// Compares a directory with its seal.
    pub fn check(&self, directory: &Path, deep: bool) -> io::Result<LayerCondition> {
        let mut seen = 0;
        let mut moved = false;
        let mut damage: Option<String> = None;
        walk(directory, directory, &mut |path, metadata, name| {
            if damage.is_some() {
                return Ok(());
            }
            let Some(expected) = self.entries.get(&name) else {
                damage = Some(format!("{name} does not belong to it"));
                return Ok(());
            };
            seen += 1;
            let mut found = SealedFile::of(metadata, expected.digest.clone());
            // The topmost directory is renamed after it is sealed.
            let touched = found.changed != expected.changed && !name.is_empty();
            found.changed = expected.changed;
            if found == *expected && (deep || touched) {
                found.digest = digest_of(path, metadata)?;
                moved |= touched;
            }
            if found != *expected {
                damage = Some(format!("{name} has changed"));
            }
            Ok(())
        })?;
        Ok(match damage {
            Some(damage) => LayerCondition::Damaged(damage),
            None if seen != self.entries.len() => LayerCondition::Damaged(format!(
                "{} of {} files are missing",
                self.entries.len() - seen,
                self.entries.len()
            )),
            None if moved => LayerCondition::Moved,
            None => LayerCondition::Sound,
        })
    }

    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let json = serde_json::to_vec(self).map_err(|source| Error::Json {
            what: "layer seal",
            source,
        })?;
        let bytes = zstd::encode_all(json.as_slice(), 1).map_err(Error::file(path))?;
        atomic_file::write(path, &bytes, Options::plain().synced()).map_err(Error::file(path))
    }

    /// `None` if there is no readable seal.
    pub fn read(path: &Path) -> Option<Seal> {
        let file = File::open(path).ok()?;
        let reader = zstd::stream::read::Decoder::new(file).ok()?;
        serde_json::from_reader(io::BufReader::new(reader)).ok()
    }
}

impl SealedFile {
    fn of(metadata: &fs::Metadata, digest: String) -> SealedFile {
        let kind = metadata.file_type();
        let size = if kind.is_dir() {
            0
        } else if kind.is_char_device() || kind.is_block_device() {
            metadata.rdev()
        } else {
            metadata.len()
        };
        SealedFile {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            size,
            changed: metadata.ctime() * 1_000_000_000 + metadata.ctime_nsec(),
            digest,
        }
    }
}

/// Visits everything below `directory` and itself, links not followed.
fn walk(
    root: &Path,
    directory: &Path,
    visit: &mut impl FnMut(&Path, &fs::Metadata, String) -> io::Result<()>,
) -> io::Result<()> {
    let metadata = fs::symlink_metadata(directory)?;
    visit(directory, &metadata, name_of(root, directory))?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            walk(root, &path, visit)?;
        } else {
            visit(&path, &metadata, name_of(root, &path))?;
        }
    }
    Ok(())
}

fn name_of(root: &Path, path: &Path) -> String {
    let relative = path.strip_prefix(root).unwrap_or(path);
    match relative.to_str() {
        Some(text) if !text.starts_with("\\x") => text.to_owned(),
        _ => {
            let bytes = relative.as_os_str().as_bytes();
            let hex = hex::encode(bytes);
            format!("\\x{hex}")
        }
    }
}

fn digest_of(path: &Path, metadata: &fs::Metadata) -> io::Result<String> {
    if metadata.is_symlink() {
        return Ok(content::sha256(fs::read_link(path)?.as_os_str().as_bytes()));
    }
    if !metadata.is_file() {
        return Ok(String::new());
    }
    let mut context = Context::new(&SHA256);
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(content::finish(context)),
            count => context.update(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_noticed_and_a_copy_is_not_damage() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let layer = directory.path().join("layer");
        fs::create_dir_all(layer.join("a/b")).expect("directory");
        fs::write(layer.join("a/file"), "content").expect("file");
        std::os::unix::fs::symlink("file", layer.join("a/link")).expect("link");
        let seal = Seal::of(&layer, &BTreeMap::new()).expect("sealed");
        let path = directory.path().join("seal");
        seal.write(&path).expect("written");
        let seal = Seal::read(&path).expect("read");
        assert_eq!(seal.inodes, 5);
        let check = |deep| seal.check(&layer, deep).expect("checked");
        assert_eq!(check(false), LayerCondition::Sound);
        assert_eq!(check(true), LayerCondition::Sound);
        fs::write(layer.join("a/file"), "CONTENT").expect("file");
        assert!(
            matches!(check(false), LayerCondition::Damaged(_)),
            "same size"
        );
        fs::write(layer.join("a/file"), "content").expect("file");
        assert_eq!(check(false), LayerCondition::Moved);
        fs::write(layer.join("a/more"), "").expect("file");
        assert!(
            matches!(check(false), LayerCondition::Damaged(_)),
            "one more"
        );
        fs::remove_file(layer.join("a/more")).expect("removed");
        fs::remove_file(layer.join("a/link")).expect("removed");
        assert!(
            matches!(check(false), LayerCondition::Damaged(_)),
            "one less"
        );
    }
}
