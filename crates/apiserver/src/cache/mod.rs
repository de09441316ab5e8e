//! The watch cache: one store watch over everything feeds, per kind, a persistent map of entries,
//! a bounded history and the watchers. Reads are snapshots; nobody waits for a slow watcher.

mod change;
mod drafts;
mod entry;
mod feed;
mod forms;
mod keys;
mod layout;
mod pieces;
mod resource;
mod unreadable;
mod watchers;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::catalogue::{self, Resource};
use api::conversion;
use tokio::sync::Notify;

pub(crate) use change::{Change, EventType, Frame};
pub(crate) use drafts::Draft;
use drafts::Drafts;
pub(crate) use entry::{Entry, Outline};
pub(crate) use feed::{fill, follow};
pub(crate) use forms::{Forms, Shape};
pub(crate) use keys::{key_of, storage_key, storage_prefix};
pub(crate) use pieces::{Pieces, Text};
pub(crate) use resource::{Content, From, Initial, ResourceCache, Snapshot, Subscription, TooOld};
pub(crate) use unreadable::Unreadable;
pub(crate) use watchers::Requirement;

pub(crate) struct Cache {
    kinds: BTreeMap<(&'static str, &'static str), ResourceCache>,
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
    fn new(mut content: BTreeMap<(&'static str, &'static str), Content>, revision: u64) -> Cache {
        let kinds = catalogue::resources()
            .iter()
            .filter(|resource| is_stored(resource))
            .map(|resource| {
                let id = (resource.group, resource.plural);
                let content = content.remove(&id).unwrap_or_default();
                (id, ResourceCache::new(resource, content, revision))
            })
            .collect();
        Cache {
            kinds,
            drafts: Drafts::default(),
            applied: AtomicU64::new(revision),
            advanced: Notify::new(),
            forms: Forms::default(),
            pieces: Pieces::default(),
            frames: AtomicU64::new(0),
        }
    }

    /// The cache of a stored kind. Reviews are not stored and have none.
    pub fn of(&self, resource: &Resource) -> Option<&ResourceCache> {
        let stored = match conversion::is_stored_as_itself(resource) {
            true => resource,
            false => conversion::storage_of(resource),
        };
        self.kinds.get(&(stored.group, stored.plural))
    }

    /// As [`Cache::of`], by name.
    pub fn find(&self, group: &str, plural: &str) -> Option<&ResourceCache> {
        let id = self.kinds.keys().find(|id| **id == (group, plural))?;
        self.kinds.get(id)
    }

    /// As [`Cache::of`], for kinds the server itself relies on.
    pub fn named(&self, group: &'static str, plural: &'static str) -> &ResourceCache {
        self.kinds
            .get(&(group, plural))
            .expect("the catalogue has the kinds the server relies on")
    }

    pub fn kinds(&self) -> impl Iterator<Item = &ResourceCache> {
        self.kinds.values()
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
    cache: Arc<Cache>,
    resource: &'static Resource,
    pub subscription: Subscription,
}

impl Watch {
    pub fn begin(
        cache: &Arc<Cache>,
        kind: &ResourceCache,
        from: From,
        requirement: Requirement,
    ) -> Result<Watch, TooOld> {
        let subscription = kind.subscribe(from, cache.applied(), requirement)?;
        Ok(Watch {
            cache: cache.clone(),
            resource: kind.resource,
            subscription,
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(kind) = self.cache.of(self.resource) {
            kind.unsubscribe(self.subscription.id);
        }
    }
}

/// Whether objects of this kind are kept as they are, as opposed to answered on the spot or converted
/// from another version.
pub(crate) fn is_stored(resource: &Resource) -> bool {
    resource.has_verb("get") && conversion::is_stored_as_itself(resource)
}
