//! How much disk directories use. Blocking.

use std::{os::unix::fs::MetadataExt, path::Path};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    /// `None` where nobody counts them.
    pub inodes: Option<u64>,
}

impl Usage {
    pub const ZERO: Usage = Usage {
        bytes: 0,
        inodes: Some(0),
    };

    /// The sum, which is unknown if one of them is.
    pub fn sum(all: impl IntoIterator<Item = Option<Usage>>) -> Option<Usage> {
        let mut total = Usage::ZERO;
        for usage in all {
            total.add(usage?);
        }
        Some(total)
    }

    /// The sum of what is known, which is the least it can be; `None` if nothing is known.
    pub fn at_least(all: impl IntoIterator<Item = Option<Usage>>) -> Option<Usage> {
        let mut known = all.into_iter().flatten().peekable();
        known.peek()?;
        Usage::sum(known.map(Some))
    }

    fn add(&mut self, other: Usage) {
        self.bytes += other.bytes;
        let inodes = self.inodes.zip(other.inodes);
        self.inodes = inodes.map(|(own, more)| own + more);
    }
}

/// Everything at and below `path` that lies on its own file system; what is not there takes no room.
/// `None` if it could not be read. Parts that a pod can hide from us, such as directories whose path
/// is too long, are left out: they must not hide the rest.
pub fn usage(path: &Path) -> Option<Usage> {
    let root = match std::fs::symlink_metadata(path) {
        Ok(root) => root,
        Err(error) if is_gone(&error) => return Some(Usage::ZERO),
        Err(_) => return None,
    };
    let of = |metadata: &std::fs::Metadata| Usage {
        bytes: metadata.blocks() * 512,
        inodes: Some(1),
    };
    let mut total = of(&root);
    let mut waiting = Vec::new();
    if root.is_dir() {
        waiting.push(path.to_path_buf());
    }
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
            if metadata.dev() != root.dev() {
                continue;
            }
            total.add(of(&metadata));
            if metadata.is_dir() {
                waiting.push(path);
            }
        }
    }
    Some(total)
}

fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// Whether a reading failed for want of something that this process needs, so that the next one may
/// succeed. Anything else (files come and go while we look) lies with the file.
fn is_own_fault(error: &std::io::Error) -> bool {
    let code = error.raw_os_error().map(nix::errno::Errno::from_raw);
    use nix::errno::Errno::{EIO, EMFILE, ENFILE, ENOMEM};
    matches!(code, Some(EMFILE | ENFILE | ENOMEM | EIO))
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
        let found = usage(directory.path()).expect("readable");
        assert_eq!(found.inodes, Some(4));
        assert!(
            found.bytes >= 100_000 && found.bytes < 1_000_000,
            "{found:?}"
        );
    }

    #[test]
    fn a_missing_directory_is_empty_and_an_unreadable_one_unknown() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("missing");
        assert_eq!(usage(&missing), Some(Usage::ZERO));
        // A link that leads to itself cannot be followed on the way to what is asked for.
        let circle = directory.path().join("circle");
        std::os::unix::fs::symlink(&circle, &circle).expect("linked");
        assert_eq!(usage(&circle.join("below")), None);
        let error = std::io::Error::from_raw_os_error;
        assert!(is_own_fault(&error(nix::errno::Errno::EMFILE as i32)));
        assert!(!is_own_fault(&error(
            nix::errno::Errno::ENAMETOOLONG as i32
        )));
        let one = Usage {
            bytes: 5,
            inodes: None,
        };
        assert_eq!(Usage::sum([Some(one), None]), None);
        assert_eq!(Usage::at_least([Some(one), None]), Some(one));
        assert_eq!(Usage::at_least([None]), None);
        let sum = Usage::sum([Some(one), Some(Usage::ZERO)]).expect("a sum");
        assert_eq!((sum.bytes, sum.inodes), (5, None));
    }
}
