//! Response bodies (a few byte chunks, or a stream for watches and logs) and boxed request bodies.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{BoxStream, Stream};
use http_body::{Frame, SizeHint};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request's body, wherever it came from.
pub(crate) type RequestBody = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

/// A response's body.
pub struct Body(Content);

enum Content {
    /// One object: its beginning, its resourceVersion and its rest, or one chunk for all.
    Few([Bytes; 3]),
    Chunks(VecDeque<Bytes>),
    Stream(BoxStream<'static, Result<Bytes, BoxError>>),
}

impl Body {
    pub(crate) fn empty() -> Body {
        Body(Content::Few(Default::default()))
    }

    /// As [`Body::chunks`], without so much as an allocation.
    pub(crate) fn few(chunks: [Bytes; 3]) -> Body {
        Body(Content::Few(chunks))
    }

    pub(crate) fn chunks(chunks: impl IntoIterator<Item = Bytes>) -> Body {
        Body(Content::Chunks(
            chunks
                .into_iter()
                .filter(|chunk| !chunk.is_empty())
                .collect(),
        ))
    }

    pub(crate) fn stream(
        stream: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
    ) -> Body {
        Body(Content::Stream(Box::pin(stream)))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body::from(Bytes::from(bytes))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body::few([bytes, Bytes::new(), Bytes::new()])
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Content::Few(chunks) => {
                let next = chunks.iter_mut().find(|chunk| !chunk.is_empty());
                Poll::Ready(next.map(|chunk| Ok(Frame::data(std::mem::take(chunk)))))
            }
            Content::Chunks(chunks) => {
                Poll::Ready(chunks.pop_front().map(|chunk| Ok(Frame::data(chunk))))
            }
            Content::Stream(stream) => stream
                .as_mut()
                .poll_next(context)
                .map(|next| next.map(|chunk| chunk.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Few(chunks) => chunks.iter().all(Bytes::is_empty),
            Content::Chunks(chunks) => chunks.is_empty(),
            Content::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Few(chunks) => {
                SizeHint::with_exact(chunks.iter().map(|chunk| chunk.len() as u64).sum())
            }
            Content::Chunks(chunks) => {
                SizeHint::with_exact(chunks.iter().map(|chunk| chunk.len() as u64).sum())
            }
            Content::Stream(_) => SizeHint::default(),
        }
    }
}
