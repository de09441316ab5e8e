//! The one task that writes. It takes every queued request, evaluates them in order, makes them
//! durable with one sync, publishes the result to readers and watchers, and answers.

use std::sync::Arc;

use environment::Environment;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Options;
use super::checkpoint;
use super::files::{Files, FramedFile, add};
use super::frame::FrameWriter;
use super::record::Record;
use super::shared::{Shared, closed};
use super::state::{Committed, State};
use crate::{Error, LeaseId, Revision, Transaction, TransactionResult};

pub enum Request {
    Transact(
        Transaction,
        oneshot::Sender<Result<TransactionResult, Error>>,
    ),
    Compact(Revision, oneshot::Sender<Result<(), Error>>),
    Grant(u64, oneshot::Sender<Result<LeaseId, Error>>),
    /// Finishes what was queued before, then ends.
    Close(oneshot::Sender<Result<(), Error>>),
}

/// A request's outcome, held back until it is durable.
enum Answer {
    Transact(
        Result<TransactionResult, Error>,
        oneshot::Sender<Result<TransactionResult, Error>>,
    ),
    Compact(Result<(), Error>, oneshot::Sender<Result<(), Error>>),
    Grant(LeaseId, oneshot::Sender<Result<LeaseId, Error>>),
    Close(oneshot::Sender<Result<(), Error>>),
}

pub struct Committer {
    pub shared: Arc<Shared>,
    pub files: Files,
    pub environment: Environment,
    pub options: Options,
    pub queue: mpsc::Receiver<Request>,
    pub log: FramedFile,
    pub log_number: u64,
    /// The newest state, ahead of the published one while a batch is being made durable.
    pub state: State,
    pub checkpoint: Option<JoinHandle<Result<u64, Error>>>,
    /// Size of the last checkpoint: the log may grow to that before the next one.
    pub checkpoint_bytes: u64,
}

/// What a batch changes besides the state.
#[derive(Default)]
struct Batch {
    frame: Vec<u8>,
    committed: Vec<Arc<Committed>>,
    compact: Option<Revision>,
    granted: Vec<(LeaseId, u64)>,
    answers: Vec<Answer>,
    closing: bool,
}

impl Committer {
    /// Runs until the store is closed or a write fails.
    pub async fn run(mut self) {
        let reason = match self.serve().await {
            Ok(()) => "it was shut down".to_owned(),
            Err(error) => {
                let reason = environment::chain(&error).to_string();
                tracing::error!(reason, "the store stops");
                reason
            }
        };
        self.shared.close(&reason);
        self.queue.close();
        while let Some(request) = self.queue.recv().await {
            request.refuse(&reason);
        }
        if let Some(checkpoint) = self.checkpoint.take() {
            // Its outcome no longer matters: the logs it would replace are still there.
            let _ = checkpoint.await;
        }
    }

    async fn serve(&mut self) -> Result<(), Error> {
        loop {
            let next_expiry = self.shared.next_lease_deadline();
            let first = tokio::select! {
                biased;
                request = self.queue.recv() => match request {
                    Some(request) => Some(request),
                    None => return Ok(()),
                },
                finished = wait_for(&mut self.checkpoint) => {
                    self.checkpoint = None;
                    self.checkpoint_bytes = finished?;
                    continue;
                }
                () = wait_until(next_expiry) => None,
            };
            if self.commit(first).await? {
                return Ok(());
            }
            if self.log.length > self.options.checkpoint_bytes.max(self.checkpoint_bytes)
                && self.checkpoint.is_none()
            {
                self.start_checkpoint().await?;
            }
        }
    }

    /// Makes one batch durable. Returns whether the store was asked to close.
    async fn commit(&mut self, first: Option<Request>) -> Result<bool, Error> {
        let mut batch = Batch {
            frame: FrameWriter::buffer(),
            ..Batch::default()
        };
        for lease in self.shared.take_expired_leases() {
            self.end_lease(lease, &mut batch);
        }
        let mut next = first;
        while let Some(request) = next {
            self.evaluate(request, &mut batch);
            next = if batch.closing || batch.frame.len() >= self.options.batch_bytes {
                None
            } else {
                self.queue.try_recv().ok()
            };
        }
        if !FrameWriter::is_empty(&batch.frame) {
            let frame = std::mem::take(&mut batch.frame);
            if let Err(error) = self.log.commit(frame).await {
                // Closed first, so that a caller who gets an answer finds the store closed.
                let reason = environment::chain(&error).to_string();
                self.shared.close(&reason);
                for answer in batch.answers {
                    answer.refuse(&reason);
                }
                return Err(error);
            }
            add(&self.files.counters.batches, 1);
            add(
                &self.files.counters.transactions,
                batch.committed.len() as u64,
            );
        }
        let now = Instant::now();
        self.shared.start_leases(&batch.granted, now);
        self.shared.publish(
            &self.state,
            batch.committed,
            batch.compact,
            self.options.history,
        );
        for answer in batch.answers {
            answer.send();
        }
        Ok(batch.closing)
    }

