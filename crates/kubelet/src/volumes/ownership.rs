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

/// Gives everything below `root` to the group. Does nothing without one.
pub fn apply(root: &Path, group: Option<i64>, read_only: bool) -> Result<(), Error> {
    let Some(group) = group.and_then(|group| u32::try_from(group).ok()) else {
        return Ok(());
    };
    let mask = if read_only { READ_ONLY } else { READ_WRITE };
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
