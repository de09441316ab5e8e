//! The bytes and inodes of a directory tree.

use std::path::Path;

/// Bytes and inodes of a directory tree, of which one directory at a time is open: its depth is the
/// container's choice. `None` if it could not be read for want of something this process needs.
pub fn usage_of(directory: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut inodes) = (0, 0);
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if is_own_fault(&error) => return None,
            Err(_) => continue,
        };
        for entry in entries {
            let found = entry.and_then(|entry| Ok((entry.metadata()?, entry.path())));
            let (metadata, path) = match found {
                Ok(found) => found,
                Err(error) if is_own_fault(&error) => return None,
                Err(_) => continue,
            };
            bytes += metadata.blocks() * 512;
            inodes += 1;
            if metadata.is_dir() {
                waiting.push(path);
            }
        }
    }
    Some((bytes, inodes))
}

/// Whether another attempt may succeed. Anything else (files come and go while we look) lies with
/// the file.
fn is_own_fault(error: &std::io::Error) -> bool {
    use nix::errno::Errno::{EIO, EMFILE, ENFILE, ENOMEM};
    let code = error.raw_os_error().map(nix::errno::Errno::from_raw);
    matches!(code, Some(EMFILE | ENFILE | ENOMEM | EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_measured_however_deep_it_is() {
        let root = tempfile::tempdir().expect("a directory");
        let mut path = root.path().to_path_buf();
        for _ in 0..1500 {
            path.push("d");
        }
        std::fs::create_dir_all(&path).expect("made");
        std::fs::write(path.join("f"), vec![1; 10_000]).expect("written");
        let (bytes, inodes) = usage_of(root.path()).expect("readable");
        assert_eq!(inodes, 1501);
        assert!(bytes >= 10_000, "{bytes}");
        assert_eq!(usage_of(&root.path().join("missing")), Some((0, 0)));
        let error = std::io::Error::from_raw_os_error;
        assert!(is_own_fault(&error(nix::errno::Errno::EMFILE as i32)));
        assert!(!is_own_fault(&error(nix::errno::Errno::ENOENT as i32)));
    }
}
