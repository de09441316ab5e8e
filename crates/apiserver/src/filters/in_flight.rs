//! Counts a request while it is being answered, and its code and duration afterwards.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::{CACHE_CONTROL, HeaderValue};
use http::{Method, Response};
use tokio::time::Instant;

use crate::body::Body;
use crate::metrics::Served;
use crate::server::Server;

/// A request that is counted until this is dropped: when it is answered, or given up by a client that
/// went away.
pub(super) struct InFlight {
    server: Arc<Server>,
    reads: bool,
    begun: Instant,
}

impl InFlight {
    pub fn begin(server: &Arc<Server>, method: &Method) -> InFlight {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let counter = server.metrics.in_flight(reads);
        counter.fetch_add(1, Ordering::Relaxed);
        InFlight {
            server: server.clone(),
            reads,
            begun: Instant::now(),
        }
    }

    /// Records the answer, and forbids caches to keep it unless it says otherwise.
    pub fn answered(self, served: Served, mut response: Response<Body>) -> Response<Body> {
        response
            .headers_mut()
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        let code = response.status().as_u16();
        let took = self.begun.elapsed();
        self.server.metrics.record(served, code, took);
        response
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let counter = self.server.metrics.in_flight(self.reads);
        counter.fetch_sub(1, Ordering::Relaxed);
    }
}
