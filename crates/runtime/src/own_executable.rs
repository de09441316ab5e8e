//! The file that this process runs, and how it is kept out of containers' reach: what of ours
//! enters a container's namespaces runs from a read-only detached clone of its mount (or, where the
//! kernel cannot do that, from a sealed memfd), so that `/proc/<pid>/exe` cannot be opened for
//! writing. The clone shares its pages with the original and costs no copy.

use std::{
    fs::File,
    io::{self, Seek, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    sync::OnceLock,
};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// A sealed descriptor that stays the same for as long as this process lives. Every shim is started
/// from it.
pub fn shared_sealed_executable() -> Option<BorrowedFd<'static>> {
    static SEALED: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let sealed = SEALED.get_or_init(|| {
        sealed_executable()
            .inspect_err(|error| tracing::warn!(%error, "sealing our own executable"))
            .ok()
    });
    sealed.as_ref().map(AsFd::as_fd)
}

/// A descriptor of this process's executable that can be run but never leads to a writable file.
pub fn sealed_executable() -> io::Result<OwnedFd> {
    match clone_read_only(c"/proc/self/exe") {
        Ok(fd) => Ok(fd),
        Err(_) => copy_to_memfd(),
    }
}

/// True if `program` is the file that this process runs.
pub fn is_own_executable(program: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    match (identity(program), identity(Path::new("/proc/self/exe"))) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Whether this process runs from a sealed executable.
pub fn is_sealed() -> io::Result<bool> {
    let executable = File::open("/proc/self/exe")?;
    // SAFETY: asks for the seals of an open descriptor; fails with EINVAL if it is no memfd.
    let seals = unsafe { libc::fcntl(executable.as_raw_fd(), libc::F_GET_SEALS) };
    if seals >= 0 && seals & libc::F_SEAL_WRITE != 0 {
        return Ok(true);
    }
    let mut status = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the structure is large enough and only read after the call succeeded.
    let status = unsafe {
        if libc::fstatvfs(executable.as_raw_fd(), status.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        status.assume_init()
    };
    Ok(status.f_flag & libc::ST_RDONLY != 0)
}

fn clone_read_only(path: &std::ffi::CStr) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct MountAttributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const MOUNT_ATTR_RDONLY: u64 = 1;
    const MOUNT_ATTR_NOSUID: u64 = 2;
    // SAFETY: a terminated path and flags; returns a new descriptor or an error.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::OPEN_TREE_CLONE as libc::c_uint | libc::OPEN_TREE_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let attributes = MountAttributes {
        set: MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID,
        clear: 0,
        propagation: libc::MS_PRIVATE,
        user_namespace: 0,
    };
    // SAFETY: the structure lives through the call and its size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

fn copy_to_memfd() -> io::Result<OwnedFd> {
    let fd = memfd_create(
        c"coracle",
        MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING,
    )?;
    let mut copy = File::from(fd);
    io::copy(&mut File::open("/proc/self/exe")?, &mut copy)?;
    copy.flush()?;
    copy.rewind()?;
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: adds seals to a memfd of ours.
    if unsafe { libc::fcntl(copy.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(OwnedFd::from(copy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::CString, os::unix::ffi::OsStrExt};

    #[test]
    fn a_sealed_clone_can_be_read_but_never_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "program").unwrap();
        let path = CString::new(file.path().as_os_str().as_bytes()).unwrap();
        let clone = clone_read_only(&path).unwrap();
        let through = format!("/proc/self/fd/{}", clone.as_raw_fd());
        assert_eq!(std::fs::read_to_string(&through).unwrap(), "program");
        let error = std::fs::OpenOptions::new()
            .write(true)
            .open(&through)
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    }
}
