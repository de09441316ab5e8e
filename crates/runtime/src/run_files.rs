//! Small files in the run directory, which is a tmpfs: making and writing one takes microseconds and
//! never waits for a disk. Async code may therefore call these functions directly; a thread for each of
//! them would cost more time than the call.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use crate::sys;

pub fn create_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// The names of the files in a directory; none if it cannot be read.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Writes a file that only root can read.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    sys::write_private(path, bytes)
}

/// Closes a file (or a socket) to everybody but root.
pub fn make_private(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

/// Removes a file; a missing one is fine.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
