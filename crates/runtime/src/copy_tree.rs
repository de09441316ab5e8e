//! A copy of a directory with everything that a container could notice: owners, modes, times, links
//! and extended attributes. Only for trees that do not change meanwhile. Without recursion, since
//! how deep a tree is was decided by whoever made it.

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink},
    },
    path::{Path, PathBuf},
};

use nix::sys::stat::{Mode, SFlag, mknod};

/// Copies what is in `from`, and what `from` itself is like, to the existing directory `to`.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut linked: HashMap<u64, PathBuf> = HashMap::new();
    let mut open = vec![(from.to_owned(), to.to_owned())];
    let mut directories = Vec::new();
    while let Some((source, target)) = open.pop() {
        for entry in fs::read_dir(&source)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let (source, target) = (entry.path(), target.join(entry.file_name()));
            if metadata.is_dir() {
                fs::create_dir(&target)?;
                open.push((source, target));
                continue;
            }
            if metadata.nlink() > 1 {
                if let Some(first) = linked.get(&metadata.ino()) {
                    fs::hard_link(first, &target)?;
                    continue;
                }
                linked.insert(metadata.ino(), target.clone());
            }
            if copy_entry(&source, &target, &metadata)? {
                take_attributes(&source, &target, &metadata)?;
            }
        }
        directories.push((source, target));
    }
    // Last, since what is put into a directory changes its time, and a mode may forbid it.
    for (source, target) in directories.into_iter().rev() {
        take_attributes(&source, &target, &fs::symlink_metadata(&source)?)?;
    }
    Ok(())
}

/// Copies anything but a directory. Returns false for a socket, which is left out since a copy of it
/// would be of no use.
fn copy_entry(source: &Path, target: &Path, metadata: &fs::Metadata) -> io::Result<bool> {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        symlink(fs::read_link(source)?, target)?;
    } else if kind.is_file() {
        fs::copy(source, target)?;
    } else if kind.is_socket() {
        return Ok(false);
    } else {
        let kind = match (kind.is_fifo(), kind.is_block_device()) {
            (true, _) => SFlag::S_IFIFO,
            (_, true) => SFlag::S_IFBLK,
            _ => SFlag::S_IFCHR,
        };
        let mode = Mode::from_bits_truncate(0o600);
        mknod(target, kind, mode, metadata.rdev())?;
    }
    Ok(true)
}

fn take_attributes(source: &Path, target: &Path, metadata: &fs::Metadata) -> io::Result<()> {
    lchown(target, Some(metadata.uid()), Some(metadata.gid()))?;
    // After the owner, whose change takes setuid bits and capabilities away.
    if !metadata.is_symlink() {
        let mode = fs::Permissions::from_mode(metadata.mode() & 0o7777);
        fs::set_permissions(target, mode)?;
    }
    let (source, target) = (c_string(source)?, c_string(target)?);
    for name in attribute_names(&source)? {
        copy_attribute(&source, &target, &name)?;
    }
    set_times(&target, metadata)
}

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Without those that steer overlayfs.
fn attribute_names(path: &CStr) -> io::Result<Vec<CString>> {
    let mut names = vec![0_u8; 1 << 16];
    // SAFETY: the buffer is valid for the length given, and the path ends with a zero.
    let length = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    let Ok(length) = usize::try_from(length) else {
        return match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOTSUP) => Ok(Vec::new()),
            error => Err(error),
        };
    };
    Ok(names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty() && !name.starts_with(b"trusted."))
        .filter_map(|name| CString::new(name).ok())
        .collect())
}

/// A file system without this kind of attribute is no reason to refuse.
fn copy_attribute(source: &CStr, target: &CStr, name: &CStr) -> io::Result<()> {
    let mut value = vec![0_u8; 1 << 16];
    let (buffer, room) = (value.as_mut_ptr().cast(), value.len());
    // SAFETY: the buffer is valid for the length given, and the strings end with zeroes.
    let length = unsafe { libc::lgetxattr(source.as_ptr(), name.as_ptr(), buffer, room) };
    let Ok(length) = usize::try_from(length) else {
        return Err(io::Error::last_os_error());
    };
    let bytes = value[..length].as_ptr().cast();
    // SAFETY: as above; the value is only read.
    let set = unsafe { libc::lsetxattr(target.as_ptr(), name.as_ptr(), bytes, length, 0) };
    match io::Error::last_os_error() {
        _ if set == 0 => Ok(()),
        error if error.raw_os_error() == Some(libc::ENOTSUP) => Ok(()),
        error => Err(error),
    }
}

fn set_times(path: &CStr, metadata: &fs::Metadata) -> io::Result<()> {
    let time = |seconds: i64, nanoseconds: i64| libc::timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let times = [
        time(metadata.atime(), metadata.atime_nsec()),
        time(metadata.mtime(), metadata.mtime_nsec()),
    ];
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: two timespecs and a terminated path, both alive during the call.
    match unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_owners_modes_times_and_links() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("below/deeper")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("below/program"), "bytes").unwrap();
        fs::hard_link(from.join("below/program"), from.join("again")).unwrap();
        symlink("/nowhere", from.join("link")).unwrap();
        nix::unistd::mkfifo(&from.join("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        lchown(from.join("below/program"), Some(12), Some(34)).expect("these tests need root");
        lchown(from.join("link"), Some(56), Some(78)).unwrap();
        lchown(&from, Some(9), Some(9)).unwrap();
        let set = |path: &str, mode| {
            fs::set_permissions(from.join(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        set("below/program", 0o4755);
        set("below/deeper", 0o1777);
        set("below", 0o500);
        set("", 0o711);
        copy(&from, &to).unwrap();
        for path in [
            ".",
            "below",
            "below/deeper",
            "below/program",
            "again",
            "link",
            "fifo",
        ] {
            let (old, new) = (from.join(path), to.join(path));
            let old = fs::symlink_metadata(old).unwrap();
            let new = fs::symlink_metadata(new).unwrap();
            assert_eq!(
                (old.mode(), old.uid(), old.gid(), old.mtime_nsec()),
                (new.mode(), new.uid(), new.gid(), new.mtime_nsec()),
                "{path}"
            );
        }
        let inode = |path: &str| fs::metadata(to.join(path)).unwrap().ino();
        assert_eq!(inode("again"), inode("below/program"));
        assert_eq!(
            fs::read_link(to.join("link")).unwrap(),
            Path::new("/nowhere")
        );
        assert_eq!(fs::read(to.join("again")).unwrap(), b"bytes");
        assert!(!to.join("socket").exists());
    }
}
