//! Thin wrappers around system calls that neither std nor nix offers in the form needed here.
//!
//! `/proc` is read by hand and not with the procfs crate: each reader needs one field or stops at the
//! first matching line, and procfs parses every field of every line into owned values first, which on
//! the path of a container's start costs time that grows with the number of mounts.

use std::{
    fs::{self, File},
    io::{self, IoSlice, IoSliceMut},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::{
            fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
};

use files::{atomic_file, mount_table};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::CloneFlags,
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg},
    unistd::{ForkResult, Pid},
};

/// Forks, the child being in new namespaces of these kinds from its first instruction.
///
/// # Safety
/// This process has one thread: only then may the child go on using everything.
pub unsafe fn fork_into(namespaces: CloneFlags) -> nix::Result<ForkResult> {
    // SAFETY: all zeroes is a valid set of arguments: a plain fork.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = namespaces.bits() as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: the arguments outlive the call, and the caller has one thread.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const arguments,
            size_of::<libc::clone_args>(),
        )
    };
    Ok(match Errno::result(pid)? {
        0 => ForkResult::Child,
        pid => ForkResult::Parent {
            child: Pid::from_raw(pid as i32),
        },
    })
}

/// Every signal does again what it does by default.
pub fn forget_signals() {
    for signal in 1..=64 {
        // SAFETY: sets the default disposition; what cannot be set answers with an error.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Closes every descriptor from this one on, whoever owns it: for a process that is about to
/// become something else.
pub fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: takes integers.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return Ok(());
    }
    // A kernel before 5.9.
    for entry in fs::read_dir("/proc/self/fd")?.flatten() {
        let number: Option<RawFd> = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|number| *number >= first) {
            // SAFETY: closing a descriptor; the one of this listing may be closed already.
            unsafe { libc::close(number) };
        }
    }
    Ok(())
}

/// Nanoseconds since the Unix epoch, for processes that live outside the simulation (shim, oci).
pub fn unix_nanos() -> i64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME)
        .unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    now.tv_sec() * 1_000_000_000 + now.tv_nsec()
}

/// Milliseconds of a clock that only moves forward.
pub fn monotonic_millis() -> i64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    now.tv_sec() * 1000 + now.tv_nsec() / 1_000_000
}

pub fn bind_mount(source: &Path, target: &Path) -> nix::Result<()> {
    mount(
        Some(source),
        target,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
}

pub fn mount_tmpfs(target: &Path, options: &str) -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("shm"), target, Some("tmpfs"), flags, Some(options))
}

/// Flags of mounts that only the host sees: what a container makes (a setuid program, a device) has
/// no effect for users of the host who come across it.
pub const HOST_VIEW: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// Takes [`HOST_VIEW`] off a container's root, in the mount namespace of this process, which must
/// not be the host's. A root that is no mount never had it.
pub fn lift_host_view(root: &Path) -> nix::Result<()> {
    let again = MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
    match mount(None::<&str>, root, None::<&str>, again, None::<&str>) {
        Err(Errno::EINVAL) => Ok(()),
        other => other,
    }
}

/// Leaves the host's mount namespace for a copy of it, in which the container's root is as the
/// container shall see it. Mounts that are shared with the host stay so.
pub fn enter_container_view(root: &Path) -> nix::Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    lift_host_view(root)
}

/// Makes a directory and what is missing above it, or finds it, and closes it to everybody but us,
/// regardless of the umask.
pub fn private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

/// Writes a file that only we can read.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use io::Write;
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

/// Detaches everything that is mounted at `target`; there may be nothing.
pub fn unmount(target: &Path) -> nix::Result<()> {
    loop {
        match umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}

/// Mount points at or under `prefix`, deepest last.
pub fn mounts_under(prefix: &Path) -> io::Result<Vec<std::path::PathBuf>> {
    mount_table::mount_points_below(prefix)
}

/// Binds a Unix socket whose path may be longer than a socket address, through the directory's
/// descriptor. Replaces a socket left by a dead process. Only we can connect to it.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    through_directory(path, |short| {
        let listener = UnixListener::bind(short)?;
        fs::set_permissions(short, fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    })
}

/// Connects to a Unix socket whose path may be longer than a socket address.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    through_directory(path, |short| UnixStream::connect(short))
}

fn through_directory<T>(path: &Path, call: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = File::open(parent)?;
    let short = format!("/proc/self/fd/{}", directory.as_raw_fd());
    call(&Path::new(&short).join(name))
}

/// Descriptors that one message may carry.
pub const MOST_DESCRIPTORS: usize = 4;

/// Sends bytes and, with their first one, descriptors. Returns how many bytes were sent.
pub fn send_with(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> nix::Result<usize> {
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &control };
    sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        control,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
}

/// Receives bytes and the descriptors that came with them.
pub fn receive_with(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> nix::Result<(usize, Vec<OwnedFd>)> {
    let mut control = nix::cmsg_space!([RawFd; MOST_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::new();
    if let Ok(controls) = message.cmsgs() {
        for control in controls {
            if let ControlMessageOwned::ScmRights(raw) = control {
                // SAFETY: the kernel made these descriptors for us; nobody else owns them.
                descriptors.extend(
                    raw.into_iter()
                        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
                );
            }
        }
    }
    Ok((message.bytes, descriptors))
}

/// The terminal that an OCI command hands over on its console socket.
pub fn receive_terminal(console: &UnixStream) -> io::Result<OwnedFd> {
    let mut name = [0; 256];
    let (_, descriptors) = receive_with(console.as_fd(), &mut name)?;
    descriptors
        .into_iter()
        .next()
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Tells a terminal its size, and the processes in front of it.
pub fn set_window(terminal: BorrowedFd<'_>, width: u16, height: u16) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: height,
        ws_col: width,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the structure lives through the call, which only reads it.
    match unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor that names one process for good.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes two integers and returns a new descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// When the process was started, in clock ticks since boot: with the pid, its identity.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold anything; fields are counted from its closing parenthesis.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Writes by rename, so that a reader sees the old file or the new one.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    atomic_file::write(path, bytes, atomic_file::Options::private())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_passed_with_bytes() {
        use std::io::{Read, Write};
        let (near, far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        assert_eq!(send_with(near.as_fd(), b"take", &[writer.as_fd()]), Ok(4));
        drop(writer);
        let mut buffer = [0; 16];
        let (count, descriptors) = receive_with(far.as_fd(), &mut buffer).unwrap();
        assert_eq!((&buffer[..count], descriptors.len()), (&b"take"[..], 1));
        for descriptor in descriptors {
            File::from(descriptor).write_all(b"through").unwrap();
        }
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn our_own_start_time_is_known() {
        assert!(start_time(std::process::id() as i32).is_some());
        assert_eq!(start_time(i32::MAX), None);
    }
}
