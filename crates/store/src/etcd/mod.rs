//! The etcd engine: the contract kept by a real etcd, 3.4 or later, over its v3 gRPC interface.
//!
//! Every write and every newest revision comes from etcd itself (linearizable). Watches of this process
//! share one watch on etcd ([`follower`] fills [`window`], [`cursor`] reads it). When members fail
//! or quorum is lost, calls fail with a typed error and watches wait; nothing needs a restart.
//! Consensus is etcd's: none is written here.

mod client;
mod connection;
mod cursor;
mod failure;
mod feed;
mod follower;
mod keys;
mod maintenance;
#[cfg(test)]
mod tests;
mod transaction;
mod window;
/// The generated types of `proto/etcd.proto`.
#[allow(clippy::all)]
#[allow(clippy::disallowed_methods)]
mod wire {
    tonic::include_proto!("etcdserverpb");
}

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tonic::Status;

use crate::{
    CompactionTurn, Error, KeyRange, LeaseId, RangeRequest, RangeResult, Revision, SnapshotStream,
    Store, Transaction, TransactionResult, WatchStream,
};
use client::{Client, MESSAGE_BYTES, Repeat};
use failure::Failure;
use feed::{End, Feed};
use keys::WireRange;
use maintenance::Asked;
use window::Window;
use wire::kv_client::KvClient;
use wire::lease_client::LeaseClient;

/// Keys asked for at once; a longer range takes several calls at one revision.
const PAGE: usize = 500;
/// How often a range is begun again because compaction overtook it.
const RANGE_TRIES: usize = 3;
/// Readers of the newest revision that wait for one answer; more wait before they are queued.
const READERS: usize = 1024;

/// The addresses of etcd, and the credentials.
#[derive(Clone)]
pub struct Options {
    /// `http(s)://host:port`, the members of one cluster.
    pub endpoints: Vec<String>,
    pub tls: Option<Tls>,
    pub credentials: Option<Credentials>,
    /// How all our keys begin in etcd.
    pub prefix: String,
    /// How all callers' keys begin; exchanged for `prefix`. Empty: the prefix is put before.
    pub root: String,
    /// How many changes are kept for watchers that lag behind.
    pub window: Bounds,
}

