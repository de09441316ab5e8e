//! One stream of a connection, whichever protocol carries it: what arrives (`Source`) and what is
//! sent (`Sink`). Both are bounded: a reader that does not read stops the connection's reading, a
//! connection that does not take bytes stops its writers.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::headers::Headers;

/// Chunks of one stream that may wait for their reader.
pub(crate) const WAITING_CHUNKS: usize = 32;
/// Frames of one connection that may wait to be written.
pub(crate) const WAITING_FRAMES: usize = 16;
/// No frame we send carries more.
pub(crate) const LARGEST_CHUNK: usize = 32 * 1024;

/// The connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection is closed")]
pub struct Closed;

/// What arrives on one stream.
#[derive(Debug)]
pub struct Source(mpsc::Receiver<Bytes>);

impl Source {
    pub(crate) fn channel() -> (mpsc::Sender<Bytes>, Source) {
        let (sender, receiver) = mpsc::channel(WAITING_CHUNKS);
        (sender, Source(receiver))
    }

    /// The next bytes; none when the peer has finished the stream or the connection is gone.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }

    /// Everything until the end, at most `limit` bytes; the rest is dropped.
    pub async fn collect(&mut self, limit: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await {
            let room = limit - all.len();
            all.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        all
    }
}

/// Where bytes of one stream go. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sink {
    pub(crate) id: u32,
    pub(crate) outgoing: mpsc::Sender<Outgoing>,
}

impl Sink {
    /// Sends, in pieces if need be; waits while the connection is busy.
    pub async fn send(&self, mut bytes: Bytes) -> Result<(), Closed> {
        loop {
            let piece = bytes.split_to(bytes.len().min(LARGEST_CHUNK));
            self.push(Outgoing::Data(self.id, piece)).await?;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Nothing more will be sent on this stream.
    pub async fn finish(&self) -> Result<(), Closed> {
        self.push(Outgoing::Finish(self.id)).await
    }

    /// Ends the stream in both directions.
    pub async fn reset(&self) -> Result<(), Closed> {
        self.push(Outgoing::Reset(self.id)).await
    }

    async fn push(&self, outgoing: Outgoing) -> Result<(), Closed> {
        self.outgoing.send(outgoing).await.map_err(|_| Closed)
    }

    /// Resolves when nothing can be sent any more.
    pub async fn closed(&self) {
        self.outgoing.closed().await;
    }
}

/// A message that a connection's writer puts on the wire. A protocol ignores those it has no frame
/// for.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Open(u32, Headers),
    Reply(u32),
    Data(u32, Bytes),
    Finish(u32),
    Reset(u32),
    Pong(u32),
    /// Says goodbye; nothing is written after it.
    End,
}
