//! Forwards trace spans of a component in another process to the server, in batches.
//!
//! Best effort by design: a full buffer drops new spans, and a server that does not answer costs
//! spans, but neither memory nor the component's time.

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
/// How long a first span waits for others of its batch.
const LINGER: Duration = Duration::from_millis(50);
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// A [`Sink`] that posts to `/coracle/v1/spans`.
pub struct SpanForwarder {
    buffer: Mutex<VecDeque<BufferedSpan>>,
    wake: Notify,
}

#[derive(Serialize)]
struct BufferedSpan {
    uid: String,
    span: Span,
}

impl SpanForwarder {
    /// Starts the background task. On `shutdown` it posts the remaining spans once.
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

    fn batch(&self) -> Vec<BufferedSpan> {
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
        buffer.push_back(BufferedSpan {
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
                // A server that rejected the spans will reject them again.
                if !crate::retry::is_transient(&error) {
                    waiting.clear();
                }
            }
        }
    }
}

async fn post(client: &kube::Client, spans: &[BufferedSpan]) -> kube::Result<()> {
    let body = serde_json::to_vec(spans).map_err(kube::Error::SerdeError)?;
    let request = http::Request::post("/coracle/v1/spans")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(drop)
}
