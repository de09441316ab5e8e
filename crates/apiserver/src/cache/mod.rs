//! The watch cache: one store watch over everything feeds, per kind, a persistent map of entries,
//! a bounded history and the watchers. Reads are snapshots; nobody waits for a slow watcher.

mod cached_object;
mod change;
mod drafts;
mod feed;
mod forms;
mod keys;
mod kinds;
mod layout;
mod pieces;
mod resource;
mod unreadable;
mod watchers;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::Resource;
use parking_lot::RwLock;
use tokio::sync::{Notify, mpsc, oneshot};

pub(crate) use cached_object::{CachedObject, Outline, Shape};
pub(crate) use change::{Change, EventType, Frame};
pub(crate) use drafts::Draft;
use drafts::Drafts;
use feed::{Addition, Additions};
pub(crate) use feed::{fill, follow};
pub(crate) use forms::Forms;
pub(crate) use keys::{key_of, storage_key, storage_prefix};
pub(crate) use kinds::KindCaches;
pub(crate) use pieces::{Pieces, Text};
pub(crate) use resource::{From, Initial, ResourceCache, Snapshot, Subscription, TooOld};
pub(crate) use unreadable::Unreadable;
pub(crate) use watchers::Requirement;

pub(crate) struct Cache {
    /// Swapped as a whole when a kind is added or removed; held for moments only.
    kinds: RwLock<Arc<KindCaches>>,
    /// Asks the feed, which alone knows how far it is, to take in one more kind.
    additions: mpsc::UnboundedSender<Addition>,
    pub drafts: Drafts,
    /// The revision up to which every kind has everything.
    applied: AtomicU64,
    /// Not a `watch` channel: that wakes those who wait in a random order, and a simulation could
    /// not repeat itself.
    advanced: Notify,
    pub forms: Forms,
    pub pieces: Pieces,
    /// Watch events written, each once for all watchers of a form.
    pub frames: AtomicU64,
}

impl Cache {
    fn new(kinds: KindCaches, revision: u64) -> (Cache, Additions) {
        let (additions, asked) = mpsc::unbounded_channel();
        let cache = Cache {
            kinds: RwLock::new(Arc::new(kinds)),
            additions,
            drafts: Drafts::default(),
            applied: AtomicU64::new(revision),
            advanced: Notify::new(),
            forms: Forms::default(),
            pieces: Pieces::default(),
            frames: AtomicU64::new(0),
        };
        (cache, asked)
    }

    /// The cache of a stored kind. Reviews are not stored and have none, nor has a kind that was
    /// removed.
    pub fn of(&self, resource: &Resource) -> Option<Arc<ResourceCache>> {
        let stored = resource.storage.as_deref().unwrap_or(resource);
        self.find(&stored.group, &stored.plural)
    }

    /// As [`Cache::of`], by name.
    pub fn find(&self, group: &str, plural: &str) -> Option<Arc<ResourceCache>> {
        self.kinds.read().get(group, plural).cloned()
    }

    /// As [`Cache::of`], for built-in kinds that the server itself relies on.
    pub fn named(&self, group: &'static str, plural: &'static str) -> Arc<ResourceCache> {
        self.find(group, plural)
            .expect("the catalogue has the kinds the server relies on")
    }

    /// A built-in kind that the server itself relies on.
    pub fn resource(&self, group: &'static str, plural: &'static str) -> Arc<Resource> {
        self.named(group, plural).resource.clone()
    }

    /// The caches of all kinds.
    pub fn kinds(&self) -> Arc<KindCaches> {
        self.kinds.read().clone()
    }

    /// Keeps a cache of one more kind, filled with what the store has of it.
    pub async fn add(&self, resource: Arc<Resource>) -> Result<(), store::Error> {
        let gone = || store::Error::Closed("the watch cache has ended".into());
        let (done, result) = oneshot::channel();
        let addition = Addition { resource, done };
        self.additions.send(addition).map_err(|_| gone())?;
        result.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Drops the cache of a kind and ends its watches.
    pub fn remove(&self, resource: &Resource) {
        let mut kinds = self.kinds.write();
        let Some(removed) = kinds.get(&resource.group, &resource.plural).cloned() else {
            return;
        };
        *kinds = Arc::new(kinds.without(&removed));
        drop(kinds);
        removed.close();
    }

    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Waits until everything up to `revision` is in.
    pub async fn reach(&self, revision: u64) {
        if self.applied() >= revision {
            return;
        }
        loop {
            let mut advanced = pin!(self.advanced.notified());
            // Enabled before looking, so that an advance in between wakes us.
            advanced.as_mut().enable();
            if self.applied() >= revision {
                return;
            }
            advanced.await;
        }
    }

    /// Everything up to `revision` is in; never goes back.
    fn advance(&self, revision: u64) {
        if self.applied.fetch_max(revision, Ordering::AcqRel) < revision {
            self.advanced.notify_waiters();
        }
    }

    pub fn snapshot(&self, kind: &ResourceCache) -> Snapshot {
        kind.snapshot(self.applied())
    }
}

/// A subscription that leaves when it is dropped.
pub(crate) struct Watch {
    kind: Arc<ResourceCache>,
    pub subscription: Subscription,
}

impl Watch {
    pub fn begin(
        cache: &Cache,
        kind: Arc<ResourceCache>,
        from: From,
        requirement: Requirement,
    ) -> Result<Watch, TooOld> {
        let subscription = kind.subscribe(from, cache.applied(), requirement)?;
        Ok(Watch { kind, subscription })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.kind.unsubscribe(self.subscription.id);
    }
}

/// Whether objects of this kind are kept as they are, as opposed to answered on the spot or converted
/// from another version.
pub(crate) fn is_stored(resource: &Resource) -> bool {
    resource.has_verb("get") && resource.is_stored_as_itself()
}