impl Options {
    /// A plain connection, keys as they are.
    pub fn new(endpoints: Vec<String>) -> Options {
        Options {
            endpoints,
            tls: None,
            credentials: None,
            prefix: String::new(),
            root: String::new(),
            window: Bounds {
                revisions: 20_000,
                bytes: 16 << 20,
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub revisions: usize,
    pub bytes: usize,
}

/// How etcd is recognised, and how we are.
#[derive(Clone)]
pub struct Tls {
    pub authority_pem: String,
    pub identity: Option<Identity>,
}

#[derive(Clone)]
pub struct Identity {
    pub certificate_pem: String,
    pub key_pem: String,
}

/// A user of etcd's own authentication.
#[derive(Clone)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

/// The engine. Dropping it ends its connection and its watches.
pub struct Etcd {
    client: Arc<Client>,
    window: Arc<Window>,
    readers: mpsc::Sender<oneshot::Sender<Result<Revision, Failure>>>,
    /// Aborted on drop.
    _tasks: JoinSet<()>,
}

impl Etcd {
    /// Reads the newest revision, which needs a quorum, and begins to watch.
    pub async fn connect(options: Options) -> Result<Arc<Etcd>, Error> {
        let client = Arc::new(Client::new(&options)?);
        let revision = client.revision().await.map_err(Failure::into_error)?;
        let window = Arc::new(Window::new(options.window, revision));
        let (readers, waiting) = mpsc::channel(READERS);
        let mut tasks = JoinSet::new();
        tasks.spawn(follower::follow(client.clone(), window.clone()));
        tasks.spawn(read_revisions(client.clone(), window.clone(), waiting));
        Ok(Arc::new(Etcd {
            client,
            window,
            readers,
            _tasks: tasks,
        }))
    }

    /// One page of a range.
    async fn page(
        &self,
        range: &WireRange,
        revision: Option<Revision>,
        limit: usize,
    ) -> Result<wire::RangeResponse, Failure> {
        self.client
            .call(Repeat::Freely, |wire| {
                let request = wire::RangeRequest {
                    key: range.key.clone(),
                    range_end: range.range_end.clone(),
                    limit: limit as i64,
                    revision: revision.unwrap_or(0) as i64,
                    ..Default::default()
                };
                async move {
                    KvClient::new(wire)
                        .max_decoding_message_size(MESSAGE_BYTES)
                        .range(request)
                        .await
                }
            })
            .await
    }

    /// All pages, at the revision of the first.
    async fn pages(&self, request: &RangeRequest) -> Result<RangeResult, Failure> {
        let Some(mut range) = self.client.keys.range(&request.range) else {
            return Ok(RangeResult {
                items: Vec::new(),
                count: 0,
                revision: self.client.revision().await?,
            });
        };
        let wanted = match request.limit {
            0 => usize::MAX,
            limit => limit,
        };
        let mut size = PAGE;
        let mut result: Option<RangeResult> = None;
        loop {
            let had = result.as_ref().map_or(0, |result| result.items.len());
            let at = request
                .revision
                .or(result.as_ref().map(|result| result.revision));
            let page = match self.page(&range, at, size.min(wanted - had)).await {
                // Values are large: fewer of them at once.
                Err(Failure::TooLarge) if size > 1 => {
                    size /= 2;
                    continue;
                }
                page => page?,
            };
            let result = result.get_or_insert_with(|| RangeResult {
                items: Vec::new(),
                count: page.count as usize,
                revision: client::revision(page.header.as_ref()),
            });
            if let Some(last) = page.kvs.last() {
                range.key = [&last.key[..], &[0]].concat();
            }
            let keys = &self.client.keys;
            let items = page.kvs.into_iter().filter_map(|item| keys.item(item));
            result.items.extend(items);
            if !page.more || result.items.len() >= wanted {
                return Ok(RangeResult {
                    items: std::mem::take(&mut result.items),
                    ..*result
                });
            }
        }
    }

    /// With the newest revision where etcd's refusal does not contain it.
    async fn history_error(&self, failure: Failure, requested: Revision) -> Error {
        match failure {
            Failure::Compacted => self.compacted(requested),
            Failure::Future => match self.revision().await {
                Ok(newest) => Error::Future { requested, newest },
                Err(error) => error,
            },
            other => other.into_error(),
        }
    }

    /// etcd does not say what is the oldest; another process may have compacted further.
    fn compacted(&self, requested: Revision) -> Error {
        Error::Compacted {
            requested,
            oldest: self.window.compacted().max(requested + 1),
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.window.close();
    }
}

#[async_trait]
impl Store for Etcd {
    async fn revision(&self) -> Result<Revision, Error> {
        let (reply, answer) = oneshot::channel();
        if self.readers.send(reply).await.is_ok()
            && let Ok(result) = answer.await
        {
            return result.map_err(Failure::into_error);
        }
        Err(Error::Closed("the client ended".to_owned()))
    }

    async fn transact(&self, transaction: Transaction) -> Result<TransactionResult, Error> {
        transaction::transact(&self.client, transaction).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResult, Error> {
        if let Some(requested) = request.revision
            && requested < self.window.compacted()
        {
            return Err(self.compacted(requested));
        }
        for _ in 0..RANGE_TRIES {
            match self.pages(&request).await {
                // Of the newest revision: it was compacted between two pages.
                Err(Failure::Compacted) if request.revision.is_none() => {}
                result => match result {
                    Ok(result) => return Ok(result),
                    Err(failure) => {
                        let requested = request.revision.unwrap_or(0);
                        return Err(self.history_error(failure, requested).await);
                    }
                },
            }
        }
        Err(Error::Unavailable(
            "compaction is faster than the range can be read".to_owned(),
        ))
    }

    async fn watch(&self, range: KeyRange, from: Revision) -> Result<WatchStream, Error> {
        // Revision 0 means absence, and the first one changes nothing.
        let requested = from;
        let from = from.max(1);
        let mut feed = None;
        if !self.window.covers(from)? {
            if from < self.window.compacted() {
                return Err(self.compacted(requested));
            }
            if from > self.window.head() {
                let newest = self.revision().await?;
                if from > newest + 1 {
                    return Err(Error::Future { requested, newest });
                }
            } else {
                feed = Some(match Feed::open(self.client.clone(), from).await {
                    Ok(feed) => feed,
                    Err(End::Compacted) => return Err(self.compacted(requested)),
                    Err(End::Lost(reason)) => return Err(Error::Unavailable(reason)),
                });
            }
        }
        let (client, window) = (self.client.clone(), self.window.clone());
        Ok(cursor::stream(client, window, range, from, feed))
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        let newest = self.revision().await?;
        if revision > newest {
            return Err(Error::Future {
                requested: revision,
                newest,
            });
        }
        // One less in etcd: it would forget deletions at the very revision it compacts to, and a
        // watch from there is promised.
        if revision > 1 {
            let request = wire::CompactionRequest {
                revision: revision as i64 - 1,
                physical: false,
            };
            let answer = self
                .client
                .call(Repeat::Freely, |wire| async move {
                    KvClient::new(wire).compact(request).await
                })
                .await;
            match answer {
                Ok(_) | Err(Failure::Compacted) => {}
                Err(failure) => return Err(failure.into_error()),
            }
        }
        self.window.compact(revision);
        Ok(())
    }

    async fn compact_in_turn(&self, turn: CompactionTurn) -> Result<CompactionTurn, Error> {
        let asked = maintenance::ask_turn(&self.client, turn).await;
        match asked.map_err(Failure::into_error)? {
            Asked::Ours(0, next) | Asked::Theirs(next) => Ok(next),
            Asked::Ours(revision, next) => self.compact(revision).await.map(|()| next),
        }
    }

    async fn snapshot(&self) -> Result<SnapshotStream, Error> {
        maintenance::snapshot(&self.client).await
    }

    async fn grant_lease(&self, seconds: u64) -> Result<LeaseId, Error> {
        let request = wire::LeaseGrantRequest {
            ttl: i64::try_from(seconds.max(1)).unwrap_or(i64::MAX),
            id: 0,
        };
        // It can be repeated: a lease whose id no caller got has no keys and ends by itself.
        let answer = self
            .client
            .call(Repeat::Freely, |wire| async move {
                LeaseClient::new(wire).lease_grant(request).await
            })
            .await;
        answer
            .map(|granted| granted.id as LeaseId)
            .map_err(Failure::into_error)
    }

    async fn keep_lease_alive(&self, lease: LeaseId) -> Result<(), Error> {
        let request = wire::LeaseKeepAliveRequest { id: lease as i64 };
        let answer = self
            .client
            .call(Repeat::Freely, |wire| async move {
                let requests = tokio_stream::once(request);
                let mut answers = LeaseClient::new(wire)
                    .lease_keep_alive(requests)
                    .await?
                    .into_inner();
                let answer = answers.message().await?;
                let answer = answer.ok_or_else(|| Status::unavailable("no answer"))?;
                Ok(tonic::Response::new(answer))
            })
            .await;
        match answer {
            Ok(kept) if kept.ttl > 0 => Ok(()),
            Ok(_) | Err(Failure::LeaseNotFound) => Err(Error::LeaseNotFound(lease)),
            Err(failure) => Err(failure.into_error()),
        }
    }
}

/// Answers all who ask for the newest revision while one read is under way by the next read: each
/// gets one that began after it asked.
async fn read_revisions(
    client: Arc<Client>,
    window: Arc<Window>,
    mut queue: mpsc::Receiver<oneshot::Sender<Result<Revision, Failure>>>,
) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, READERS).await > 0 {
        let result = client.revision().await;
        if let Ok(revision) = &result {
            window.want(*revision);
        }
        for reader in waiting.drain(..) {
            // A reader that has gone away needs no answer.
            let _ = reader.send(result.clone());
        }
    }
}
