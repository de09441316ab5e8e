//! How much space a file system has.

use std::path::Path;

/// The space of a file system. Blocks that are reserved for root or by a quota count neither as used
/// nor as available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub capacity: u64,
    pub available: u64,
    pub used: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

impl Space {
    pub fn inodes_used(&self) -> u64 {
        self.inodes.saturating_sub(self.inodes_free)
    }
}

/// `None` if the file system could not be asked.
pub fn space(path: &Path) -> Option<Space> {
    let found = nix::sys::statvfs::statvfs(path).ok()?;
    let block = found.fragment_size();
    let used = found.blocks().saturating_sub(found.blocks_free()) * block;
    let available = found.blocks_available() * block;
    Some(Space {
        capacity: used + available,
        available,
        used,
        inodes: found.files(),
        inodes_free: found.files_free(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_and_available_space_add_up_to_the_capacity() {
        let directory = tempfile::tempdir().expect("a directory");
        let found = space(directory.path()).expect("a file system");
        assert_eq!(found.capacity, found.used + found.available);
        assert!(found.inodes >= found.inodes_free);
        assert_eq!(space(&directory.path().join("missing")), None);
    }
}
