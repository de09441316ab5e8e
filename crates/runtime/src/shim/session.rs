//! The server's side of execs and attachments that carry descriptors: each has a connection to the
//! shim of its own, in addition to the connection for requests and exits.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream as StdUnixStream,
    },
    path::{Path, PathBuf},
};

use tokio::{io::Interest, net::UnixStream};

use super::{
    Layout,
    client::Error,
    protocol::{self, Call, LARGEST_FRAME, Message, Request},
};
use crate::sys;

/// The only call of a session.
const CALL: u64 = 1;

pub struct Session {
    stream: UnixStream,
    received: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// The standard streams of a process that is to run; None is nothing.
#[derive(Default)]
pub struct Stdio {
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
}

/// A process that runs on streams of ours.
pub struct Running(Session);

impl Running {
    /// Its code, once it has ended.
    pub async fn ended(mut self) -> Result<i32, Error> {
        let message = self.0.answer().await?;
        Ok(message.output.ok_or(Error::Answer)?.code)
    }
}

/// What attaching gave.
pub struct Attached {
    /// The container's standard input, or its terminal.
    pub stdin: Option<OwnedFd>,
    pub terminal: bool,
}

/// Starts a process in a container on the given streams, or on a terminal that arrives at the
/// `console` socket.
pub async fn exec(
    directory: &Path,
    container: &str,
    process: serde_json::Value,
    stdio: Stdio,
    console: Option<PathBuf>,
) -> Result<Running, Error> {
    let request = Request::ExecStreams {
        container: container.into(),
        process,
        stdin: stdio.stdin.is_some(),
        stdout: stdio.stdout.is_some(),
        stderr: stdio.stderr.is_some(),
        console,
    };
    let given = [&stdio.stdin, &stdio.stdout, &stdio.stderr];
    let given: Vec<_> = given.into_iter().flatten().map(AsFd::as_fd).collect();
    let mut session = Session::begin(directory, request, &given).await?;
    drop(stdio);
    let message = session.answer().await?;
    message.started.ok_or(Error::Answer)?;
    Ok(Running(session))
}

/// From now on the container's output also goes to the given streams.
pub async fn attach(
    directory: &Path,
    container: &str,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
) -> Result<Attached, Error> {
    let request = Request::Attach {
        container: container.into(),
        stdout: stdout.is_some(),
        stderr: stderr.is_some(),
    };
    let given: Vec<_> = [&stdout, &stderr]
        .into_iter()
        .flatten()
        .map(AsFd::as_fd)
        .collect();
    let mut session = Session::begin(directory, request, &given).await?;
    let message = session.answer().await?;
    let attached = message.attached.ok_or(Error::Answer)?;
    Ok(Attached {
        stdin: session.descriptors.pop(),
        terminal: attached.terminal,
    })
}

impl Session {
    async fn begin(
        directory: &Path,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Session, Error> {
        let failed = |source: io::Error| Error::Socket {
            path: directory.to_owned(),
            source,
        };
        let stream: StdUnixStream = sys::connect(&Layout(directory).socket()).map_err(failed)?;
        let call = Call {
            version: protocol::VERSION,
            id: CALL,
            request,
        };
        let frame = protocol::frame(&call).map_err(|_| Error::Answer)?;
        // The connection is new and empty, so the first byte is taken at once.
        sys::send_with(stream.as_fd(), &frame[..1], descriptors)
            .map_err(|errno| failed(errno.into()))?;
        stream.set_nonblocking(true).map_err(failed)?;
        let mut stream = UnixStream::from_std(stream).map_err(failed)?;
        tokio::io::AsyncWriteExt::write_all(&mut stream, &frame[1..])
            .await
            .map_err(failed)?;
        Ok(Session {
            stream,
            received: Vec::new(),
            descriptors: Vec::new(),
        })
    }

    async fn answer(&mut self) -> Result<Message, Error> {
        loop {
            let frame = protocol::take_frame(&mut self.received).map_err(|_| Error::Answer)?;
            if let Some(document) = frame {
                let message: Message =
                    serde_json::from_slice(&document).map_err(|_| Error::Answer)?;
                return match message.error {
                    Some(failure) => Err(Error::Refused(failure)),
                    None => Ok(message),
                };
            }
            let mut chunk = [0; 4096];
            self.stream.readable().await.map_err(|_| Error::Gone)?;
            let received = self.stream.try_io(Interest::READABLE, || {
                Ok(sys::receive_with(self.stream.as_fd(), &mut chunk)?)
            });
            match received {
                Ok((0, _)) => return Err(Error::Gone),
                Ok((count, descriptors)) => {
                    self.received.extend_from_slice(&chunk[..count]);
                    self.descriptors.extend(descriptors);
                    if self.received.len() > LARGEST_FRAME {
                        return Err(Error::Answer);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Error::Gone),
            }
        }
    }
}
