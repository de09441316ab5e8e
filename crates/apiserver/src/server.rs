//! The server's insides, shared by all requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::catalogue::{AlreadyServed, Catalogue};
use api::{Reason, Resource, Status, Value, openapi};
use bytes::Bytes;
use environment::Environment;
use parking_lot::Mutex;
use store::{LeaseId, Store};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use crate::admission_config::AdmissionConfig;
use crate::allocation::ServiceAllocator;
use crate::authentication::Authenticator;
use crate::authorization::Authorizer;
use crate::cache::{Cache, CachedObject, Draft, Outline, ResourceCache, key_of};
use crate::heavy::Heavy;
use crate::kubelet_dialer::KubeletDialer;
use crate::metrics::Metrics;
use crate::node_samples::Samples;
use crate::startup::Startup;
use crate::storage::{seconds_text, store_failure, too_large};

/// How long a request waits for the cache to get where the store is.
const CACHE_LIMIT: Duration = Duration::from_secs(10);
/// How long new objects are put under the same lease.
const LEASE_SHARED: Duration = Duration::from_secs(60);

/// Why a kind cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum AddKindError {
    #[error(transparent)]
    Served(#[from] AlreadyServed),
    #[error("the objects of the kind cannot be read")]
    Store(#[from] store::Error),
}

pub(crate) struct Server {
    pub store: Arc<dyn Store>,
    pub environment: Environment,
    pub timelines: trace::Timelines,
    /// The kinds that are served.
    pub catalogue: Catalogue,
    pub cache: Arc<Cache>,
    /// The documents about the kinds that are served now.
    pub openapi: Mutex<Arc<openapi::Documents>>,
    pub authenticator: Authenticator,
    pub authorizer: Authorizer,
    pub services: ServiceAllocator,
    pub kubelets: Option<KubeletDialer>,
    /// What kubelets said of late about the use of nodes and pods.
    pub usage: Samples,
    pub metrics: Metrics,
    pub advertise: std::net::SocketAddr,
    /// Other servers may use the same store.
    pub shares_store: bool,
    pub admission: AdmissionConfig,
    /// The lease that objects of a time to live are put under now, and since when.
    pub leases: tokio::sync::Mutex<BTreeMap<Duration, (LeaseId, Instant)>>,
    pub startup: Startup,
    /// Who is connected over the network.
    pub connections: Arc<serving::Ledger>,
    pub heavy: Heavy,
    /// Keeps the cache up to date; ends only when the store does.
    pub follower: JoinHandle<()>,
    /// Ends the background tasks with the server.
    pub _stop: DropGuard,
}

impl Server {
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

    /// Serves one more kind, with what the store has of it already.
    pub async fn add_kind(&self, resource: Arc<Resource>) -> Result<(), AddKindError> {
        // First what requests for it need, then what leads them to it.
        let is_stored = crate::cache::is_stored(&resource);
        if is_stored && self.cache.of(&resource).is_some() {
            return Err(AddKindError::Served(AlreadyServed(resource)));
        }
        if is_stored {
            self.cache.add(resource.clone()).await?;
        }
        self.catalogue.add(resource.clone()).map_err(|served| {
            if is_stored {
                self.cache.remove(&resource);
            }
            AddKindError::Served(served)
        })
    }

    /// Serves a kind no more, and ends its watches. What the store has of it stays there. Built-in
    /// kinds stay.
    pub fn remove_kind(&self, group: &str, version: &str, plural: &str) -> bool {
        let kinds = self.catalogue.snapshot();
        let found = kinds.find(group, version, plural);
        if found.is_none_or(|resource| resource.is_built_in()) {
            return false;
        }
        let Some(removed) = self.catalogue.remove(group, version, plural) else {
            return false;
        };
        if crate::cache::is_stored(&removed) {
            self.cache.remove(&removed);
        }
        self.metrics.forget(&removed);
        true
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
        let kind = self.kind(resource)?;
        self.catch_up().await?;
        let key = key_of(namespace, name);
        kind.get(&key).ok_or_else(|| match kind.unreadable(&key) {
            Some(unreadable) => unreadable.status(&kind.resource, &key),
            None => resource.not_found(name),
        })
    }

    /// As [`Server::get`], content with what the cache has when it has it.
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

    /// As [`Server::entry`], for an object that is about to be put: the cache will know its bytes.
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

    /// Now, as `metadata.creationTimestamp` has it.
    pub fn timestamp(&self) -> String {
        seconds_text(self.environment.now())
    }
}
