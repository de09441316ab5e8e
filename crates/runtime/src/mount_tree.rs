//! Detached mount trees: cloned, restricted, given another mapping of owners, attached somewhere.
//! Pods with user namespaces need them with every OCI runtime, and our own OCI runtime makes the root
//! of a container from them.

use std::{
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
const MOUNT_ATTR_RDONLY: libc::c_uint = 1;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
const MOVE_MOUNT_T_EMPTY_PATH: libc::c_uint = 0x40;
const AT_RECURSIVE: libc::c_uint = 0x8000;

#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A detached copy of the mounts at `path`, those below it too. What is mounted there later appears
/// in the copy as well, never the other way round.
pub fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let tree = copy(path, true)?;
    // A peer of the original would take the original's mounts with it when it goes.
    change(
        &tree,
        &MountAttributes {
            propagation: libc::MS_SLAVE,
            ..MountAttributes::default()
        },
    )?;
    Ok(tree)
}

/// A detached copy of the mount at `path`, which goes on sharing what the original shares. With
/// those below it, if `recursive`.
pub fn copy(path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    open_tree(libc::AT_FDCWD, &path, recursive)
}

/// A detached copy of the mount of an open file, which cannot be exchanged as the file at a path can.
pub fn copy_of(place: BorrowedFd<'_>, recursive: bool) -> io::Result<OwnedFd> {
    open_tree(place.as_raw_fd(), c"", recursive)
}

fn open_tree(at: RawFd, path: &CStr, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = libc::OPEN_TREE_CLONE as libc::c_uint | libc::OPEN_TREE_CLOEXEC;
    flags |= libc::AT_EMPTY_PATH as libc::c_uint;
    if recursive {
        flags |= AT_RECURSIVE;
    }
    // SAFETY: a terminated path and flags; returns a new descriptor or an error.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, at, path.as_ptr(), flags) })
}

/// An empty directory that nothing can be written to, not mounted anywhere yet.
pub fn empty_read_only() -> io::Result<OwnedFd> {
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: a terminated name and flags; returns a new descriptor or an error.
    let context =
        owned(unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), FSOPEN_CLOEXEC) })?;
    for (command, key) in [
        (FSCONFIG_SET_FLAG, c"ro".as_ptr()),
        (FSCONFIG_CMD_CREATE, none),
    ] {
        // SAFETY: a descriptor of ours, a terminated name or none, and no value.
        let done = unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                context.as_raw_fd(),
                command,
                key,
                none,
                0,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: a descriptor of ours and flags; returns a new descriptor or an error.
    owned(unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            FSMOUNT_CLOEXEC,
            MOUNT_ATTR_RDONLY,
        )
    })
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Adds attributes (read-only and its like) to a detached tree: to its root, or to `all` of it.
pub fn restrict(tree: &OwnedFd, attributes: u64, all: bool) -> io::Result<()> {
    let attributes = MountAttributes {
        set: attributes,
        ..MountAttributes::default()
    };
    let flags = libc::AT_EMPTY_PATH as libc::c_uint | if all { AT_RECURSIVE } else { 0 };
    set_attributes(tree.as_raw_fd(), c"", flags, &attributes)
}

/// Adds attributes to the mount at `path`, and to none below it.
pub fn restrict_path(path: &Path, attributes: u64) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = MountAttributes {
        set: attributes,
        ..MountAttributes::default()
    };
    set_attributes(libc::AT_FDCWD, &path, 0, &attributes)
}

/// Cuts a detached tree off from what happens to its original.
pub fn make_private(tree: &OwnedFd) -> io::Result<()> {
    change(
        tree,
        &MountAttributes {
            propagation: libc::MS_PRIVATE,
            ..MountAttributes::default()
        },
    )
}

/// Makes what root owns in a detached tree belong to the root of `user_namespace`, and so on.
pub fn map_ids(tree: &OwnedFd, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = MountAttributes {
        set: MOUNT_ATTR_IDMAP,
        user_namespace: user_namespace.as_raw_fd() as u64,
        ..MountAttributes::default()
    };
    change(tree, &attributes)
}

fn change(tree: &OwnedFd, attributes: &MountAttributes) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH as libc::c_uint | AT_RECURSIVE;
    set_attributes(tree.as_raw_fd(), c"", flags, attributes)
}

fn set_attributes(
    at: RawFd,
    path: &CStr,
    flags: libc::c_uint,
    attributes: &MountAttributes,
) -> io::Result<()> {
    // SAFETY: the path and the structure live through the call and the size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at,
            path.as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<MountAttributes>(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Mounts a detached tree at `target`.
pub fn attach(tree: &OwnedFd, target: &Path) -> io::Result<()> {
    let target = CString::new(target.as_os_str().as_bytes())?;
    move_to(tree, libc::AT_FDCWD, &target, MOVE_MOUNT_F_EMPTY_PATH)
}

/// Mounts a detached tree over an open file.
pub fn attach_to(tree: &OwnedFd, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    move_to(tree, target.as_raw_fd(), c"", flags)
}

fn move_to(tree: &OwnedFd, at: RawFd, target: &CStr, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: two terminated paths, two descriptors and flags.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            at,
            target.as_ptr(),
            flags,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether this kernel can map owners at all (5.12 and later).
pub fn maps_ids() -> bool {
    let tried = clone_tree(Path::new("/proc/self/exe")).and_then(|tree| {
        let namespace = std::fs::File::open("/proc/self/ns/user")?;
        map_ids(&tree, std::os::fd::AsFd::as_fd(&namespace))
    });
    // Kernels that know the flag refuse the first namespace of all, and in others our own.
    match tried {
        Ok(()) => true,
        Err(error) => error.raw_os_error() == Some(libc::EPERM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_tree_needs_no_path_and_takes_no_files() {
        let tree = empty_read_only().expect("these tests need root");
        let flags = nix::fcntl::OFlag::O_CREAT | nix::fcntl::OFlag::O_WRONLY;
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
        let refused = nix::fcntl::openat(&tree, "file", flags, mode);
        assert_eq!(refused.err(), Some(nix::errno::Errno::EROFS));
    }

    #[test]
    fn a_copy_is_of_the_opened_directory_and_not_of_its_successor_at_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("null");
        std::fs::write(&path, "opened").unwrap();
        let flags = nix::fcntl::OFlag::O_PATH;
        let opened = nix::fcntl::open(&path, flags, nix::sys::stat::Mode::empty()).unwrap();
        std::fs::rename(&path, directory.path().join("away")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        let inode = |fd: &OwnedFd| nix::sys::stat::fstat(fd).unwrap().st_ino;
        let copy = copy_of(std::os::fd::AsFd::as_fd(&opened), false).expect("a copy");
        assert_eq!(inode(&copy), inode(&opened));
    }
}
