//! Forwards trace spans of a component in another process to the server, in batches.
//!
//! Best effort by design: a full buffer drops new spans, and a server that stays away costs spans,
//! never memory or the component's time.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use environment::Environment;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use trace::{Sink, Span};

use crate::backoff::Backoff;

const BUFFER: usize = 4096;
const BATCH: usize = 256;
/// How long a first span waits for company.
const LINGER: Duration = Duration::from_millis(50);
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// A [`Sink`] that posts to `/coracle/v1/spans`.
pub struct SpanForwarder {
    buffer: Mutex<VecDeque<Entry>>,
    wake: Notify,
}

#[derive(Serialize)]
struct Entry {
    uid: String,
    span: Span,
}

impl SpanForwarder {
    /// Begins the background task; on `shutdown` it posts what is left, once.
    pub fn start(
        client: kube::Client,
        environment: Environment,
        shutdown: CancellationToken,
    ) -> Arc<SpanForwarder> {
        let forwarder = Arc::new(SpanForwarder {
            buffer: Mutex::new(VecDeque::new()),
            wake: Notify::new(),
        });
        tokio::spawn(forward(forwarder.clone(), client, environment, shutdown));
        forwarder
    }

    fn batch(&self) -> Vec<Entry> {
        let mut buffer = self.buffer.lock();
        let length = buffer.len().min(BATCH);
        buffer.drain(..length).collect()
    }
}

impl Sink for SpanForwarder {
    fn record(&self, uid: &str, span: Span) {
        let mut buffer = self.buffer.lock();
        if buffer.len() >= BUFFER {
            return;
        }
        buffer.push_back(Entry {
            uid: uid.to_owned(),
            span,
        });
        drop(buffer);
        self.wake.notify_one();
    }
}

async fn forward(
    forwarder: Arc<SpanForwarder>,
    client: kube::Client,
    environment: Environment,
    shutdown: CancellationToken,
) {
    let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
    let mut waiting = Vec::new();
    loop {
        let pause = async {
            if waiting.is_empty() {
                if forwarder.buffer.lock().is_empty() {
                    forwarder.wake.notified().await;
                }
                tokio::time::sleep(LINGER).await;
            } else {
                tokio::time::sleep(backoff.delay(&environment)).await;
            }
        };
        let stopping = tokio::select! {
            biased;
            () = shutdown.cancelled() => true,
            () = pause => false,
        };
        if waiting.is_empty() {
            waiting = forwarder.batch();
        }
        if waiting.is_empty() {
            if stopping {
                return;
            }
            continue;
        }
        match post(&client, &waiting).await {
            Ok(()) => {
                backoff.reset();
                waiting.clear();
            }
            Err(error) => {
                tracing::debug!(%error, spans = waiting.len(), "spans could not be forwarded");
                if stopping {
                    return;
                }
                // A server that understood and refused will refuse again.
                if !crate::retry::is_transient(&error) {
                    waiting.clear();
                }
            }
        }
    }
}

async fn post(client: &kube::Client, entries: &[Entry]) -> kube::Result<()> {
    let body = serde_json::to_vec(entries).map_err(kube::Error::SerdeError)?;
    let request = http::Request::post("/coracle/v1/spans")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(drop)
}
