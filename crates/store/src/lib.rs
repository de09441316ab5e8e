//! A revisioned key-value store with etcd's semantics: one global revision, conditional
//! transactions, ranges at a revision, watch from a revision, leases, compaction.
//! It stores bytes and knows no Kubernetes object.
//!
//! This file is the contract. [`embedded`] is the default engine, [`disk`] its file layer, [`etcd`]
//! the engine for a real etcd, and, for tests (feature `contract`), [`contract`] is the suite that
//! every engine passes and [`promises`] the checker of histories.

#[cfg(any(test, feature = "contract"))]
pub mod contract;
pub mod disk;
pub mod embedded;
pub mod etcd;
#[cfg(any(test, feature = "contract"))]
pub mod promises;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

/// The store's logical clock. Every transaction that changes something adds one.
pub type Revision = u64;

/// A lease's identity; keys put under a lease vanish when it ends.
pub type LeaseId = u64;

/// One key at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    /// The revision of the key's current life's first put.
    pub create_revision: Revision,
    /// The revision of this value.
    pub mod_revision: Revision,
    /// Puts since creation, starting at 1.
    pub version: u64,
    pub lease: Option<LeaseId>,
}

/// A condition on one key. A transaction's conditions must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key's current mod revision equals this one; 0 means that the key does not exist.
    ModRevision { key: Bytes, revision: Revision },
}

/// A change to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Put {
        key: Bytes,
        value: Bytes,
        lease: Option<LeaseId>,
    },
    Delete {
        key: Bytes,
    },
}

impl Operation {
    fn key(&self) -> &Bytes {
        match self {
            Operation::Put { key, .. } | Operation::Delete { key } => key,
        }
    }
}

/// Conditions and the changes made when all of them hold. A key may be changed once per transaction.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    pub compare: Vec<Compare>,
    pub then: Vec<Operation>,
}

/// The outcome of a transaction.
#[derive(Clone, Debug)]
pub enum TransactionResult {
    /// The changes are durable at `revision` (unchanged if they deleted only absent keys).
    /// `previous` holds, per operation, what the key held before.
    Committed {
        revision: Revision,
        previous: Vec<Option<KeyValue>>,
    },
    /// A condition failed and nothing changed. `current` holds, per condition, the key's state.
    Failed {
        revision: Revision,
        current: Vec<Option<KeyValue>>,
    },
}

/// Keys from `start` up to, not including, `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub start: Bytes,
    pub end: Bytes,
}

impl KeyRange {
    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> KeyRange {
        let start = prefix.into();
        let mut end = start.to_vec();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                break;
            }
        }
        KeyRange {
            start,
            end: end.into(),
        }
    }

    /// Exactly one key.
    pub fn single(key: impl Into<Bytes>) -> KeyRange {
        let start: Bytes = key.into();
        let mut end = start.to_vec();
        end.push(0);
        KeyRange {
            start,
            end: end.into(),
        }
    }

    /// Whether `key` lies in the range. An empty `end` means no upper bound.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && (self.end.is_empty() || key < &self.end[..])
    }
}

/// What to read: a range, at a revision (the newest if `None`), at most `limit` keys (0: all).
#[derive(Clone, Debug)]
pub struct RangeRequest {
    pub range: KeyRange,
    pub revision: Option<Revision>,
    pub limit: usize,
}

#[derive(Clone, Debug)]
pub struct RangeResult {
    /// In key order.
    pub items: Vec<KeyValue>,
    /// How many keys the range holds in all, also beyond the limit.
    pub count: usize,
    /// The store's newest revision when the range was read.
    pub revision: Revision,
}

/// A change as a watcher sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Put {
        item: KeyValue,
        previous: Option<KeyValue>,
    },
    Delete {
        key: Bytes,
        revision: Revision,
        previous: Option<KeyValue>,
    },
}

impl Event {
    fn key(&self) -> &Bytes {
        match self {
            Event::Put { item, .. } => &item.key,
            Event::Delete { key, .. } => key,
        }
    }
}

/// What a watch stream yields: all changes of one revision that touch the range, in order, or a
/// sign that everything up to a revision has been delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    Events {
        revision: Revision,
        events: Vec<Event>,
    },
    Progress {
        revision: Revision,
    },
}

