//! Starting the OCI command, and pipes that are read without waiting.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{net::UnixListener, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    unistd::ForkResult,
};
use serde::Deserialize;

use crate::{oci, own_executable, sys};

/// The three streams given to a child; none is `/dev/null`.
#[derive(Default)]
pub struct Streams {
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
}

/// The OCI command, found once. Our own needs no other program: it is a child of this shim that
/// calls it. Shims run from a sealed executable, and so it does too; which also keeps this shim's
/// version in use after an upgrade.
pub struct OciCommand {
    command: Vec<String>,
    ours: bool,
}

impl OciCommand {
    pub fn new(command: Vec<String>) -> OciCommand {
        let own = command
            .first()
            .is_some_and(|program| own_executable::is_own_executable(Path::new(program)));
        let sealed = || {
            own_executable::is_sealed()
                .inspect_err(|error| eprintln!("shim: looking at our own executable: {error}"))
                .unwrap_or(false)
        };
        let ours = own && command.get(1).is_some_and(|name| name == "oci") && sealed();
        OciCommand { command, ours }
    }

    /// Whether it is our own, which leaves the plainest things to the shim.
    pub fn is_ours(&self) -> bool {
        self.ours
    }

    /// Starts it and returns its pid; its end is seen by the loop. `bundle` is the one that it is to
    /// make a container of, if it is to make one.
    pub fn start(
        &self,
        root: &Path,
        log: &Path,
        arguments: &[&str],
        streams: Streams,
        bundle: Option<&Path>,
    ) -> io::Result<i32> {
        let (program, first) = self
            .command
            .split_first()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut all: Vec<OsString> = first.iter().map(OsString::from).collect();
        all.extend(["--root".into(), root.into(), "--log".into(), log.into()]);
        all.extend(["--log-format", "json"].map(OsString::from));
        all.extend(arguments.iter().map(OsString::from));
        let _ = fs::remove_file(log);
        if self.ours {
            let root = match bundle {
                Some(_) => oci::Root::HostView,
                None => oci::Root::AsMounted,
            };
            return fork_ours(all, streams, root);
        }
        let stdio = |stream: Option<OwnedFd>| stream.map_or_else(Stdio::null, Stdio::from);
        let mut command = Command::new(program);
        if let Some(bundle) = bundle {
            let root = root_of(bundle)?;
            // SAFETY: two system calls, in a child of a process with one thread.
            unsafe { command.pre_exec(move || Ok(sys::enter_container_view(&root)?)) };
        }
        let child = command
            .args(all)
            .stdin(stdio(streams.stdin))
            .stdout(stdio(streams.stdout))
            .stderr(stdio(streams.stderr))
            .spawn()?;
        Ok(child.id() as i32)
    }
}

/// Calls our own OCI command in a child, as if that had been started as a program: with nothing of
/// the shim's but its memory, in which it ends.
fn fork_ours(arguments: Vec<OsString>, streams: Streams, root: oci::Root) -> io::Result<i32> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: this process has one thread, so the child may go on using everything.
    if let ForkResult::Parent { child } = unsafe { nix::unistd::fork()? } {
        return Ok(child.as_raw());
    }
    let ended = std::panic::catch_unwind(|| {
        let _ = nix::sys::prctl::set_name(c"coracle-oci");
        sys::forget_signals();
        take_streams(&null, &streams)?;
        // The first argument is the command's own name.
        io::Result::Ok(oci::call(arguments.into_iter().skip(1), root))
    });
    let code = ended.map_or(101, |code| code.unwrap_or(1));
    // SAFETY: ends this process without running what the shim registered or dropping what it owns.
    unsafe { libc::_exit(code.into()) }
}

/// The root file system of a bundle.
fn root_of(bundle: &Path) -> io::Result<PathBuf> {
    #[derive(Deserialize)]
    struct Document {
        root: Root,
    }
    #[derive(Deserialize)]
    struct Root {
        path: PathBuf,
    }
    let document: Document = serde_json::from_slice(&fs::read(bundle.join("config.json"))?)?;
    Ok(bundle.join(document.root.path))
}

/// Makes them the standard streams of this process, and closes all else.
fn take_streams(null: &File, streams: &Streams) -> io::Result<()> {
    let given = [&streams.stdin, &streams.stdout, &streams.stderr];
    for (number, stream) in given.into_iter().enumerate() {
        let from = stream.as_ref().map_or(null.as_raw_fd(), AsRawFd::as_raw_fd);
        // SAFETY: both are descriptors of this process, and `from` is none of the standard ones,
        // which the shim keeps open.
        if unsafe { libc::dup2(from, number as i32) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    sys::close_from(3)
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
