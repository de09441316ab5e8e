//! The keeper: a tiny single-threaded parent that restarts a crashed server and holds its listening
//! socket, so that a restart queues connections and refuses none.

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
    /// Arguments for the server
    #[arg(last = true)]
    server_arguments: Vec<String>,
}

/// What made the keeper wake up.
enum Wake {
    ServerEnded(ExitStatus),
    StopAsked,
}

/// Runs until asked to stop. Standard input is the API's listening socket.
pub fn run(arguments: KeeperArguments) -> Result<ExitCode> {
    let layout = Layout::existing(&arguments.data_dir)?;
    let settings = layout
        .settings()?
        .context("the data directory has no cluster")?;
    // A session of its own: closing the terminal that ran `up` must not end the cluster.
    let _ = nix::unistd::setsid();
    let _lock = hold(&layout, Role::Keeper)?;
    let _socket = LetGoFirst;
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

    // Read once: after an upgrade in place the link of a running process no longer names a file.
    let program = std::env::current_exe()?;
    let mut backoff = FIRST_BACKOFF_MS;
    loop {
        let _ = std::fs::remove_file(settings.ready_file());
        let mut server = spawn_server(&program, &layout, &listener, &arguments.server_arguments)?;
        match wait_for_server(&mut server, &signals)? {
            Wake::StopAsked => {
                kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM)?;
                server.wait()?;
                return Ok(ExitCode::SUCCESS);
            }
            Wake::ServerEnded(status) if status.success() => return Ok(ExitCode::SUCCESS),
            Wake::ServerEnded(status) => {
                let was_ready = was_ready(&settings);
                complain!("keeper: the server ended: {}", describe(status));
                if !was_ready && backoff == FIRST_BACKOFF_MS && status.code().is_some() {
                    bail!("the server could not start");
                }
                backoff = if was_ready { FIRST_BACKOFF_MS } else { backoff };
            }
        }
        if stop_asked_within(&signals, backoff)? {
            return Ok(ExitCode::SUCCESS);
        }
        backoff = backoff.saturating_mul(2).min(LAST_BACKOFF_MS);
    }
}

/// Lets go of the listening socket. Dropped before the lock on the keeper's file, which says that
/// the port is free.
struct LetGoFirst;

impl Drop for LetGoFirst {
    fn drop(&mut self) {
        if let Ok(nothing) = File::open("/dev/null") {
            let _ = nix::unistd::dup2_stdin(nothing);
        }
    }
}

/// What runs a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// In the background, with a server below it.
    Keeper,
    /// A server in the foreground.
    Server,
    /// An agent in the foreground, whose server is elsewhere.
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

/// The process that runs a data directory: a signal to it stops everything.
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

/// What runs this data directory, if something does.
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
            // Earlier keepers wrote no word.
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

/// Asks whatever runs the data directory to stop, and waits until it has.
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

/// Marks the data directory as run by this process, as long as the file is held.
pub fn hold(layout: &Layout, role: Role) -> Result<File> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(layout.keeper_file())?;
    if file.try_lock().is_err() {
        let directory = layout.data_dir.display();
        match running(layout)? {
            Some(running) => bail!("{directory} is already run by {running}"),
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

fn wait_for_server(server: &mut Child, signals: &SignalFd) -> Result<Wake> {
    loop {
        if let Some(status) = server.try_wait()? {
            return Ok(Wake::ServerEnded(status));
        }
        if stop_signal(signals, PollTimeout::NONE)? {
            return Ok(Wake::StopAsked);
        }
    }
}

fn stop_asked_within(signals: &SignalFd, milliseconds: u16) -> Result<bool> {
    stop_signal(signals, PollTimeout::from(milliseconds))
}

/// Waits for any signal; true when it asks to stop.
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
