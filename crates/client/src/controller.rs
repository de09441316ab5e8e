//! Runs a reconciler over a work queue: N workers, retries with growing delays, clean shutdown.

use std::{fmt::Display, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::WorkQueue;

/// When to reconcile a key again after a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// When the key is added again.
    Done,
    /// After this time, also without a change.
    After(Duration),
}

/// A reconciler without its type, so that workers are compiled once for every type of key.
type Reconcile<Key> = dyn Fn(Key) -> BoxFuture<'static, Result<Reconciled, Failure>> + Send + Sync;
type Failure = Box<dyn Display + Send>;

/// Reconciles keys of the queue until `shutdown`; then every worker finishes its current key. A key
/// whose reconciler fails or panics is queued again, rate-limited.
pub fn run<Key, Error, Work>(
    name: &'static str,
    queue: WorkQueue<Key>,
    workers: usize,
    reconcile: impl Fn(Key) -> Work + Send + Sync + 'static,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()>
where
    Key: Ord + Clone + Display + Send + Sync + 'static,
    Error: Display + Send + 'static,
    Work: Future<Output = Result<Reconciled, Error>> + Send + 'static,
{
    let reconcile: Arc<Reconcile<Key>> = Arc::new(move |key| {
        let work = reconcile(key);
        Box::pin(async move { work.await.map_err(|error| Box::new(error) as Failure) })
    });
    Box::pin(run_workers(name, queue, workers, reconcile, shutdown))
}

async fn run_workers<Key>(
    name: &'static str,
    queue: WorkQueue<Key>,
    workers: usize,
    reconcile: Arc<Reconcile<Key>>,
    shutdown: CancellationToken,
) where
    Key: Ord + Clone + Display + Send + Sync + 'static,
{
    let mut running = JoinSet::new();
    for _ in 0..workers.max(1) {
        let worker = work(name, queue.clone(), reconcile.clone(), shutdown.clone());
        running.spawn(worker);
    }
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            tracing::error!(controller = name, %error, "A worker of a controller ended unexpectedly");
        }
    }
}

async fn work<Key>(
    name: &'static str,
    queue: WorkQueue<Key>,
    reconcile: Arc<Reconcile<Key>>,
    shutdown: CancellationToken,
) where
    Key: Ord + Clone + Display,
{
    loop {
        let key = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            key = queue.next_key() => key,
        };
        let work = async { reconcile(key.clone()).await };
        match AssertUnwindSafe(work).catch_unwind().await {
            Ok(Ok(outcome)) => {
                queue.forget(&key);
                if let Reconciled::After(delay) = outcome {
                    queue.add_after(key.clone(), delay);
                }
            }
            Ok(Err(error)) => {
                let failures = queue.failures(&key) + 1;
                tracing::warn!(controller = name, %key, %error, failures, "Cannot reconcile an object; will try again");
                queue.add_rate_limited(key.clone());
            }
            Err(_) => {
                tracing::error!(controller = name, %key, "A reconciler panicked");
                queue.add_rate_limited(key.clone());
            }
        }
        queue.done(&key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_and_panics_are_retried_and_shutdown_is_clean() {
        let queue = WorkQueue::new();
        queue.add("key".to_owned());
        let attempts = Arc::new(AtomicUsize::new(0));
        let shutdown = CancellationToken::new();
        let reconcile = {
            let (attempts, shutdown) = (attempts.clone(), shutdown.clone());
            move |_key: String| {
                let (attempts, shutdown) = (attempts.clone(), shutdown.clone());
                async move {
                    match attempts.fetch_add(1, Ordering::SeqCst) {
                        0 => Err("not yet"),
                        1 => panic!("a bug"),
                        2 => Ok(Reconciled::After(Duration::from_secs(7))),
                        _ => {
                            shutdown.cancel();
                            Ok(Reconciled::Done)
                        }
                    }
                }
            }
        };
        let began = tokio::time::Instant::now();
        run("test", queue.clone(), 2, reconcile, shutdown).await;
        assert_eq!(attempts.load(Ordering::SeqCst), 4);
        assert_eq!(began.elapsed().as_millis(), 5 + 10 + 7000);
        assert!(queue.is_empty());
    }
}
