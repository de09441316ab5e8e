//! One connection's life: handshake, requests, and the moments at which it has lasted too long.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::activity::{Activity, Counted, InFlight};
use crate::bounds::Bounds;
use crate::ledger::Slot;
use crate::watched_stream::WatchedStream;

/// A connection whose handshake is done.
pub struct Connected<'a> {
    /// The peer's certificates, checked as far as the TLS configuration checks them.
    pub certificates: Option<&'a [CertificateDer<'static>]>,
    pub slot: &'a Slot,
}

/// Serves `stream` until the peer, a limit or `shutdown` ends it.
pub(crate) async fn serve<S, C, H, F, B>(
    stream: S,
    acceptor: TlsAcceptor,
    slot: Slot,
    bounds: Bounds,
    connected: Arc<C>,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: Fn(Connected<'_>) -> H,
    H: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let activity = slot.activity().clone();
    let handshake = tokio::time::timeout(bounds.handshake, acceptor.accept(stream));
    let stream = tokio::select! {
        biased;
        () = activity.evicted.cancelled() => return,
        handshake = handshake => match handshake {
            Ok(Ok(stream)) => stream,
            Ok(Err(problem)) => {
                tracing::debug!(%problem, "a TLS handshake failed");
                return;
            }
            Err(_) => return,
        },
    };
    activity.connected();
    let session = stream.get_ref().1;
    let multiplexed = session.alpn_protocol() == Some(b"h2".as_slice());
    activity.multiplexed.store(multiplexed, Ordering::Relaxed);
    let handler = connected(Connected {
        certificates: session.peer_certificates(),
        slot: &slot,
    });
    let counting = activity.clone();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let in_flight = InFlight::begin(&counting);
        let head = request.method() == Method::HEAD;
        let answer = handler(request);
        async move { Ok::<_, Infallible>(counted(answer.await, head, in_flight)) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The times of HTTP/1.1 are ours, see `time_is_up`: hyper knows no difference between a slow
    // head and no request at all.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(bounds.ping)
        .keep_alive_timeout(bounds.ping_answer)
        .max_concurrent_streams(bounds.streams)
        .max_pending_accept_reset_streams(bounds.pending_resets);
    let io = TokioIo::new(WatchedStream::new(stream, slot));
    let connection = builder.serve_connection_with_upgrades(io, service);
    tokio::pin!(connection);
    let result = tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        ending = ending(&activity, &bounds) => {
            tracing::debug!(?ending, "a connection is closed");
            if ending != Ending::Idle && (ending == Ending::Stalled || activity.is_idle()) {
                return;
            }
            connection.as_mut().graceful_shutdown();
            // A request that came in meanwhile is answered.
            loop {
                tokio::select! {
                    biased;
                    result = connection.as_mut() => break result,
                    () = tokio::time::sleep(bounds.closing) => if activity.is_idle() {
                        return;
                    },
                }
            }
        }
    };
    if let Err(problem) = result {
        tracing::debug!(%problem, "a connection ended early");
    }
}

/// Answers to HEAD have no body in either protocol; their length is still sent.
fn counted<B>(response: Response<B>, head: bool, mut in_flight: InFlight) -> Response<Counted<B>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let exact = response.body().size_hint().exact();
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        in_flight.upgraded();
        return response.map(|_| Counted::empty());
    }
    if head {
        let mut response = response.map(|_| Counted::empty());
        if let Some(length) = exact {
            let length = HeaderValue::from(length);
            response
                .headers_mut()
                .entry(CONTENT_LENGTH)
                .or_insert(length);
        }
        return response;
    }
    if exact.is_none() {
        in_flight.lasts();
    }
    response.map(|body| Counted::new(body, in_flight))
}

/// Why a connection is ended by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Evicted,
    /// No request for too long.
    Idle,
    /// A request whose head does not end.
    Header,
    /// The peer does not take what it asked for.
    Stalled,
}

/// Returns when the connection has to end.
async fn ending(activity: &Activity, bounds: &Bounds) -> Ending {
    let mut progress = Progress {
        written: 0,
        since: Instant::now(),
    };
    loop {
        let next = match time_is_up(activity, bounds, &mut progress) {
            Ok(ending) => return ending,
            Err(next) => next,
        };
        tokio::select! {
            biased;
            () = activity.evicted.cancelled() => return Ending::Evicted,
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

/// So much is an answer that the peer takes, and not the small frames that keep a connection alive.
const PROGRESS: u64 = 1024;

/// What the peer had taken when it was last seen to take something.
struct Progress {
    written: u64,
    since: Instant,
}

/// Whether a limit has been reached, or when to look again. Requests do not wake the watch over
/// their connection: it looks rarely enough to cost nothing and often enough to be in time.
fn time_is_up(
    activity: &Activity,
    bounds: &Bounds,
    progress: &mut Progress,
) -> Result<Ending, Instant> {
    let now = Instant::now();
    let seen = activity.look();
    // A handler at work has nothing to write; its own limits end it.
    let at_work = seen.lasting > 0 || seen.in_flight > seen.answering;
    if at_work || seen.written >= progress.written + PROGRESS {
        *progress = Progress {
            written: seen.written,
            since: now,
        };
    }
    let often = now + bounds.header / 4;
    let (deadline, ending) = if seen.in_flight > 0 {
        (progress.since + bounds.stalled, Ending::Stalled)
    } else if !seen.served {
        (seen.quiet_since + bounds.header, Ending::Header)
    } else {
        // The end of an answer may still be on its way to a slow peer.
        let idle = seen.quiet_since.max(progress.since) + bounds.idle;
        match seen.head_since.map(|since| since + bounds.header) {
            Some(head) if head < idle => (head, Ending::Header),
            _ => (idle, Ending::Idle),
        }
    };
    match now >= deadline {
        true => Ok(ending),
        false => Err(deadline.min(often)),
    }
}

#[cfg(test)]
mod tests;
