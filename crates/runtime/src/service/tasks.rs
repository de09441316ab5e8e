//! Work in a task of its own, outside the caller's.

use std::future::Future;

use super::Error;

/// Runs work that waits for the disk or the kernel on a thread that may block.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::Interrupted(error)))
}

/// Runs work that is carried through even when the caller has given up waiting.
pub async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(work)
        .await
        .unwrap_or_else(|error| Err(Error::Interrupted(error)))
}
