//! The kinds that the server serves, and the documents that describe them. Kinds can be added,
//! changed and removed while requests run; the cost of that does not grow with how many there are.

use std::sync::{Arc, Weak};

use api::Resource;
use api::catalogue::{AlreadyServed, Catalogue, Snapshot};
use api::openapi::{Document, Documents};
use parking_lot::Mutex;

use crate::cache::{Cache, is_stored};
use crate::changed_versions::ChangedVersions;

/// Why a kind cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum AddKindError {
    #[error(transparent)]
    Served(#[from] AlreadyServed),
    #[error("the objects of the kind cannot be read")]
    Store(#[from] store::Error),
}

/// Aggregated discovery as it was last made, for as long as the kinds are the same: every client asks
/// for it when it begins.
#[derive(Default)]
pub(crate) struct KeptDiscovery(Mutex<Option<(Weak<Snapshot>, Document)>>);

impl KeptDiscovery {
    /// What there is, or what `make` makes of the kinds.
    pub fn of(&self, kinds: &Arc<Snapshot>, make: impl FnOnce() -> Document) -> Document {
        let mut kept = self.0.lock();
        if let Some((known, document)) = &*kept
            && std::ptr::eq(known.as_ptr(), Arc::as_ptr(kinds))
        {
            return document.clone();
        }
        let document = make();
        *kept = Some((Arc::downgrade(kinds), document.clone()));
        document
    }
}

pub(crate) struct ServedKinds {
    catalogue: Catalogue,
    cache: Arc<Cache>,
    /// Held while a kind is added or removed, which are several steps.
    changing: tokio::sync::Mutex<()>,
    /// The OpenAPI documents, each made when it is asked for.
    pub documents: Documents,
    pub discovery: KeptDiscovery,
    changed_versions: Arc<ChangedVersions>,
}

impl ServedKinds {
    /// `cache` has what is stored of the kinds of the catalogue.
    pub fn new(catalogue: Catalogue, cache: Arc<Cache>) -> ServedKinds {
        ServedKinds {
            documents: Documents::default(),
            discovery: KeptDiscovery::default(),
            catalogue,
            cache,
            changing: Default::default(),
            changed_versions: Arc::default(),
        }
    }

    /// The kinds that are served now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.catalogue.snapshot()
    }

    /// Tells which group versions gained or lost kinds.
    pub fn changed_versions(&self) -> Arc<ChangedVersions> {
        self.changed_versions.clone()
    }

    /// Serves one more kind, with what the store has of it already. Of several versions, the one that
    /// is stored comes first.
    pub async fn add(&self, resource: Arc<Resource>) -> Result<(), AddKindError> {
        let _changing = self.changing.lock().await;
        // First what requests for it need, then what leads them to it.
        let is_stored = is_stored(&resource);
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
        })?;
        self.changed_versions.note(&resource);
        Ok(())
    }

    /// Serves a kind in these versions and in no others. Where `stored` is given, its objects are read
    /// anew as it shows them, and watches of the kind end.
    pub async fn replace(
        &self,
        (group, plural): (&str, &str),
        versions: Vec<Arc<Resource>>,
        stored: Option<Arc<Resource>>,
    ) -> Result<(), AddKindError> {
        let _changing = self.changing.lock().await;
        let kinds = self.catalogue.snapshot();
        // Only the program itself changes what is a part of it.
        let mut known = kinds.versions_of(group, plural);
        if let Some(built_in) = known.find(|known| known.is_built_in()) {
            return Err(AddKindError::Served(AlreadyServed(built_in.clone())));
        }
        if let Some(stored) = stored {
            self.cache.add(stored).await?;
        }
        self.catalogue.replace(group, plural, versions.clone())?;
        let changed = kinds.versions_of(group, plural).chain(&versions);
        changed.for_each(|resource| self.changed_versions.note(resource));
        Ok(())
    }

    /// Serves no version of a kind any more, and ends its watches. What the store has of it stays there.
    pub async fn remove_all(&self, resource: &Resource) -> Result<(), AddKindError> {
        let (group, plural) = (&*resource.group, &*resource.plural);
        self.replace((group, plural), Vec::new(), None).await?;
        self.cache.remove(resource);
        self.documents.forget_others(&self.snapshot());
        Ok(())
    }

    /// Serves a kind no more, and ends its watches; `None` if it is not served. What the store has of
    /// it stays there. Of several versions, the one that is stored goes last. Built-in kinds stay.
    pub async fn remove(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let _changing = self.changing.lock().await;
        let kinds = self.catalogue.snapshot();
        let found = kinds.find(group, version, plural)?;
        if found.is_built_in() {
            return None;
        }
        let removed = self.catalogue.remove(group, version, plural)?;
        self.changed_versions.note(&removed);
        if is_stored(&removed) {
            self.cache.remove(&removed);
        }
        Some(removed)
    }
}
