//! Removing a directory that a container wrote into, however deep it made it. std's way goes one
//! call and one open descriptor deeper per level, so that a container could make itself unremovable
//! or end the server; here every level is moved up to the top instead.

use std::{
    ffi::OsString,
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat, renameat},
    sys::stat::Mode,
    unistd::{UnlinkatFlags, unlinkat},
};

/// A missing directory is fine. Mounts inside make it fail.
pub fn remove(path: &Path) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let top = match open(path, flags, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::ENOTDIR | Errno::ELOOP) => return fs::remove_file(path),
        opened => opened?,
    };
    let mut moved = 0_u64;
    loop {
        let directories = remove_files(&top)?;
        if directories.is_empty() {
            return fs::remove_dir(path);
        }
        for name in &directories {
            let directory = openat(&top, name.as_os_str(), flags, Mode::empty())?;
            for below in remove_files(&directory)? {
                move_up(&directory, &below, &top, &mut moved)?;
            }
            match unlinkat(&top, name.as_os_str(), UnlinkatFlags::RemoveDir) {
                // Something was overlooked while its neighbours went; it is found next time.
                Ok(()) | Err(Errno::ENOTEMPTY) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Removes what is not a directory, and returns the names of the rest.
fn remove_files(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut directories = Vec::new();
    for entry in fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))? {
        let name = entry?.file_name();
        match unlinkat(directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::EISDIR) => directories.push(name),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(directories)
}

/// An empty directory is removed at once; another gets a name in `top` that nothing has.
fn move_up(from: &OwnedFd, name: &OsString, top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    match unlinkat(from, name.as_os_str(), UnlinkatFlags::RemoveDir) {
        Err(Errno::ENOTEMPTY) => {}
        done => return Ok(done?),
    }
    loop {
        *moved += 1;
        let free = format!(".removed-{moved}");
        match renameat(from, name.as_os_str(), top, free.as_str()) {
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
            done => return Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::mkdirat;

    #[test]
    fn a_tree_deeper_than_descriptors_and_paths_reach_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().join("top");
        fs::create_dir_all(top.join(".removed-1/full")).unwrap();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let mut at = open(&top, flags, Mode::empty()).unwrap();
        let most = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
        let depth = most.expect("a limit").0.clamp(5000, 50_000) + 100;
        for _ in 0..depth {
            mkdirat(&at, "d", Mode::from_bits_truncate(0o700)).unwrap();
            openat(
                &at,
                "f",
                flags & !OFlag::O_DIRECTORY | OFlag::O_CREAT,
                Mode::empty(),
            )
            .unwrap();
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        std::os::unix::fs::symlink(directory.path(), top.join("link")).unwrap();
        fs::write(directory.path().join("outside"), "").unwrap();
        remove(&top).expect("removed");
        assert!(!top.exists() && directory.path().join("outside").exists());
        remove(&top).expect("again is fine");
    }
}
