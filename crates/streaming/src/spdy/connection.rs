//! A SPDY connection: one task reads and hands out, one writes; streams are channels to them.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{mpsc, oneshot},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::decode_error::DecodeError;
use super::frame::{CANCEL, Decoder, Encoder, Event, REFUSED_STREAM};
use super::open_streams::{OpenStreams, Role};
use crate::headers::Headers;
use crate::streams::{Outgoing, Sink, Source, WAITING_FRAMES};

/// The most streams that the peer has opened and that have not been accepted yet.
const WAITING_STREAMS: usize = 16;
const READ_SIZE: usize = 32 * 1024;
/// After our goodbye the peer's last bytes are read and dropped for this long, so that the
/// transport does not throw away what we sent.
const LINGER: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the connection is closed")]
    Closed,
    #[error("the peer refused the stream")]
    Refused,
    #[error("too many streams")]
    TooManyStreams,
    #[error(transparent)]
    Frame(#[from] DecodeError),
    #[error("reading from the connection")]
    Read(#[from] io::Error),
}

/// Both halves of a stream and the headers it was opened with.
#[derive(Debug)]
pub struct Stream {
    pub id: u32,
    pub headers: Headers,
    pub source: Source,
    pub sink: Sink,
}

/// Streams that the peer opens; none when the connection is gone.
pub struct Incoming(mpsc::Receiver<Stream>);

impl Incoming {
    pub async fn accept(&mut self) -> Option<Stream> {
        self.0.recv().await
    }
}

/// Dropping it sends GOAWAY and closes the connection.
pub struct Connection {
    outgoing: mpsc::Sender<Outgoing>,
    streams: Arc<OpenStreams>,
    gone: CancellationToken,
    _leaving: DropGuard,
}

impl Connection {
    pub fn start<I>(io: I, role: Role) -> (Connection, Incoming)
    where
        I: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, writer) = tokio::io::split(io);
        let (outgoing, frames) = mpsc::channel(WAITING_FRAMES);
        let (incoming, accepted) = mpsc::channel(WAITING_STREAMS);
        let streams = Arc::new(OpenStreams::new(role));
        let (gone, leaving) = (CancellationToken::new(), CancellationToken::new());
        let writing = write(writer, frames, streams.clone(), leaving.clone());
        let reading = Reading {
            decoder: Decoder::default(),
            streams: streams.clone(),
            outgoing: outgoing.clone(),
            incoming,
            role,
        };
        let (ended, left) = (gone.clone(), leaving.clone());
        tokio::spawn(async move {
            let written = tokio::spawn(writing);
            let writer = written.abort_handle();
            reading.run(reader, left.clone(), ended).await;
            if left.is_cancelled() {
                let _ = tokio::time::timeout(LINGER, written).await;
            }
            writer.abort();
        });
        let connection = Connection {
            outgoing,
            streams,
            gone,
            _leaving: leaving.drop_guard(),
        };
        (connection, Incoming(accepted))
    }

    /// Opens a stream and waits for the peer to agree.
    pub async fn open(&self, headers: Headers) -> Result<Stream, Error> {
        let (chunks, source) = Source::channel();
        let (replied, reply) = oneshot::channel();
        let id = self
            .streams
            .reserve(chunks, replied)
            .ok_or(Error::TooManyStreams)?;
        let frame = Outgoing::Open(id, headers.clone());
        self.outgoing.send(frame).await.map_err(|_| Error::Closed)?;
        match reply.await {
            Ok(()) => Ok(Stream {
                id,
                headers,
                source,
                sink: Sink {
                    id,
                    outgoing: self.outgoing.clone(),
                },
            }),
            Err(_) if self.gone.is_cancelled() => Err(Error::Closed),
            Err(_) => Err(Error::Refused),
        }
    }

    /// Resolves when the peer is gone.
    pub async fn closed(&self) {
        self.gone.cancelled().await;
    }

    /// Says goodbye after everything that was sent before.
    pub async fn end(self) {
        let _ = self.outgoing.send(Outgoing::End).await;
    }
}

