//! Network namespaces kept alive by a bind mount, with loopback up.

use std::{
    fs::{self, File},
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
};

use crate::{failpoint, sys};

/// `<state>/netns/<cluster>-<sandbox>`.
pub fn path(state: &Path, cluster_id: &str, sandbox: &str) -> PathBuf {
    state.join("netns").join(format!("{cluster_id}-{sandbox}"))
}

/// Makes the namespace on a thread of its own, which ends with it: namespaces belong to threads.
pub async fn create(path: PathBuf) -> io::Result<()> {
    tokio::task::spawn_blocking(move || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        File::create(&path)?;
        failpoint::reach("a file for a network namespace is made");
        let target = path.clone();
        let made = std::thread::Builder::new()
            .name("netns".into())
            .stack_size(64 << 10)
            .spawn(move || -> io::Result<()> {
                unshare(CloneFlags::CLONE_NEWNET)?;
                raise_loopback()?;
                sys::bind_mount(Path::new("/proc/thread-self/ns/net"), &target)?;
                Ok(())
            })?
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")));
        if made.is_err() {
            let _ = fs::remove_file(&path);
        }
        failpoint::reach("a network namespace is made");
        made
    })
    .await
    .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Removes a file that never became a namespace, or is none any more: plugins take a path that is
/// not there for a namespace that has gone, but stumble over a plain file.
pub fn discard_if_empty(path: &Path) -> io::Result<()> {
    let found = match nix::sys::statfs::statfs(path) {
        Err(Errno::ENOENT) => return Ok(()),
        other => other?,
    };
    match found.filesystem_type() {
        nix::sys::statfs::NSFS_MAGIC => Ok(()),
        _ => fs::remove_file(path),
    }
}

/// Unmounts and removes; nothing there is fine.
pub fn remove(path: &Path) -> io::Result<()> {
    failpoint::reach("before a network namespace is removed");
    sys::unmount(path)?;
    failpoint::reach("a network namespace is removed, its file is not");
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub fn raise_loopback() -> io::Result<()> {
    // SAFETY: a new socket, closed by the owner below.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    let socket = unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(socket) };
    // SAFETY: all-zero is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request lives through the call and is what SIOCSIFFLAGS reads.
    if unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw mut request,
        )
    } != 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
