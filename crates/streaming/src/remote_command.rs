//! Exec and attach: a session's streams over either protocol, and the report of its outcome.

use bytes::Bytes;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    Sink, Source, Upgrade,
    spdy::{self, Headers},
    upgrade::{self, Refusal},
    websocket::{Channels, Form, Role},
};

const STDIN: u32 = 0;
const STDOUT: u32 = 1;
const STDERR: u32 = 2;
const ERROR: u32 = 3;
const RESIZE: u32 = 4;
const CHANNELS: usize = 5;

const WEBSOCKET: [&str; 6] = [
    "",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    V5,
];
const SPDY: [&str; 4] = [
    V4,
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];
const V4: &str = "v4.channel.k8s.io";
pub const V5: &str = "v5.channel.k8s.io";
const STREAM_TYPE: &str = "streamtype";
/// How long a client may take to open its streams.
const STREAM_CREATION: Duration = Duration::from_secs(30);
/// A status document is never larger.
const LARGEST_STATUS: usize = 1 << 20;

/// Which streams a session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

/// The size of a terminal, as clients send it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Size {
    pub width: u16,
    pub height: u16,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("timed out waiting for client to create streams")]
    StreamCreation,
    #[error("the connection ended before its streams were there")]
    Closed,
    #[error(transparent)]
    Spdy(#[from] spdy::Error),
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    Success,
    Exit(i32),
    /// It was not run, or its end is unknown; the message says why.
    Failure(String),
    /// A status document that another server sent.
    Forwarded(Bytes),
}

/// Agrees with a client on how its session is carried.
pub fn negotiate(headers: &HeaderMap) -> Result<Upgrade, Refusal> {
    upgrade::negotiate(headers, &WEBSOCKET, &SPDY)
}

/// Whether the request asks for the WebSocket form that finishes single channels.
pub fn wants_v5(headers: &HeaderMap) -> bool {
    upgrade::is_websocket(headers) && upgrade::subprotocols(headers).iter().any(|name| name == V5)
}

/// A client's session: its streams, and the way back for the outcome.
pub struct Session {
    pub stdin: Option<Source>,
    pub stdout: Option<Sink>,
    pub stderr: Option<Sink>,
    resize: Option<Source>,
    error: Sink,
    /// Errors are status documents; before v4 they were plain text.
    documents: bool,
    connection: Carrier,
}

enum Carrier {
    WebSocket(Channels),
    Spdy(spdy::Connection),
}

impl Session {
    /// Takes over a connection that has been upgraded as `upgrade` says.
    pub async fn start<I>(io: I, upgrade: &Upgrade, options: Options) -> Result<Session, Error>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match upgrade {
            Upgrade::WebSocket { protocol, .. } => {
                Ok(Session::over_websocket(io, protocol, options).await)
            }
            Upgrade::Spdy { protocol } => {
                let opening = Session::over_spdy(io, protocol, options);
                tokio::time::timeout(STREAM_CREATION, opening)
                    .await
                    .map_err(|_| Error::StreamCreation)?
            }
        }
    }

    async fn over_websocket<I>(io: I, protocol: &str, options: Options) -> Session
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let form = Form::of(protocol);
        let mut channels = Channels::start(io, Role::Server, form, CHANNELS).await;
        let session = Session {
            stdin: channels
                .take_source(STDIN as usize)
                .filter(|_| options.stdin),
            stdout: options.stdout.then(|| channels.sink(STDOUT)),
            stderr: options.stderr.then(|| channels.sink(STDERR)),
            resize: channels.take_source(RESIZE as usize),
            error: channels.sink(ERROR),
            documents: protocol.starts_with("v4.") || protocol.starts_with("v5."),
            connection: Carrier::WebSocket(channels),
        };
        // An empty message on the first channel shows the client that it is connected.
        let first = session.stdout.as_ref().or(session.stderr.as_ref());
        let _ = first.unwrap_or(&session.error).send(Bytes::new()).await;
        session
    }

    async fn over_spdy<I>(io: I, protocol: &str, options: Options) -> Result<Session, Error>
    where
        I: AsyncRead + AsyncWrite + Send + 'static,
    {
        let resizes = options.tty && matches!(protocol, V4 | "v3.channel.k8s.io");
        let wanted = 1
            + usize::from(options.stdin)
            + usize::from(options.stdout)
            + usize::from(options.stderr)
            + usize::from(resizes);
        let (connection, mut incoming) = spdy::Connection::start(io, spdy::Role::Server);
        let (mut stdin, mut stdout, mut stderr, mut resize, mut error) =
            (None, None, None, None, None);
        for _ in 0..wanted {
            let stream = incoming.accept().await.ok_or(Error::Closed)?;
            match stream.headers.get(STREAM_TYPE) {
                Some("stdin") => stdin = Some(stream.source),
                Some("stdout") => stdout = Some(stream.sink),
                Some("stderr") => stderr = Some(stream.sink),
                Some("resize") => resize = Some(stream.source),
                Some("error") => error = Some(stream.sink),
                _ => drop(stream.sink.reset().await),
            }
        }
        Ok(Session {
            stdin: stdin.filter(|_| options.stdin),
            stdout,
            stderr,
            resize,
            error: error.ok_or(Error::Closed)?,
            documents: protocol == V4,
            connection: Carrier::Spdy(connection),
        })
    }

    /// The terminal's sizes, as the client changes them; can be taken once.
    pub fn resizes(&mut self) -> Resizes {
        Resizes {
            source: self.resize.take(),
            pending: Vec::new(),
        }
    }

    /// Resolves when the client is gone.
    pub async fn closed(&self) {
        match &self.connection {
            Carrier::WebSocket(channels) => channels.closed().await,
            Carrier::Spdy(connection) => connection.closed().await,
        }
    }

    /// Sends the outcome, after all output, and closes.
    pub async fn finish(self, outcome: &CommandOutcome) {
        for sink in [self.stdout, self.stderr].into_iter().flatten() {
            let _ = sink.finish().await;
        }
        let text = match self.documents {
            true => Some(status(outcome)),
            false => plain(outcome),
        };
        if let Some(text) = text {
            let _ = self.error.send(text).await;
        }
        let _ = self.error.finish().await;
        match self.connection {
            Carrier::WebSocket(channels) => channels.end().await,
            Carrier::Spdy(connection) => connection.end().await,
        }
    }
}