struct Reading {
    decoder: Decoder,
    streams: Arc<OpenStreams>,
    outgoing: mpsc::Sender<Outgoing>,
    incoming: mpsc::Sender<Stream>,
    role: Role,
}

impl Reading {
    async fn run<I: AsyncRead>(
        mut self,
        mut reader: ReadHalf<I>,
        leaving: CancellationToken,
        gone: CancellationToken,
    ) {
        let result = tokio::select! {
            biased;
            () = leaving.cancelled() => Ok(()),
            result = self.read(&mut reader) => result,
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a SPDY connection ended");
        }
        // Waiting readers and openers learn that nothing more comes.
        self.streams.clear();
        drop(self.incoming);
        drop(self.outgoing);
        gone.cancel();
        if leaving.is_cancelled() {
            let drain = async {
                let mut rest = vec![0; READ_SIZE];
                while reader.read(&mut rest).await.is_ok_and(|count| count > 0) {}
            };
            let _ = tokio::time::timeout(LINGER, drain).await;
        }
    }

    async fn read<I: AsyncRead>(&mut self, reader: &mut ReadHalf<I>) -> Result<(), Error> {
        loop {
            while let Some(event) = self.decoder.next_event()? {
                if !self.handle(event).await {
                    return Ok(());
                }
            }
            let buffer = self.decoder.buffer();
            buffer.reserve(READ_SIZE);
            if reader.read_buf(buffer).await? == 0 {
                return Ok(());
            }
        }
    }

    /// False when the connection is at its end.
    async fn handle(&mut self, event: Event) -> bool {
        match event {
            Event::Open { id, headers, fin } => return self.opened(id, headers, fin).await,
            Event::Reply { id, fin } => {
                self.streams.replied(id);
                if fin {
                    self.streams.source_ended(id);
                }
            }
            Event::Data { id, bytes, fin } => {
                if let Some(chunks) = self.streams.chunks(id)
                    && !bytes.is_empty()
                {
                    // The stream has no reader any more: the bytes are dropped.
                    let _ = chunks.send(bytes).await;
                }
                if fin {
                    self.streams.source_ended(id);
                }
            }
            Event::Reset { id } => self.streams.forget(id),
            Event::Ping(id) => {
                // Answers to our own pings, which we do not send, would have our parity.
                let theirs = (id % 2 == 1) == (self.role == Role::Server);
                if theirs {
                    return self.outgoing.send(Outgoing::Pong(id)).await.is_ok();
                }
            }
            // Open streams continue until the peer closes.
            Event::GoAway | Event::Other => {}
        }
        true
    }

    async fn opened(&mut self, id: u32, headers: Headers, fin: bool) -> bool {
        let (chunks, source) = Source::channel();
        let theirs = (id % 2 == 1) == (self.role == Role::Server);
        if !theirs || !self.streams.add(id, chunks) {
            let refused = self.outgoing.send(Outgoing::Reset(id)).await;
            return refused.is_ok();
        }
        if fin {
            self.streams.source_ended(id);
        }
        if self.outgoing.send(Outgoing::Reply(id)).await.is_err() {
            return false;
        }
        let stream = Stream {
            id,
            headers,
            source,
            sink: Sink {
                id,
                outgoing: self.outgoing.clone(),
            },
        };
        // A client's connection does not accept streams of the peer.
        if self.incoming.send(stream).await.is_err() {
            self.streams.forget(id);
            return self.outgoing.send(Outgoing::Reset(id)).await.is_ok();
        }
        true
    }
}

