//! fsGroup: the group that owns a volume's files and may use them.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, lchown},
    path::Path,
};

use super::{Error, at};

const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const DIRECTORY: u32 = 0o110;
const SET_GID: u32 = 0o2000;

/// Gives everything below `root` to the group. Does nothing without one. `only_on_mismatch`: not
/// even looked at when the root itself is as it should be.
pub fn apply(
    root: &Path,
    group: Option<i64>,
    read_only: bool,
    only_on_mismatch: bool,
) -> Result<(), Error> {
    let Some(group) = group.and_then(|group| u32::try_from(group).ok()) else {
        return Ok(());
    };
    let mask = if read_only { READ_ONLY } else { READ_WRITE };
    if only_on_mismatch {
        let metadata = fs::metadata(root).map_err(at("reading", root))?;
        let wanted = mask | DIRECTORY | SET_GID;
        if metadata.gid() == group && metadata.permissions().mode() & wanted == wanted {
            return Ok(());
        }
    }
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).map_err(at("reading", &path))?;
        if metadata.gid() != group {
            lchown(&path, None, Some(group)).map_err(at("changing the group of", &path))?;
        }
        if metadata.is_symlink() {
            continue;
        }
        let mut mode = metadata.permissions().mode() & 0o7777 | mask;
        if metadata.is_dir() {
            mode |= DIRECTORY | SET_GID;
            for entry in fs::read_dir(&path).map_err(at("reading", &path))? {
                waiting.push(entry.map_err(at("reading", &path))?.path());
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .map_err(at("changing", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ownership_is_not_changed_below_a_matching_root_with_on_root_mismatch() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("f");
        fs::write(&file, "").expect("written");
        let mode = |path: &Path| {
            let metadata = fs::metadata(path).expect("there");
            metadata.permissions().mode() & 0o7777
        };
        let group = fs::metadata(directory.path()).expect("there").gid();
        let apply = |only| apply(directory.path(), Some(group.into()), false, only);
        apply(true).expect("applied");
        assert_eq!(mode(&file) & 0o660, 0o660, "the root did not match yet");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("changed");
        apply(true).expect("applied");
        assert_eq!(mode(&file), 0o600);
        apply(false).expect("applied");
        assert_eq!(mode(&file), 0o660);
    }
}
