//! The keeper: a small single-threaded parent process that restarts a crashed server. It keeps the
//! listening socket open, so that connections wait during a restart instead of being refused.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::layout::{Layout, Settings};

const FIRST_BACKOFF_MS: u16 = 100;
const LAST_BACKOFF_MS: u16 = 10_000;

#[derive(Args)]
pub struct KeeperArguments {
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Flags of the server
    #[arg(last = true)]
    server_arguments: Vec<String>,
}

/// The event for which the keeper waits.
enum KeeperEvent {
    ServerEnded(ExitStatus),
    StopRequested,
}

/// Runs until a signal stops it. Standard input is the API server's listening socket.
pub fn run(arguments: KeeperArguments) -> Result<ExitCode> {
    let layout = Layout::existing(&arguments.data_dir)?;
    let settings = layout
        .settings()?
        .context("there is no cluster in this data directory")?;
    // In a session of its own the keeper survives the terminal in which `up` ran.
    let _ = nix::unistd::setsid();
    let _lock = register(&layout, Role::Keeper)?;
    let _socket = CloseListenerFirst;
    let listener = std::io::stdin().as_fd().try_clone_to_owned()?;

    let mut signals = SigSet::empty();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGCHLD,
    ] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;

    // The path is read once: after an upgrade in place the link of a running process names no file.
    let program = std::env::current_exe()?;
    let mut backoff = FIRST_BACKOFF_MS;
    loop {
        let _ = std::fs::remove_file(settings.ready_file());
        let mut server = spawn_server(&program, &layout, &listener, &arguments.server_arguments)?;
        match wait_for_server(&mut server, &signals)? {
            KeeperEvent::StopRequested => {
                kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM)?;
                server.wait()?;
                return Ok(ExitCode::SUCCESS);
            }
            KeeperEvent::ServerEnded(status) if status.success() => return Ok(ExitCode::SUCCESS),
            KeeperEvent::ServerEnded(status) => {
                let was_ready = was_ready(&settings);
                print_error!("keeper: the server ended with {}", describe(status));
                if !was_ready && backoff == FIRST_BACKOFF_MS && status.code().is_some() {
                    bail!("the server could not start: see its messages above");
                }
                backoff = if was_ready { FIRST_BACKOFF_MS } else { backoff };
            }
        }
        if stop_requested_within(&signals, backoff)? {
            return Ok(ExitCode::SUCCESS);
        }
        backoff = backoff.saturating_mul(2).min(LAST_BACKOFF_MS);
    }
}

/// Closes the listening socket when it is dropped, before the lock on the keeper's file is released:
/// a free lock means that the port is free.
struct CloseListenerFirst;

impl Drop for CloseListenerFirst {
    fn drop(&mut self) {
        if let Ok(nothing) = File::open("/dev/null") {
            let _ = nix::unistd::dup2_stdin(nothing);
        }
    }
}

/// The kind of process that runs a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A keeper in the background, whose child is the server.
    Keeper,
    /// A server in the foreground.
    Server,
    /// An agent in the foreground, whose server is on another machine.
    Agent,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Role::Keeper => "keeper",
            Role::Server => "server",
            Role::Agent => "agent",
        }
    }
}

/// The process that runs a data directory. SIGTERM to it stops the whole cluster or node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    pub process: i32,
    pub role: Role,
}

impl std::fmt::Display for Running {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let process = self.process;
        match self.role {
            Role::Keeper => write!(formatter, "a server in the background (process {process})"),
            Role::Server => write!(formatter, "a server in the foreground (process {process})"),
            Role::Agent => write!(formatter, "an agent in the foreground (process {process})"),
        }
    }
}

/// The process that runs this data directory, if there is one.
pub fn running(layout: &Layout) -> Result<Option<Running>> {
    let Ok(file) = File::open(layout.keeper_file()) else {
        return Ok(None);
    };
    match file.try_lock() {
        Ok(()) => Ok(None),
        Err(std::fs::TryLockError::WouldBlock) => {
            let text = std::fs::read_to_string(layout.keeper_file())?;
            let mut words = text.split_whitespace();
            let process = words.next().unwrap_or_default().parse();
            let process = process.with_context(|| layout.keeper_file().display().to_string())?;
            // Keepers of earlier versions wrote no role.
            let role = match words.next() {
                Some("server") => Role::Server,
                Some("agent") => Role::Agent,
                _ => Role::Keeper,
            };
            Ok(Some(Running { process, role }))
        }
        Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Stops the process that runs the data directory, and waits until it has ended.
pub fn stop(layout: &Layout, running: Running) -> Result<()> {
    kill(Pid::from_raw(running.process), Signal::SIGTERM)
        .with_context(|| format!("stopping {running}"))?;
    wait_until_stopped(layout)
}

/// Waits until nothing runs the data directory.
fn wait_until_stopped(layout: &Layout) -> Result<()> {
    File::open(layout.keeper_file())?.lock()?;
    Ok(())
}

/// Registers this process as the one that runs the data directory, as long as the returned file is
/// open.
pub fn register(layout: &Layout, role: Role) -> Result<File> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(layout.keeper_file())?;
    if file.try_lock().is_err() {
        let directory = layout.data_dir.display();
        match running(layout)? {
            Some(running) => bail!(
                "{directory} is already run by {running}: stop it with `coracle down`, or choose \
                 another --data-dir"
            ),
            None => bail!("{directory} is already run by another process"),
        }
    }
    file.set_len(0)?;
    writeln!(file, "{} {}", std::process::id(), role.word())?;
    Ok(file)
}

fn spawn_server(
    program: &Path,
    layout: &Layout,
    listener: &OwnedFd,
    arguments: &[String],
) -> Result<Child> {
    Command::new(program)
        .arg("server")
        .arg("--data-dir")
        .arg(&layout.data_dir)
        .arg("--inherit-socket")
        .args(arguments)
        .stdin(Stdio::from(listener.try_clone()?))
        .spawn()
        .context("starting the server")
}

fn wait_for_server(server: &mut Child, signals: &SignalFd) -> Result<KeeperEvent> {
    loop {
        if let Some(status) = server.try_wait()? {
            return Ok(KeeperEvent::ServerEnded(status));
        }
        if stop_signal(signals, PollTimeout::NONE)? {
            return Ok(KeeperEvent::StopRequested);
        }
    }
}

fn stop_requested_within(signals: &SignalFd, milliseconds: u16) -> Result<bool> {
    stop_signal(signals, PollTimeout::from(milliseconds))
}

/// Waits for any signal. Returns whether it was SIGTERM or SIGINT.
fn stop_signal(signals: &SignalFd, timeout: PollTimeout) -> Result<bool> {
    let mut descriptors = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    match poll(&mut descriptors, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut stop = false;
    while let Some(signal) = signals.read_signal()? {
        stop |=
            signal.ssi_signo == Signal::SIGTERM as u32 || signal.ssi_signo == Signal::SIGINT as u32;
    }
    Ok(stop)
}

fn was_ready(settings: &Settings) -> bool {
    settings.ready_file().exists()
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "unknown".to_string(),
    }
}