/// The most bytes of keys and values in one transaction: etcd's own default.
pub const MAX_REQUEST_BYTES: usize = 3 << 19;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("required revision {requested} has been compacted, oldest is {oldest}")]
    Compacted {
        requested: Revision,
        oldest: Revision,
    },
    #[error("required revision {requested} is a future revision, newest is {newest}")]
    Future {
        requested: Revision,
        newest: Revision,
    },
    /// A running watch was overtaken by compaction; the watcher must read the range anew.
    #[error("the watcher fell behind and was cut off")]
    SlowWatcher,
    #[error("a transaction changes a key more than once")]
    DuplicateKey,
    /// More than [`MAX_REQUEST_BYTES`] in one transaction. Nothing was done.
    #[error("etcdserver: request is too large")]
    TooLarge,
    #[error("lease {0} not found")]
    LeaseNotFound(LeaseId),
    /// The store cannot be reached or has no quorum. What was asked has certainly not been done.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// No answer came to a write that had been sent: it may or may not have been done.
    #[error("the outcome of a write is unknown: {0}")]
    OutcomeUnknown(String),
    /// The store refused the request, and would refuse it again.
    #[error("the store refused: {0}")]
    Refused(String),
    #[error("store is closed: {0}")]
    Closed(String),
    #[error("store file {path}: {reason}")]
    Corrupt { path: String, reason: String },
    #[error("store file {path} has format {found}, this version reads up to {supported}")]
    NewerFormat {
        path: String,
        found: u32,
        supported: u32,
    },
    #[error("store file {path}")]
    Io {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

pub type WatchStream = BoxStream<'static, Result<WatchItem, Error>>;

/// A snapshot's bytes, in order. It is whole only when it ends without an error.
pub type SnapshotStream = BoxStream<'static, Result<Bytes, Error>>;

/// The state of compaction, as one of the processes that share the store saw it last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionTurn {
    /// How many turns there have been.
    pub count: u64,
    /// What the next turn may forget: everything before.
    pub revision: Revision,
}

/// The contract every engine keeps, proven by one suite.
///
/// No reader or watcher sees a revision before it is durable.
#[async_trait]
pub trait Store: Send + Sync {
    /// The newest durable revision.
    async fn revision(&self) -> Result<Revision, Error>;

    async fn transact(&self, transaction: Transaction) -> Result<TransactionResult, Error>;

    async fn range(&self, request: RangeRequest) -> Result<RangeResult, Error>;

    /// Yields every change from `from` (inclusive) on, then goes on with new ones. `from` may be
    /// one past the newest revision. Fails with [`Error::Compacted`] when history is gone.
    ///
    /// A `Progress` item follows when the stream has reached the newest revision and that one did
    /// not touch the range. After an error the stream ends. A slow watcher never slows a writer:
    /// it catches up from history, or ends with [`Error::SlowWatcher`] once history is gone.
    async fn watch(&self, range: KeyRange, from: Revision) -> Result<WatchStream, Error>;

    /// Forgets history before `revision`; reads and watches from older revisions then fail.
    async fn compact(&self, revision: Revision) -> Result<(), Error>;

    /// Called once per period by everyone who shares the store: whoever comes first in a period
    /// forgets what was history one period ago, so that all of it stays for at least that long.
    async fn compact_in_turn(&self, turn: CompactionTurn) -> Result<CompactionTurn, Error> {
        if turn.revision > 0 {
            self.compact(turn.revision).await?;
        }
        Ok(CompactionTurn {
            count: turn.count + 1,
            revision: self.revision().await?,
        })
    }

    /// Everything that is durable now, as one consistent file of the engine's own format. Writers
    /// go on meanwhile.
    async fn snapshot(&self) -> Result<SnapshotStream, Error>;

    /// Starts a lease of `seconds`; its keys are deleted, by one ordinary revision, when it is not
    /// kept alive. Grants survive a restart, which gives every lease its full time again.
    async fn grant_lease(&self, seconds: u64) -> Result<LeaseId, Error>;

    async fn keep_lease_alive(&self, lease: LeaseId) -> Result<(), Error>;
}
