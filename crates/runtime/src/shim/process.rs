//! Starting the OCI command, and pipes that are read without waiting.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{net::UnixListener, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde::Deserialize;

use crate::oci;

/// The three streams given to a child.
pub struct Streams {
    pub stdin: Stdio,
    pub stdout: Stdio,
    pub stderr: Stdio,
}

impl Streams {
    pub fn none() -> Streams {
        Streams {
            stdin: Stdio::null(),
            stdout: Stdio::null(),
            stderr: Stdio::null(),
        }
    }
}

/// The OCI command, found once. If it is our own binary, it is run from a sealed descriptor of it,
/// which also keeps this shim's version in use after an upgrade.
pub struct OciCommand {
    command: Vec<String>,
    sealed: Option<OwnedFd>,
}

impl OciCommand {
    pub fn new(command: Vec<String>) -> OciCommand {
        let own = command
            .first()
            .is_some_and(|program| oci::is_own_executable(Path::new(program)));
        let sealed = own.then(oci::sealed_executable).and_then(|sealed| {
            sealed
                .inspect_err(|error| eprintln!("shim: sealing the OCI command: {error}"))
                .ok()
        });
        OciCommand { command, sealed }
    }

    /// Whether it is our own, which leaves the plainest things to the shim.
    pub fn is_ours(&self) -> bool {
        self.sealed.is_some()
    }

    /// Starts it and returns its pid; its end is seen by the loop.
    pub fn start(
        &self,
        root: &Path,
        log: &Path,
        arguments: &[&str],
        streams: Streams,
    ) -> io::Result<i32> {
        let (program, first) = self
            .command
            .split_first()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let path = match &self.sealed {
            // The descriptor closes on exec, after its path has been followed.
            Some(fd) => format!("/proc/self/fd/{}", fd.as_raw_fd()),
            None => program.clone(),
        };
        let _ = fs::remove_file(log);
        let child = Command::new(path)
            .arg0(program)
            .args(first)
            .arg("--root")
            .arg(root)
            .arg("--log")
            .arg(log)
            .args(["--log-format", "json"])
            .args(arguments)
            .stdin(streams.stdin)
            .stdout(streams.stdout)
            .stderr(streams.stderr)
            .spawn()?;
        Ok(child.id() as i32)
    }
}

/// The last error the OCI command wrote to its log.
pub fn last_error(log: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Line {
        #[serde(default)]
        level: String,
        #[serde(default)]
        msg: String,
    }
    let text = fs::read_to_string(log).ok()?;
    text.lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .find(|line| line.level == "error" || line.level == "fatal")
        .map(|line| line.msg)
}

pub fn read_pid(path: &Path) -> Option<i32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The reading end of a child's output.
pub struct Pipe(File);

impl Pipe {
    /// Our end of a terminal.
    pub fn of_terminal(terminal: OwnedFd) -> io::Result<Pipe> {
        crate::sys::set_nonblocking(terminal.as_fd())?;
        Ok(Pipe(File::from(terminal)))
    }

    /// Returns our end, which does not block, and the child's.
    pub fn new() -> io::Result<(Pipe, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        let reader = OwnedFd::from(reader);
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok((Pipe(File::from(reader)), OwnedFd::from(writer)))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Hands over what is there. Returns false when the writers are gone.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        let mut chunk = [0; 16384];
        // Bounded, so that one talkative container does not starve the others.
        for _ in 0..64 {
            match self.0.read(&mut chunk) {
                Ok(0) => return false,
                Ok(length) => take(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}

/// Where the OCI command hands a terminal over.
pub struct Console {
    pub listener: UnixListener,
    /// A path to it that every OCI command can dial: ours may be longer than a socket address, so
    /// that it leads through a descriptor of the shim.
    pub path: String,
    _directory: File,
}

impl Console {
    pub fn open(socket: &Path) -> io::Result<Console> {
        let (Some(parent), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let directory = File::open(parent)?;
        let (shim, descriptor) = (std::process::id(), directory.as_raw_fd());
        Ok(Console {
            listener: crate::sys::listen(socket)?,
            path: format!("/proc/{shim}/fd/{descriptor}/{}", name.to_string_lossy()),
            _directory: directory,
        })
    }
}

/// Files of one run of the OCI command; removed when dropped.
pub struct Scratch {
    pub log: PathBuf,
    pub pid_file: PathBuf,
    pub process: PathBuf,
    pub console: PathBuf,
}

impl Scratch {
    pub fn new(directory: &Path, number: u64) -> Scratch {
        let name = |suffix: &str| directory.join(format!("job-{number}.{suffix}"));
        Scratch {
            log: name("log"),
            pid_file: name("pid"),
            process: name("json"),
            console: name("console"),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for path in [&self.log, &self.pid_file, &self.process, &self.console] {
            let _ = fs::remove_file(path);
        }
    }
}
