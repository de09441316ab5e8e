//! Becoming a shim: leave the server's session, take over orphans, move into a cgroup of our own.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixListener,
    },
    path::Path,
    sync::atomic::{AtomicI32, Ordering},
};

use nix::{
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
    unistd::{ForkResult, fork, setsid},
};

use super::{Layout, event_loop::Shim, protocol::ShimConfig};
use crate::{cgroups::Hierarchies, sys};

/// Which side of the forks we are.
pub enum Side {
    Parent,
    Shim(Box<Shim>),
}

/// Forks twice, so that the shim is neither a child of its starter nor a session leader.
pub fn start(directory: &Path) -> io::Result<Side> {
    let directory = fs::canonicalize(directory)?;
    let config: ShimConfig = serde_json::from_slice(&fs::read(Layout(&directory).config())?)?;
    // SAFETY: this process has one thread, so the child may go on using everything.
    if let ForkResult::Parent { .. } = unsafe { fork()? } {
        return Ok(Side::Parent);
    }
    setsid()?;
    // SAFETY: still one thread.
    if let ForkResult::Parent { .. } = unsafe { fork()? } {
        std::process::exit(0);
    }
    std::env::set_current_dir("/")?;
    let listener = take_standard_streams(&directory)?;
    nix::sys::prctl::set_child_subreaper(true)?;
    let _ = nix::sys::prctl::set_name(c"coracle-shim");
    let wake = install_handlers()?;
    let pid = std::process::id() as i32;
    let started = sys::start_time(pid).unwrap_or(0);
    fs::write(Layout(&directory).pid(), format!("{pid} {started}\n"))?;
    let hierarchies = Hierarchies::detect()?;
    if !config.cgroup.is_empty()
        && let Err(error) = hierarchies.join(&config.cgroup, &["memory", "cpu", "pids"])
    {
        eprintln!("shim: joining {}: {error}", config.cgroup);
    }
    // The shim should be the last of its pod to be killed for memory; needs a capability.
    let _ = fs::write("/proc/self/oom_score_adj", "-998");
    Ok(Side::Shim(Box::new(Shim::new(
        directory,
        config,
        listener,
        wake,
        hierarchies,
    ))))
}

/// The socket arrives as standard input; the streams then point to nowhere and to our log.
fn take_standard_streams(directory: &Path) -> io::Result<UnixListener> {
    let socket: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let nothing = File::open("/dev/null")?;
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(Layout(directory).log())?;
    nix::unistd::dup2_stdin(&nothing)?;
    nix::unistd::dup2_stdout(&log)?;
    nix::unistd::dup2_stderr(&log)?;
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

static WAKE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(signal: libc::c_int) {
    if signal == libc::SIGCHLD {
        let one: u64 = 1;
        // SAFETY: write(2) is async-signal-safe and the eventfd lives as long as the process.
        unsafe { libc::write(WAKE.load(Ordering::Relaxed), (&raw const one).cast(), 8) };
    }
}

/// Handlers rather than a blocked mask or ignored signals: those would be inherited by containers.
fn install_handlers() -> io::Result<OwnedFd> {
    // What the server's own parent made it ignore is no business of containers either.
    sys::forget_signals();
    // SAFETY: creates a new descriptor, checked below.
    let fd: RawFd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    let wake = unsafe { OwnedFd::from_raw_fd(fd) };
    WAKE.store(wake.as_raw_fd(), Ordering::Relaxed);
    let action = SigAction::new(
        SigHandler::Handler(on_signal),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGPIPE,
    ] {
        // SAFETY: the handler only calls write(2) on a descriptor that stays open.
        unsafe { sigaction(signal, &action)? };
    }
    Ok(wake)
}
