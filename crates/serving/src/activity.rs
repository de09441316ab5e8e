//! The activity of one connection: requests in flight, since when it is idle, bytes read and written.
//! Wrappers around its stream and its responses' bodies report to it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The state that the connection's task, its wrappers and the ledger share.
#[derive(Debug)]
pub(crate) struct Activity {
    /// Requests that were read and whose answers have not ended, and upgraded connections.
    in_flight: AtomicUsize,
    /// Those of them that may take any time: bodies without a known length, and upgrades.
    lasting: AtomicUsize,
    /// Those of them whose answer has begun.
    answering: AtomicUsize,
    served: AtomicBool,
    /// A request has shown a valid credential.
    known: AtomicBool,
    /// Bytes that the peer has received.
    pub written: AtomicU64,
    /// Since when there is no request, and since when the head of the next one is coming in.
    quiet: Mutex<Quiet>,
    /// Of HTTP/2 connections, bytes that are read say nothing about requests.
    pub multiplexed: AtomicBool,
    /// Cancelled when the connection has to close for another one.
    pub evicted: CancellationToken,
}

#[derive(Debug)]
struct Quiet {
    since: Instant,
    head: Option<Instant>,
}

/// A look at an activity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub in_flight: usize,
    pub lasting: usize,
    pub answering: usize,
    pub served: bool,
    pub written: u64,
    pub quiet_since: Instant,
    pub head_since: Option<Instant>,
}

impl Activity {
    pub fn new() -> Activity {
        Activity {
            in_flight: AtomicUsize::new(0),
            lasting: AtomicUsize::new(0),
            answering: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            known: AtomicBool::new(false),
            written: AtomicU64::new(0),
            quiet: Mutex::new(Quiet {
                since: Instant::now(),
                head: None,
            }),
            multiplexed: AtomicBool::new(false),
            evicted: CancellationToken::new(),
        }
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) == 0
    }

    pub fn look(&self) -> Seen {
        let quiet = self.quiet.lock();
        Seen {
            in_flight: self.in_flight.load(Ordering::Acquire),
            lasting: self.lasting.load(Ordering::Acquire),
            answering: self.answering.load(Ordering::Acquire),
            served: self.served.load(Ordering::Acquire),
            written: self.written.load(Ordering::Relaxed),
            quiet_since: quiet.since,
            head_since: quiet.head,
        }
    }

    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    pub fn becomes_known(&self) {
        self.known.store(true, Ordering::Release);
    }

    /// The handshake is done: the time for the first request begins.
    pub fn connected(&self) {
        self.quiet.lock().since = Instant::now();
    }

    fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        self.served.store(true, Ordering::Release);
        self.quiet.lock().head = None;
    }

    fn end(&self) {
        self.quiet.lock().since = Instant::now();
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    pub fn has_read(&self) {
        if !self.is_idle() || self.multiplexed.load(Ordering::Relaxed) {
            return;
        }
        self.quiet.lock().head.get_or_insert_with(Instant::now);
    }
}

/// One request, from its head to the end of its answer.
pub(crate) struct InFlight {
    activity: Arc<Activity>,
    lasting: bool,
    answering: bool,
}

impl InFlight {
    pub fn begin(activity: &Arc<Activity>) -> InFlight {
        activity.begin();
        InFlight {
            activity: activity.clone(),
            lasting: false,
            answering: false,
        }
    }

    /// The answer may take any time.
    pub fn lasts(&mut self) {
        if !self.lasting {
            self.lasting = true;
            self.activity.lasting.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn answers(&mut self) {
        if !self.answering {
            self.answering = true;
            self.activity.answering.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The connection is no longer HTTP; it is busy until it ends.
    pub fn upgraded(mut self) {
        self.lasts();
        self.activity.in_flight.fetch_add(1, Ordering::AcqRel);
        self.activity.lasting.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.lasting {
            self.activity.lasting.fetch_sub(1, Ordering::AcqRel);
        }
        if self.answering {
            self.activity.answering.fetch_sub(1, Ordering::AcqRel);
        }
        self.activity.end();
    }
}

/// A response's body that counts as in flight until it has been sent or dropped. The answer to a
/// HEAD request has none.
pub(crate) struct Counted<B> {
    body: Option<B>,
    _in_flight: Option<InFlight>,
}

impl<B> Counted<B> {
    pub fn new(body: B, mut in_flight: InFlight) -> Counted<B> {
        in_flight.answers();
        Counted {
            body: Some(body),
            _in_flight: Some(in_flight),
        }
    }

    pub fn empty() -> Counted<B> {
        Counted {
            body: None,
            _in_flight: None,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
