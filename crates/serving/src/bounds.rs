//! All limits of a listener in one place.

use std::time::Duration;

/// The limits of one HTTPS listener. Requests that last (watches, followed logs, exec, attach,
/// port-forward and proxied streams) have none of these time limits.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// A TLS handshake takes no longer.
    pub handshake: Duration,
    /// The head of the first request comes this soon after the handshake, and the head of a later
    /// HTTP/1.1 request this soon after its first byte. Upstream: ReadHeaderTimeout.
    pub header: Duration,
    /// A connection without a request is closed after this. Upstream: IdleTimeout.
    pub idle: Duration,
    /// A peer that takes nothing of an answer of known length for this long is cut off. Upstream
    /// ends such requests after 60 s altogether.
    pub stalled: Duration,
    /// How long a connection that has to close may finish its output.
    pub closing: Duration,
    /// HTTP/2 peers are pinged when they were silent for this long ...
    pub ping: Duration,
    /// ... and are taken for dead when they do not answer within this.
    pub ping_answer: Duration,
    /// Requests at once on one HTTP/2 connection. Upstream: 100.
    pub streams: u32,
    /// HTTP/2 streams that a peer may have opened and reset before we have looked at them; one more
    /// ends the connection ("rapid reset", CVE-2023-44487).
    pub pending_resets: usize,
    /// Connections of one address (or IPv6 /64) that have shown no valid credential.
    pub per_peer: usize,
    /// Connections of all addresses together that have shown no valid credential.
    pub unauthenticated: usize,
    /// Connections of one user.
    pub per_user: usize,
    /// At least this many descriptors of the process are kept free of connections: for the store,
    /// the runtime, probes and the process's own connections.
    pub reserve: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(32),
            idle: Duration::from_secs(90),
            stalled: Duration::from_secs(60),
            closing: Duration::from_secs(5),
            ping: Duration::from_secs(30),
            ping_answer: Duration::from_secs(15),
            streams: 100,
            pending_resets: 20,
            per_peer: 256,
            unauthenticated: 1024,
            per_user: 10_000,
            reserve: 64,
        }
    }
}

/// What the limits on connections come to while the process may have a certain number of
/// descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    pub per_peer: usize,
    pub unauthenticated: usize,
    pub per_user: usize,
    /// The first descriptor number that no connection may have. The kernel hands out the lowest free
    /// number, so a connection with this one or a higher means that all below are in use.
    pub first_reserved: u64,
}

impl Bounds {
    /// A quarter of few descriptors is reserved; what is left is the measure of the other limits.
    pub(crate) fn shares(&self, descriptors: u64) -> Shares {
        let reserve = (descriptors / 4).clamp(self.reserve.min(descriptors / 2), 16 * 1024);
        let available = descriptors - reserve;
        let at_most = |bound: usize, share: u64| {
            let share = usize::try_from(available / share).unwrap_or(usize::MAX);
            bound.min(share.max(1))
        };
        Shares {
            per_peer: at_most(self.per_peer, 8),
            unauthenticated: at_most(self.unauthenticated, 4),
            per_user: at_most(self.per_user, 2),
            first_reserved: available,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_shrink_every_limit() {
        let bounds = Bounds::default();
        let expected = Shares {
            per_peer: 96,
            unauthenticated: 192,
            per_user: 384,
            first_reserved: 768,
        };
        assert_eq!(bounds.shares(1024), expected);
        let expected = Shares {
            per_peer: 256,
            unauthenticated: 1024,
            per_user: 10_000,
            first_reserved: 1024 * 1024 - 16 * 1024,
        };
        assert_eq!(bounds.shares(1024 * 1024), expected);
        let tiny = bounds.shares(20);
        assert_eq!((tiny.first_reserved, tiny.per_peer), (10, 1));
    }
}