    fn evaluate(&mut self, request: Request, batch: &mut Batch) {
        match request {
            Request::Transact(transaction, reply) => {
                let result = self.state.transact(transaction).map(|(result, committed)| {
                    if let Some(committed) = committed {
                        batch.add(committed);
                    }
                    result
                });
                batch.answers.push(Answer::Transact(result, reply));
            }
            Request::Compact(revision, reply) => {
                let result = if revision > self.state.revision {
                    Err(Error::Future {
                        requested: revision,
                        newest: self.state.revision,
                    })
                } else {
                    Record::Compact { revision }.encode(&mut batch.frame);
                    batch.compact = batch.compact.max(Some(revision));
                    Ok(())
                };
                batch.answers.push(Answer::Compact(result, reply));
            }
            Request::Grant(seconds, reply) => {
                let mut lease = 0;
                while lease == 0 || self.state.leases.contains_key(&lease) {
                    lease = self.environment.random_u64() >> 1;
                }
                Record::Grant { lease, seconds }.encode(&mut batch.frame);
                self.state.leases.insert(lease, seconds);
                batch.granted.push((lease, seconds));
                batch.answers.push(Answer::Grant(lease, reply));
            }
            Request::Close(reply) => {
                batch.closing = true;
                batch.answers.push(Answer::Close(reply));
            }
        }
    }

    fn end_lease(&mut self, lease: LeaseId, batch: &mut Batch) {
        if let Some(committed) = self.state.end_lease(lease) {
            batch.add(committed);
        }
        Record::EndLease { lease }.encode(&mut batch.frame);
    }

    /// Turns to a new log, durably, and lets a task write down everything before it.
    async fn start_checkpoint(&mut self) -> Result<(), Error> {
        let number = self.log_number + 1;
        self.log = self
            .files
            .create_log(number, self.environment.random_u64())
            .await?;
        self.log_number = number;
        self.checkpoint = Some(tokio::spawn(checkpoint::write(
            self.files.clone(),
            number,
            self.environment.random_u64(),
            self.state.clone(),
            self.shared.history(),
        )));
        Ok(())
    }
}

impl Batch {
    fn add(&mut self, committed: Committed) {
        Record::Transaction {
            revision: committed.revision,
            operations: committed.operations(),
        }
        .encode(&mut self.frame);
        self.committed.push(Arc::new(committed));
    }
}

impl Request {
    fn refuse(self, reason: &str) {
        match self {
            Request::Transact(_, reply) => drop(reply.send(Err(closed(reason)))),
            Request::Compact(_, reply) => drop(reply.send(Err(closed(reason)))),
            Request::Grant(_, reply) => drop(reply.send(Err(closed(reason)))),
            Request::Close(reply) => drop(reply.send(Ok(()))),
        }
    }
}

impl Answer {
    // Sending may fail because the caller does not wait for the answer any more.
    fn send(self) {
        match self {
            Answer::Transact(result, reply) => drop(reply.send(result)),
            Answer::Compact(result, reply) => drop(reply.send(result)),
            Answer::Grant(lease, reply) => drop(reply.send(Ok(lease))),
            Answer::Close(reply) => drop(reply.send(Ok(()))),
        }
    }

    fn refuse(self, reason: &str) {
        match self {
            Answer::Transact(_, reply) => drop(reply.send(Err(closed(reason)))),
            Answer::Compact(_, reply) => drop(reply.send(Err(closed(reason)))),
            Answer::Grant(_, reply) => drop(reply.send(Err(closed(reason)))),
            Answer::Close(reply) => drop(reply.send(Err(closed(reason)))),
        }
    }
}

async fn wait_for(checkpoint: &mut Option<JoinHandle<Result<u64, Error>>>) -> Result<u64, Error> {
    match checkpoint {
        Some(running) => match running.await {
            Ok(result) => result,
            Err(error) => Err(closed(&format!("the checkpoint task failed: {error}"))),
        },
        None => std::future::pending().await,
    }
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
