//! Mounts as trees in hand: cloned, restricted, given another mapping of owners, attached somewhere.
//! This is what user namespaces need, and works with every OCI command, since it happens before one
//! is called; and what our own makes containers of.

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
    let mut flags = libc::OPEN_TREE_CLONE as libc::c_uint | libc::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= AT_RECURSIVE;
    }
    // SAFETY: a terminated path and flags; returns a new descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
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

/// Mounts a detached tree over what a descriptor stands for.
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