/// Sizes out of a stream of JSON documents.
pub struct Resizes {
    source: Option<Source>,
    pending: Vec<u8>,
}

impl Resizes {
    /// The next size; never resolves again after the last.
    pub async fn next(&mut self) -> Size {
        loop {
            let mut documents =
                serde_json::Deserializer::from_slice(&self.pending).into_iter::<Size>();
            let first = documents.next();
            let taken = documents.byte_offset();
            match first {
                Some(Ok(size)) => {
                    self.pending.drain(..taken);
                    return size;
                }
                Some(Err(error)) if !error.is_eof() => self.pending.clear(),
                _ => {}
            }
            let next = match &mut self.source {
                Some(source) if self.pending.len() < 4096 => source.next().await,
                _ => None,
            };
            match next {
                Some(bytes) => self.pending.extend_from_slice(&bytes),
                None => std::future::pending().await,
            }
        }
    }
}

#[derive(Serialize)]
struct Status {
    metadata: Empty,
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Serialize)]
struct Cause {
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    message: String,
}

/// The outcome as a `Status` document.
fn status(outcome: &CommandOutcome) -> Bytes {
    let cause = |reason, message: String| {
        Some(Details {
            causes: vec![Cause { reason, message }],
        })
    };
    let failure = |message, reason, details, code| Status {
        metadata: Empty {},
        status: "Failure",
        message,
        reason,
        details,
        code,
    };
    let document = match outcome {
        CommandOutcome::Forwarded(document) => return document.clone(),
        CommandOutcome::Success | CommandOutcome::Exit(0) => Status {
            metadata: Empty {},
            status: "Success",
            message: String::new(),
            reason: "",
            details: None,
            code: None,
        },
        CommandOutcome::Exit(code) => failure(
            format!("command terminated with non-zero exit code: exit status {code}"),
            "NonZeroExitCode",
            cause("ExitCode", code.to_string()),
            None,
        ),
        CommandOutcome::Failure(message) => failure(
            format!("Internal error occurred: {message}"),
            "InternalError",
            cause("", message.clone()),
            Some(500),
        ),
    };
    serde_json::to_vec(&document).unwrap_or_default().into()
}

/// The outcome as clients before v4 read it: nothing for success.
fn plain(outcome: &CommandOutcome) -> Option<Bytes> {
    match outcome {
        CommandOutcome::Success | CommandOutcome::Exit(0) => None,
        CommandOutcome::Exit(code) => {
            Some(format!("command terminated with non-zero exit code: exit status {code}").into())
        }
        CommandOutcome::Failure(message) => Some(message.clone().into()),
        CommandOutcome::Forwarded(document) => Some(document.clone()),
    }
}

/// The other end: a command somewhere else, reached over SPDY.
pub struct Remote {
    pub stdin: Option<Sink>,
    pub stdout: Option<Source>,
    pub stderr: Option<Source>,
    pub resize: Option<Sink>,
    error: Source,
    connection: spdy::Connection,
}

impl Remote {
    /// The stream protocol to ask for.
    pub const PROTOCOL: &str = V4;

