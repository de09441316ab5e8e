//! The server's side of a shim: starts it, reconnects to it, sends requests and receives exits, over
//! one connection per shim.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use base64::Engine;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixStream, unix::OwnedReadHalf},
    sync::{mpsc, oneshot},
};

use super::{
    Layout,
    protocol::{
        self, Call, Exit, Failure, FailureKind, LARGEST_FRAME, Message, Request, ShimConfig,
        ShimState, Started,
    },
};
use crate::{failpoint, own_executable, run_files, sys};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("shim {path}")]
    Socket {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the shim is gone")]
    Gone,
    #[error("{}", .0.message)]
    Refused(Failure),
    #[error("the shim's answer cannot be understood")]
    Answer,
}

impl Error {
    pub fn kind(&self) -> FailureKind {
        match self {
            Error::Refused(failure) => failure.kind,
            _ => FailureKind::Failed,
        }
    }
}

/// The captured output of an exec.
#[derive(Debug)]
pub struct Captured {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// The standard streams of a container, in addition to its log.
#[derive(Clone, Copy, Debug, Default)]
pub struct ContainerStreams {
    pub stdin: bool,
    pub terminal: bool,
    pub attachable: bool,
}

/// A container to be started.
pub struct Start<'a> {
    pub container: &'a str,
    pub bundle: &'a Path,
    pub log: Option<PathBuf>,
    pub streams: ContainerStreams,
    pub cgroup: &'a str,
    /// Whether this is the sandbox's pause process.
    pub pause: bool,
}

/// What a shim reports without a request.
#[derive(Debug)]
pub enum ShimReport {
    Exited(Exit),
    /// The connection has ended: the shim is gone.
    Gone,
}

/// A connection to one shim. Cheap to clone.
#[derive(Clone)]
pub struct Shim {
    inner: Arc<Inner>,
}

struct Inner {
    writer: mpsc::UnboundedSender<Vec<u8>>,
    next: AtomicU64,
    /// `None` once the connection has ended.
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<Message>>>>,
}

/// Starts a shim in `directory`. The server opens the shim's socket before, so that nothing has to
/// wait for the shim.
pub async fn start(
    command: &[OsString],
    data_dir: &Path,
    directory: &Path,
    config: &ShimConfig,
    reports: mpsc::UnboundedSender<ShimReport>,
) -> Result<Shim, Error> {
    let failed = |source: io::Error| Error::Socket {
        path: directory.to_owned(),
        source,
    };
    let layout = Layout(directory);
    let (program, arguments) = command.split_first().ok_or(Error::Answer)?;
    let bytes = serde_json::to_vec(config).map_err(|error| failed(error.into()))?;
    run_files::create_directory(&layout.oci_root()).map_err(failed)?;
    run_files::write_private(&layout.config(), &bytes).map_err(failed)?;
    failpoint::reach("a shim's directory is made");
    let listener = sys::listen(&layout.socket()).map_err(failed)?;
    let mut child = shim_command(program)
        .args(arguments)
        .arg("--data-dir")
        .arg(data_dir)
        .arg("--id")
        .arg(&config.sandbox)
        .arg("--directory")
        .arg(directory)
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    failpoint::reach("a shim is being started");
    let stream = sys::connect(&layout.socket()).map_err(failed)?;
    // The command forks and ends at once; a failure shows at the socket.
    tokio::spawn(async move {
        if let Ok(status) = child.wait().await
            && !status.success()
        {
            tracing::warn!(%status, "a shim did not start");
        }
    });
    attach(stream, reports).map_err(failed)
}

/// A shim of our own program runs from a sealed executable, as do its children that enter
/// containers.
fn shim_command(program: &OsString) -> tokio::process::Command {
    let sealed = match own_executable::is_own_executable(program.as_ref()) {
        true => own_executable::shared_sealed_executable(),
        false => None,
    };
    let Some(sealed) = sealed else {
        return tokio::process::Command::new(program);
    };
    // The descriptor closes on exec, after its path has been followed.
    let path = format!("/proc/self/fd/{}", sealed.as_raw_fd());
    let mut command = tokio::process::Command::new(path);
    command.arg0(program);
    command
}

/// Finds a shim that an earlier server started.
pub async fn reconnect(
    directory: &Path,
    reports: mpsc::UnboundedSender<ShimReport>,
) -> Result<Shim, Error> {
    let failed = |source: io::Error| Error::Socket {
        path: directory.to_owned(),
        source,
    };
    let stream = sys::connect(&Layout(directory).socket()).map_err(failed)?;
    attach(stream, reports).map_err(failed)
}

