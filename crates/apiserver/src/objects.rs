//! The stored objects: read from the watch cache, which waits for the store where it must, and
//! written under conditions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Reason, Resource, Status, Value};
use bytes::Bytes;
use store::{LeaseId, Store};
use tokio::time::Instant;

use crate::cache::{Cache, CachedObject, Draft, Outline, ResourceCache, key_of};
use crate::storage::{store_failure, too_large};

/// How long a request waits for the cache to get where the store is.
const CACHE_LIMIT: Duration = Duration::from_secs(10);
/// How long new objects are put under the same lease.
const LEASE_SHARED: Duration = Duration::from_secs(60);

pub(crate) struct Objects {
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    /// The lease that objects of a time to live are put under now, and since when.
    leases: tokio::sync::Mutex<BTreeMap<Duration, (LeaseId, Instant)>>,
}

impl Objects {
    pub fn new(store: Arc<dyn Store>, cache: Arc<Cache>) -> Objects {
        Objects {
            store,
            cache,
            leases: Default::default(),
        }
    }

    /// The store itself, for what is not about single objects.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The cache of a kind that is stored; 405 for one that is not.
    pub fn kind(&self, resource: &Resource) -> Result<Arc<ResourceCache>, Status> {
        self.cache.of(resource).ok_or_else(|| {
            match resource.has_verb("get") {
                // It was removed while this request was under way.
                true => Status::new(
                    Reason::NotFound,
                    "the server could not find the requested resource",
                ),
                false => Status::new(
                    Reason::MethodNotAllowed,
                    "the server does not allow this method on the requested resource",
                ),
            }
        })
    }

    /// Waits until the cache has all that the store had when this was called.
    pub async fn catch_up(&self) -> Result<(), Status> {
        let revision = self.store.revision().await.map_err(store_failure)?;
        self.reach(revision).await
    }

    /// Waits until the cache has everything up to `revision`, but not for ever: a store that cannot
    /// be watched must not hold requests.
    pub async fn reach(&self, revision: u64) -> Result<(), Status> {
        if self.cache.applied() >= revision {
            return Ok(());
        }
        match tokio::time::timeout(CACHE_LIMIT, self.cache.reach(revision)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(too_large(revision, self.cache.applied())),
        }
    }

    /// The object as it is now.
    pub async fn get(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<CachedObject>, Status> {
        self.kind(resource)?;
        self.catch_up().await?;
        // Another cache may have taken the place of the one that there was.
        let kind = self.kind(resource)?;
        let key = key_of(namespace, name);
        kind.get(&key).ok_or_else(|| match kind.unreadable(&key) {
            Some(unreadable) => unreadable.status(&kind.resource, &key),
            None => resource.not_found(name),
        })
    }

    /// As [`Objects::get`], content with what the cache has when it has it.
    pub async fn find(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<CachedObject>, Status> {
        match self.kind(resource)?.get(&key_of(namespace, name)) {
            Some(entry) => Ok(entry),
            None => self.get(resource, namespace, name).await,
        }
    }

    pub fn entry(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        bytes: Bytes,
        revision: u64,
        object: &Value,
    ) -> Result<Arc<CachedObject>, Status> {
        let key = key_of(namespace, name);
        Ok(Arc::new(CachedObject::new(
            resource, &key, bytes, revision, object,
        )?))
    }

    /// As [`Objects::entry`], for an object that is about to be put: the cache will know its bytes.
    pub fn draft(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        bytes: Bytes,
        object: &Value,
    ) -> Result<Draft<'_>, Status> {
        let key = key_of(namespace, name);
        let outline = Outline::of(resource, &key, &bytes, object)?;
        Ok(Draft::new(&self.cache.drafts, key, bytes, outline))
    }

    /// The lease that an object is put under if its kind does not stay for ever. One lease is shared
    /// by the objects of a minute.
    pub async fn lease_of(&self, resource: &Resource) -> Result<Option<LeaseId>, Status> {
        let Some(life) = resource.strategy().time_to_live() else {
            return Ok(None);
        };
        let mut leases = self.leases.lock().await;
        match leases.get(&life) {
            Some((lease, since)) if since.elapsed() < LEASE_SHARED => Ok(Some(*lease)),
            _ => {
                let granted = self
                    .store
                    .grant_lease((life + LEASE_SHARED).as_secs())
                    .await;
                let lease = granted.map_err(store_failure)?;
                leases.insert(life, (lease, Instant::now()));
                Ok(Some(lease))
            }
        }
    }
}