    /// Opens the streams on a connection that has been upgraded to SPDY.
    pub async fn start<I>(io: I, options: Options) -> Result<Remote, Error>
    where
        I: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (connection, _) = spdy::Connection::start(io, spdy::Role::Client);
        let open = async |kind: &str, wanted: bool| match wanted {
            true => {
                let headers = Headers::new(&[(STREAM_TYPE, kind)]);
                connection.open(headers).await.map(Some)
            }
            false => Ok(None),
        };
        let error = open("error", true).await?;
        let stdin = open("stdin", options.stdin).await?;
        let stdout = open("stdout", options.stdout).await?;
        let stderr = open("stderr", options.stderr && !options.tty).await?;
        let resize = open("resize", options.tty).await?;
        Ok(Remote {
            stdin: stdin.map(|stream| stream.sink),
            stdout: stdout.map(|stream| stream.source),
            stderr: stderr.map(|stream| stream.source),
            resize: resize.map(|stream| stream.sink),
            error: error.ok_or(Error::Closed)?.source,
            connection,
        })
    }

    /// The status document with which the command ended; empty means success.
    pub async fn outcome(mut self) -> Vec<u8> {
        let document = self.error.collect(LARGEST_STATUS).await;
        self.connection.end().await;
        document
    }
}

/// Joins a client's session with a command reached over SPDY, until one of them ends.
pub async fn join(mut session: Session, remote: Remote) {
    let Remote {
        stdin,
        stdout,
        stderr,
        resize,
        mut error,
        connection,
    } = remote;
    let inward = tokio::spawn(pump(session.stdin.take(), stdin));
    let resizing = tokio::spawn(pump(session.resize.take(), resize));
    let outward = pump_kept(stdout, session.stdout.clone());
    let failing = pump_kept(stderr, session.stderr.clone());
    let ending = async {
        let (document, (), ()) = tokio::join!(error.collect(LARGEST_STATUS), outward, failing);
        document
    };
    let document = tokio::select! {
        document = ending => document,
        () = session.closed() => Vec::new(),
    };
    inward.abort();
    resizing.abort();
    connection.end().await;
    let outcome = match document.is_empty() {
        true => CommandOutcome::Success,
        false => CommandOutcome::Forwarded(document.into()),
    };
    session.finish(&outcome).await;
}

async fn pump(source: Option<Source>, sink: Option<Sink>) {
    if let Some(sink) = sink {
        pump_kept(source, Some(sink.clone())).await;
        let _ = sink.finish().await;
    }
}

async fn pump_kept(source: Option<Source>, sink: Option<Sink>) {
    let (Some(mut source), Some(sink)) = (source, sink) else {
        return;
    };
    while let Some(bytes) = source.next().await {
        if sink.send(bytes).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_of_a_command_is_a_status_document() {
        let text = |outcome| String::from_utf8(status(&outcome).to_vec()).unwrap();
        assert_eq!(
            text(CommandOutcome::Success),
            r#"{"metadata":{},"status":"Success"}"#
        );
        assert_eq!(
            text(CommandOutcome::Exit(3)),
            r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: exit status 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#
        );
        assert!(text(CommandOutcome::Failure("x".into())).contains(r#""code":500"#));
    }

    /// A command that says what it was sent, and its terminal's size, and fails.
    async fn command(mut session: Session) {
        let (mut resizes, mut stdin) = (session.resizes(), session.stdin.take().unwrap());
        let said = stdin.next().await.unwrap();
        let size = resizes.next().await;
        let out = session.stdout.clone().unwrap();
        out.send(format!("{}x{} ", size.width, size.height).into())
            .await
            .unwrap();
        out.send(said).await.unwrap();
        session.finish(&CommandOutcome::Exit(7)).await;
    }

    #[tokio::test]
    async fn a_websocket_client_reaches_a_command_over_spdy() {
        let options = Options {
            stdin: true,
            stdout: true,
            stderr: false,
            tty: true,
        };
        let (client, front) = tokio::io::duplex(1000);
        let (middle, back) = tokio::io::duplex(1000);
        let upgrade = Upgrade::WebSocket {
            protocol: V5.into(),
            accept: String::new(),
        };
        tokio::spawn(async move {
            let session = Session::start(front, &upgrade, options).await.unwrap();
            let remote = Remote::start(middle, options).await.unwrap();
            join(session, remote).await;
        });
        tokio::spawn(async move {
            let upgrade = Upgrade::Spdy {
                protocol: V4.into(),
            };
            command(Session::start(back, &upgrade, options).await.unwrap()).await;
        });
        let mut channels = Channels::start(client, Role::Client, Form::of(V5), CHANNELS).await;
        channels.sink(STDIN).send("hello".into()).await.unwrap();
        let size = r#"{"Width":80,"Height":24}"#;
        channels.sink(RESIZE).send(size.into()).await.unwrap();
        let (mut out, mut error) = (
            channels.take_source(1).unwrap(),
            channels.take_source(3).unwrap(),
        );
        assert_eq!(out.collect(1000).await, b"80x24 hello");
        let document = String::from_utf8(error.collect(1000).await).unwrap();
        assert!(document.contains(r#""message":"7""#), "{document}");
    }
}