fn attach(
    stream: std::os::unix::net::UnixStream,
    reports: mpsc::UnboundedSender<ShimReport>,
) -> io::Result<Shim> {
    stream.set_nonblocking(true)?;
    let (reader, mut write_half) = UnixStream::from_std(stream)?.into_split();
    let (writer, mut frames) = mpsc::unbounded_channel::<Vec<u8>>();
    let inner = Arc::new(Inner {
        writer,
        next: AtomicU64::new(1),
        waiting: Mutex::new(Some(HashMap::new())),
    });
    tokio::spawn(async move {
        while let Some(frame) = frames.recv().await {
            if write_half.write_all(&frame).await.is_err() {
                break;
            }
        }
    });
    tokio::spawn(read(reader, Arc::downgrade(&inner), reports));
    Ok(Shim { inner })
}

async fn read(
    mut reader: OwnedReadHalf,
    inner: std::sync::Weak<Inner>,
    reports: mpsc::UnboundedSender<ShimReport>,
) {
    loop {
        let Some(message) = read_message(&mut reader).await else {
            break;
        };
        if let Some(exit) = message.exited {
            let _ = reports.send(ShimReport::Exited(exit));
            continue;
        }
        let Some(inner) = inner.upgrade() else {
            return;
        };
        let waiter = message
            .id
            .and_then(|id| inner.waiting.lock().as_mut()?.remove(&id));
        if let Some(waiter) = waiter {
            let _ = waiter.send(message);
        }
    }
    if let Some(inner) = inner.upgrade() {
        *inner.waiting.lock() = None;
    }
    let _ = reports.send(ShimReport::Gone);
}

async fn read_message(reader: &mut OwnedReadHalf) -> Option<Message> {
    let length = reader.read_u32().await.ok()? as usize;
    if length > LARGEST_FRAME {
        return None;
    }
    let mut document = vec![0; length];
    reader.read_exact(&mut document).await.ok()?;
    serde_json::from_slice(&document).ok()
}

impl Shim {
    async fn call(&self, request: Request) -> Result<Message, Error> {
        let id = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        failpoint::reach("before a shim is asked for something");
        match self.inner.waiting.lock().as_mut() {
            Some(waiting) => waiting.insert(id, sender),
            None => return Err(Error::Gone),
        };
        let call = Call {
            version: protocol::VERSION,
            id,
            request,
        };
        let frame = protocol::frame(&call).map_err(|_| Error::Answer)?;
        self.inner.writer.send(frame).map_err(|_| Error::Gone)?;
        failpoint::reach("a shim is being asked for something");
        let message = receiver.await.map_err(|_| Error::Gone)?;
        failpoint::reach("a shim has answered");
        match message.error {
            Some(failure) => Err(Error::Refused(failure)),
            None => Ok(message),
        }
    }

    /// Also subscribes to exits, so it must be the first request.
    pub async fn state(&self) -> Result<ShimState, Error> {
        self.call(Request::State).await?.state.ok_or(Error::Answer)
    }

    pub async fn run(&self, start: Start<'_>) -> Result<Started, Error> {
        let request = Request::Run {
            container: start.container.into(),
            bundle: start.bundle.into(),
            log: start.log,
            stdin: start.streams.stdin,
            cgroup: start.cgroup.into(),
            terminal: start.streams.terminal,
            attachable: start.streams.attachable,
            pause: start.pause,
        };
        self.call(request).await?.started.ok_or(Error::Answer)
    }

    pub async fn kill(&self, container: &str, signal: i32, all: bool) -> Result<(), Error> {
        self.call(Request::Kill {
            container: container.into(),
            signal,
            all,
        })
        .await
        .map(|_| ())
    }

    pub async fn delete(&self, container: &str) -> Result<(), Error> {
        self.call(Request::Delete {
            container: container.into(),
        })
        .await
        .map(|_| ())
    }

    pub async fn exec(
        &self,
        container: &str,
        process: serde_json::Value,
        timeout_ms: u64,
    ) -> Result<Captured, Error> {
        let request = Request::Exec {
            container: container.into(),
            process,
            timeout_ms,
        };
        let output = self.call(request).await?.output.ok_or(Error::Answer)?;
        let decode = |text: &str| {
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|_| Error::Answer)
        };
        Ok(Captured {
            code: output.code,
            stdout: decode(&output.stdout)?,
            stderr: decode(&output.stderr)?,
        })
    }

    pub async fn close_stdin(&self, container: &str) -> Result<(), Error> {
        self.call(Request::CloseStdin {
            container: container.into(),
        })
        .await
        .map(|_| ())
    }

    pub async fn reopen_log(&self, container: &str) -> Result<(), Error> {
        self.call(Request::ReopenLog {
            container: container.into(),
        })
        .await
        .map(|_| ())
    }

    pub async fn shutdown(&self) -> Result<(), Error> {
        self.call(Request::Shutdown).await.map(|_| ())
    }
}
