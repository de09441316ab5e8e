//! Accepts connections, within the limits.

use std::future::Future;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::{self, Connected};
use crate::ledger::Ledger;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const REPORT_PERIOD: Duration = Duration::from_secs(10);
const KEEPALIVE_SECONDS: u32 = 30;
const KEEPALIVE_INTERVAL_SECONDS: u32 = 10;
const KEEPALIVE_RETRIES: u32 = 3;

/// Serves HTTPS until `shutdown`; returns the connections that are still open. `connected` is asked
/// once per connection for the function that answers its requests.
pub async fn serve<C, H, F, B>(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    ledger: Arc<Ledger>,
    shutdown: CancellationToken,
    connected: C,
) -> TaskTracker
where
    C: Fn(Connected<'_>) -> H + Send + Sync + 'static,
    H: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let acceptor = TlsAcceptor::from(tls);
    let connected = Arc::new(connected);
    let connections = TaskTracker::new();
    let mut failures = Failures::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                failures.pause = None;
                let _ = stream.set_nodelay(true);
                let _ = keep_alive(&stream);
                let descriptor = u64::try_from(stream.as_raw_fd()).unwrap_or(0);
                let Some(slot) = ledger.admit(peer.ip(), descriptor) else {
                    continue;
                };
                connections.spawn(connection::serve(
                    stream,
                    acceptor.clone(),
                    slot,
                    ledger.bounds.clone(),
                    connected.clone(),
                    shutdown.clone(),
                ));
            }
            // Too many open files, or a connection that ended before it was accepted.
            Err(problem) => {
                ledger.make_room();
                let pause = failures.next(&problem);
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => break,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
    connections.close();
    connections
}

/// Makes the kernel probe the peer, so that a connection ends whose peer has disappeared without
/// closing it. Watches, followed logs and sessions have no other limit. A peer that exists and is silent
/// is not affected.
fn keep_alive(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KEEPALIVE_SECONDS)?;
    setsockopt(
        stream,
        sockopt::TcpKeepInterval,
        &KEEPALIVE_INTERVAL_SECONDS,
    )?;
    setsockopt(stream, sockopt::TcpKeepCount, &KEEPALIVE_RETRIES)
}

/// The state of failures to accept connections.
#[derive(Default)]
struct Failures {
    /// The last pause, while nothing could be accepted since.
    pause: Option<Duration>,
    last_report: Option<Instant>,
}

impl Failures {
    /// How long to wait before the next try.
    fn next(&mut self, problem: &std::io::Error) -> Duration {
        let now = Instant::now();
        let due = |last| now >= last + REPORT_PERIOD;
        if self.last_report.is_none_or(due) {
            self.last_report = Some(now);
            tracing::warn!(%problem, "a connection could not be accepted");
        }
        let pause = self.pause.map_or(FIRST_PAUSE, |pause| pause * 2);
        let pause = pause.min(LONGEST_PAUSE);
        self.pause = Some(pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_accept_failures_grows_up_to_a_second() {
        let mut failures = Failures::default();
        let problem = std::io::Error::from_raw_os_error(24);
        let pauses: Vec<u128> = (0..10)
            .map(|_| failures.next(&problem).as_millis())
            .collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }
}
