//! How much disk a directory tree uses.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::errno::Errno;

/// Bytes and inodes of everything at and below `path` on its own file system; a missing path uses
/// nothing. `None` if it could not be read. One directory at a time is open, because the depth is the
/// choice of whoever writes there. Parts that cannot be read, such as directories whose path is too
/// long, are left out, so that a pod cannot hide the rest.
pub fn usage(path: &Path) -> Option<(u64, u64)> {
    let root = match fs::symlink_metadata(path) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some((0, 0)),
        Err(_) => return None,
    };
    let (mut bytes, mut inodes) = (root.blocks() * 512, 1);
    let mut waiting = Vec::new();
    if root.is_dir() {
        waiting.push(path.to_path_buf());
    }
    while let Some(directory) = waiting.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if is_own_fault(&error) => return None,
            Err(_) => continue,
        };
        for entry in entries {
            let (metadata, path) = match entry.and_then(described) {
                Ok(found) => found,
                Err(error) if is_own_fault(&error) => return None,
                Err(_) => continue,
            };
            if metadata.dev() != root.dev() {
                continue;
            }
            bytes += metadata.blocks() * 512;
            inodes += 1;
            if metadata.is_dir() {
                waiting.push(path);
            }
        }
    }
    Some((bytes, inodes))
}

fn described(entry: fs::DirEntry) -> io::Result<(fs::Metadata, PathBuf)> {
    Ok((entry.metadata()?, entry.path()))
}

/// Whether a reading failed because this process lacked something, so that the next one may succeed.
/// Anything else is a property of the file: files come and go while we look.
fn is_own_fault(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(
        code,
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EIO)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_summed_and_links_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("d")).expect("made");
        fs::write(directory.path().join("d/f"), vec![1; 100_000]).expect("written");
        std::os::unix::fs::symlink("/usr", directory.path().join("l")).expect("linked");
        let (bytes, inodes) = usage(directory.path()).expect("readable");
        assert_eq!(inodes, 4);
        assert!((100_000..1_000_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_tree_is_measured_however_deep_it_is() {
        let root = tempfile::tempdir().expect("a directory");
        let mut path = root.path().to_path_buf();
        for _ in 0..1500 {
            path.push("d");
        }
        fs::create_dir_all(&path).expect("made");
        fs::write(path.join("f"), vec![1; 10_000]).expect("written");
        let (bytes, inodes) = usage(root.path()).expect("readable");
        assert_eq!(inodes, 1502);
        assert!(bytes >= 10_000, "{bytes}");
    }

    #[test]
    fn a_missing_directory_is_empty_and_an_unreadable_one_unknown() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(usage(&directory.path().join("missing")), Some((0, 0)));
        // A link that leads to itself cannot be followed on the way to what is asked for.
        let circle = directory.path().join("circle");
        std::os::unix::fs::symlink(&circle, &circle).expect("linked");
        assert_eq!(usage(&circle.join("below")), None);
        let error = io::Error::from_raw_os_error;
        assert!(is_own_fault(&error(Errno::EMFILE as i32)));
        assert!(!is_own_fault(&error(Errno::ENAMETOOLONG as i32)));
    }
}