async fn write<I: AsyncWrite>(
    mut writer: WriteHalf<I>,
    mut frames: mpsc::Receiver<Outgoing>,
    streams: Arc<OpenStreams>,
    leaving: CancellationToken,
) {
    let (mut encoder, mut out, mut last) = (Encoder::default(), Vec::new(), 0);
    loop {
        // What was sent before a connection is dropped still goes out: the queue comes first.
        let frame = tokio::select! {
            biased;
            frame = frames.recv() => frame,
            () = leaving.cancelled() => None,
        };
        let end = match frame {
            Some(Outgoing::Open(id, headers)) => {
                encoder.open(id, &headers, &mut out);
                false
            }
            Some(Outgoing::Reply(id)) => {
                last = id;
                encoder.reply(id, &mut out);
                false
            }
            Some(Outgoing::Data(id, bytes)) => {
                Encoder::data(id, &bytes, false, &mut out);
                false
            }
            Some(Outgoing::Finish(id)) => {
                streams.sink_ended(id);
                Encoder::data(id, &[], true, &mut out);
                false
            }
            Some(Outgoing::Reset(id)) => {
                streams.forget(id);
                let status = if id > last { REFUSED_STREAM } else { CANCEL };
                Encoder::reset(id, status, &mut out);
                false
            }
            Some(Outgoing::Pong(id)) => {
                Encoder::ping(id, &mut out);
                false
            }
            Some(Outgoing::End) | None => {
                Encoder::go_away(last, &mut out);
                true
            }
        };
        // Frames that wait already are written together with it.
        if !end && !frames.is_empty() && out.len() < READ_SIZE {
            continue;
        }
        if writer.write_all(&out).await.is_err() || writer.flush().await.is_err() {
            return;
        }
        out.clear();
        if end {
            let _ = writer.shutdown().await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[tokio::test]
    async fn streams_carry_bytes_both_ways() {
        let (near, far) = tokio::io::duplex(1000);
        let (client, _) = Connection::start(near, Role::Client);
        let (server, mut incoming) = Connection::start(far, Role::Server);
        let echo = tokio::spawn(async move {
            let mut stream = incoming.accept().await.expect("a stream");
            assert_eq!(stream.headers.get("StreamType"), Some("data"));
            while let Some(bytes) = stream.source.next().await {
                stream.sink.send(bytes).await.expect("open");
            }
            stream.sink.finish().await.expect("open");
            server.closed().await;
        });
        let headers = Headers::new(&[("streamType", "data")]);
        let mut stream = client.open(headers).await.expect("opened");
        let sent: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
        let (sink, bytes) = (stream.sink.clone(), Bytes::from(sent.clone()));
        let sending = tokio::spawn(async move {
            sink.send(bytes).await.expect("open");
            sink.finish().await.expect("open");
        });
        assert_eq!(stream.source.collect(1 << 20).await, sent);
        sending.await.expect("sent");
        client.end().await;
        echo.await.expect("ended");
    }

    #[tokio::test]
    async fn sent_bytes_arrive_before_the_connection_closes() {
        let (near, far) = tokio::io::duplex(64);
        let (client, _) = Connection::start(near, Role::Client);
        let (server, mut incoming) = Connection::start(far, Role::Server);
        let opening = tokio::spawn(async move {
            let mut stream = client.open(Headers::default()).await.expect("opened");
            stream.source.collect(1 << 20).await
        });
        let stream = incoming.accept().await.expect("a stream");
        let sent = vec![b'x'; 100_000];
        stream.sink.send(sent.clone().into()).await.expect("open");
        server.end().await;
        assert_eq!(opening.await.expect("joined"), sent);
    }

    #[tokio::test]
    async fn all_streams_end_when_the_peer_closes_the_connection() {
        let (near, far) = tokio::io::duplex(1000);
        let (client, _) = Connection::start(near, Role::Client);
        let (server, mut incoming) = Connection::start(far, Role::Server);
        let opening = client.open(Headers::default());
        let (mut ours, theirs) = tokio::join!(opening, incoming.accept());
        drop((theirs, server, incoming));
        assert_eq!(ours.as_mut().expect("opened").source.next().await, None);
        client.closed().await;
        assert!(matches!(
            client.open(Headers::default()).await,
            Err(Error::Closed | Error::Refused)
        ));
    }
}
