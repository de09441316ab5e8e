//! The embedded engine: a write-ahead log with group commit, checkpoints, and everything current
//! in memory. One process owns the directory.
//!
//! Files: `log-<n>` continues `checkpoint-<n>` (or `log-<n-1>`). See [`frame`] for their outer
//! form, [`record`] for what is inside, [`recovery`] for how they are read back and brought to the
//! present format (`backup-format-<f>-…` are then the files as they were), [`snapshot`] for copies
//! that are kept elsewhere.

mod checkpoint;
mod committer;
mod files;
mod frame;
mod history;
mod record;
mod recovery;
mod shared;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod watcher;

use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use environment::Environment;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::disk::Disk;
use crate::{
    Error, KeyRange, LeaseId, MAX_REQUEST_BYTES, Operation, RangeRequest, RangeResult, Revision,
    SnapshotStream, Store, Transaction, TransactionResult, WatchStream,
};
use committer::{Committer, Request};
pub use files::Counters;
use files::{Files, LiveCounters};
pub use history::Window;
use shared::{Shared, closed};
pub use snapshot::{Contents, restore, verify};

/// Bounds and thresholds. The defaults suit a cluster of some thousand objects.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A checkpoint is written when the log has grown beyond this and the last checkpoint's size.
    pub checkpoint_bytes: u64,
    /// How much history is kept.
    pub history: Window,
    /// Transactions waiting for the committer; more wait before they are queued.
    pub queue: usize,
    /// A batch is closed when it has grown to this.
    pub batch_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            checkpoint_bytes: 16 << 20,
            history: Window {
                revisions: 20_000,
                bytes: 16 << 20,
            },
            queue: 1024,
            batch_bytes: 4 << 20,
        }
    }
}

/// The engine. Dropping the last handle ends it; [`Embedded::close`] also waits for that.
pub struct Embedded {
    queue: mpsc::Sender<Request>,
    shared: Arc<Shared>,
    counters: Arc<LiveCounters>,
    environment: Environment,
    /// Ended by [`Embedded::close`]; the disk is closed with it.
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl Embedded {
    /// Recovers the state on `disk`, or begins an empty one, and starts the committer.
    pub async fn open(
        disk: Arc<dyn Disk>,
        environment: Environment,
        options: Options,
    ) -> Result<Arc<Embedded>, Error> {
        let files = Files::new(disk);
        let counters = files.counters.clone();
        let recovered =
            recovery::recover(&files, options.history, environment.random_u64()).await?;
        let recovered = match recovered.is_outdated {
            true => recovery::migrate(&files, recovered, &environment).await?,
            false => recovered,
        };
        let shared = Arc::new(Shared::new(recovered.state.clone(), recovered.history));
        let (queue, requests) = mpsc::channel(options.queue.max(1));
        let committer = Committer {
            shared: shared.clone(),
            files,
            environment: environment.clone(),
            options,
            queue: requests,
            log: recovered.log,
            log_number: recovered.log_number,
            state: recovered.state,
            checkpoint: None,
            checkpoint_bytes: recovered.checkpoint_bytes,
        };
        Ok(Arc::new(Embedded {
            queue,
            shared,
            counters,
            environment,
            committer: Mutex::new(Some(tokio::spawn(committer.run()))),
        }))
    }

    /// What a snapshot's file begins with, in every format.
    pub const MAGIC: &[u8] = frame::FILE_MAGIC;

    /// What the store has cost since it was opened.
    pub fn counters(&self) -> Counters {
        self.counters.read()
    }

    /// Finishes earlier requests, ends the store and closes the disk. Later calls fail
    /// with [`Error::Closed`].
    pub async fn close(&self) -> Result<(), Error> {
        let result = match self.ask(Request::Close).await {
            Err(Error::Closed(_)) => Ok(()),
            result => result,
        };
        let committer = self.committer.lock().take();
        if let Some(committer) = committer
            && let Err(error) = committer.await
        {
            return Err(closed(&format!("the committer failed: {error}")));
        }
        result
    }

    /// Waits until the store has closed, and returns the reason. The process should then stop: after a
    /// failed sync nothing more can be promised.
    pub async fn closed(&self) -> String {
        loop {
            let mut changed = pin!(self.shared.changed());
            changed.as_mut().enable();
            if let Some(reason) = self.shared.closed_reason() {
                return reason;
            }
            changed.await;
        }
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Request,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        if self.queue.send(request(reply)).await.is_ok()
            && let Ok(result) = answer.await
        {
            return result;
        }
        let reason = self.shared.closed_reason();
        Err(closed(reason.as_deref().unwrap_or("the committer ended")))
    }
}

#[async_trait]
impl Store for Embedded {
    async fn revision(&self) -> Result<Revision, Error> {
        self.shared.revision()
    }

    async fn transact(&self, transaction: Transaction) -> Result<TransactionResult, Error> {
        let size = |operation: &Operation| match operation {
            Operation::Put { key, value, .. } => key.len() + value.len(),
            Operation::Delete { key } => key.len(),
        };
        let bytes: usize = transaction.then.iter().map(size).sum();
        if bytes > MAX_REQUEST_BYTES {
            return Err(Error::TooLarge);
        }
        self.ask(|reply| Request::Transact(transaction, reply))
            .await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResult, Error> {
        self.shared.range(&request)
    }

    async fn watch(&self, range: KeyRange, from: Revision) -> Result<WatchStream, Error> {
        self.shared.check_watch(from)?;
        Ok(watcher::stream(self.shared.clone(), range, from))
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.ask(|reply| Request::Compact(revision, reply)).await
    }

    async fn snapshot(&self) -> Result<SnapshotStream, Error> {
        let salt = self.environment.random_u64();
        Ok(snapshot::stream(self.shared.state()?, salt))
    }

    async fn grant_lease(&self, seconds: u64) -> Result<LeaseId, Error> {
        self.ask(|reply| Request::Grant(seconds, reply)).await
    }

    async fn keep_lease_alive(&self, lease: LeaseId) -> Result<(), Error> {
        self.shared.keep_lease_alive(lease)
    }
}
