//! How much directories hold and how much room their file systems have. Blocking.

use std::{os::unix::fs::MetadataExt, path::Path};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

impl Usage {
    pub fn add(&mut self, other: Usage) {
        self.bytes += other.bytes;
        self.inodes += other.inodes;
    }
}

/// A file system. What nobody can have (kept for root, or by a quota) counts for neither side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub capacity: u64,
    pub available: u64,
    pub used: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

pub fn space(path: &Path) -> Space {
    let Ok(found) = nix::sys::statvfs::statvfs(path) else {
        return Space::default();
    };
    let block = found.fragment_size();
    let used = (found.blocks() - found.blocks_free()) * block;
    let available = found.blocks_available() * block;
    Space {
        capacity: used + available,
        available,
        used,
        inodes: found.files(),
        inodes_free: found.files_free(),
    }
}

/// Everything at and below `path` that lies on its own file system.
pub fn usage(path: &Path) -> Usage {
    let Ok(root) = std::fs::symlink_metadata(path) else {
        return Usage::default();
    };
    let mut total = Usage {
        bytes: root.blocks() * 512,
        inodes: 1,
    };
    if !root.is_dir() {
        return total;
    }
    let mut waiting = vec![path.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            // Files come and go while we look.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.dev() != root.dev() {
                continue;
            }
            total.add(Usage {
                bytes: metadata.blocks() * 512,
                inodes: 1,
            });
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_summed_and_links_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("d")).expect("made");
        std::fs::write(directory.path().join("d/f"), vec![1; 100_000]).expect("written");
        std::os::unix::fs::symlink("/usr", directory.path().join("l")).expect("linked");
        let found = usage(directory.path());
        assert_eq!(found.inodes, 4);
        assert!(
            found.bytes >= 100_000 && found.bytes < 1_000_000,
            "{found:?}"
        );
        let space = space(directory.path());
        assert_eq!(space.capacity, space.used + space.available);
        assert!(space.inodes >= space.inodes_free);
    }
}
