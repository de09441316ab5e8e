//! `coracle oci`: runc's command-line interface over libcontainer, in a single-threaded process.
//! Ordinary containers are started without it. libcontainer changes the working directory and runs
//! code after a raw clone, so it must never be called anywhere else.

mod arguments;
mod causes;
mod exec;
mod lifecycle;
mod plain;
mod process;
mod scope;
mod seal;

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::Write,
    process::ExitCode,
};

use arguments::{Command, Invocation};
use environment::chain;
use libcontainer::error::LibcontainerError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("container {0} does not exist")]
    NotFound(String),
    #[error("{what}")]
    System {
        what: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{0}")]
    Container(String),
    #[error(transparent)]
    Libcontainer(Box<LibcontainerError>),
    /// A step of starting a process that a function of libcontainer does.
    #[error("{what}")]
    Step {
        what: &'static str,
        #[source]
        source: Box<dyn std::error::Error>,
    },
    #[error("{what}")]
    Systemd {
        what: String,
        #[source]
        source: dbus::Error,
    },
    #[error("invalid {what}")]
    Json {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    fn system<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        let what = what.into();
        move |source| Error::System {
            what,
            source: source.into(),
        }
    }

    fn step<E: std::error::Error + 'static>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |error| Error::Step {
            what,
            source: Box::new(error),
        }
    }

    /// libcontainer's errors keep the causes in their source.
    fn container(error: LibcontainerError) -> Error {
        Error::Libcontainer(Box::new(error))
    }
}

/// `coracle oci [--root R] [--log F] create|run|start|state|kill|delete|exec|features …`.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(call(arguments, Root::AsMounted))
}

/// Which flags of its mount a container's root keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// All of them, as with runc.
    AsMounted,
    /// Our own runtime mounted it, with flags that are meant for the host's view only.
    HostView,
}

/// The same in a process of one thread that was made for it. Returns the exit code, if at all.
pub fn call(arguments: impl IntoIterator<Item = OsString>, container_root: Root) -> u8 {
    // Rust ignores SIGPIPE; containers must not inherit that.
    // SAFETY: sets a default disposition before any thread or child exists.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let invocation = match Invocation::parse(arguments) {
        Ok(invocation) => invocation,
        Err(error) => {
            eprintln!("{}", chain(&error));
            return 2;
        }
    };
    // Opened now: an exec that fails no longer sees the host's files.
    let log = invocation.log.as_ref().and_then(|path| {
        let mut options = OpenOptions::new();
        options.create(true).append(true).open(path).ok()
    });
    let causes = causes::listen();
    match run(invocation, container_root) {
        Ok(code) => code,
        Err(error) => {
            let mut message = chain(&error).to_string();
            let logged = causes.and_then(|causes| causes.first());
            if let Some(cause) = logged.filter(|cause| !message.contains(cause)) {
                message = format!("{message}: {cause}");
            }
            report(log, &message);
            1
        }
    }
}

fn run(invocation: Invocation, container_root: Root) -> Result<u8, Error> {
    let (root, systemd) = (&invocation.root, invocation.systemd);
    match &invocation.command {
        Command::Create { .. } | Command::Run { .. } | Command::Exec { .. } => seal::ensure()?,
        _ => {}
    }
    match invocation.command {
        Command::Create {
            id,
            bundle,
            pid_file,
            console,
        } => {
            let options = lifecycle::CreateOptions {
                systemd,
                container_root,
            };
            lifecycle::create(root, &id, &bundle, pid_file, console, options).map(|_| 0)
        }
        Command::Run {
            id,
            bundle,
            pid_file,
            console,
        } => {
            let options = lifecycle::CreateOptions {
                systemd,
                container_root,
            };
            lifecycle::run(root, &id, &bundle, pid_file, console, options).map(|()| 0)
        }
        Command::Start { id } => lifecycle::start(root, &id).map(|()| 0),
        Command::State { id } => lifecycle::state(root, &id).map(|()| 0),
        Command::Kill { id, signal, all } => lifecycle::kill(root, &id, signal, all).map(|()| 0),
        Command::Delete { id, force } => lifecycle::delete(root, &id, force).map(|()| 0),
        Command::Exec {
            id,
            process,
            pid_file,
            detach,
            console,
        } => exec::exec(root, &id, &process, pid_file, detach, console.as_deref()),
    }
}

/// As runc does: a JSON line in the log if there is one, else a line on standard error.
fn report(log: Option<File>, message: &str) {
    let line = serde_json::json!({"level": "error", "msg": message});
    let written = log.and_then(|mut file| writeln!(file, "{line}").ok());
    if written.is_none() {
        eprintln!("{message}");
    }
}
