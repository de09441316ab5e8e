//! The caches of all kinds at one moment, and which of them a key of the store belongs to. A kind
//! that is added, replaced or removed makes a new one of these, which shares all but a few nodes with
//! the one before; those who read keep the one they have.

use std::sync::Arc;

use api::Resource;
use imbl::OrdMap;

use super::is_stored;
use super::keys::storage_prefix;
use super::resource::{Content, ResourceCache};

#[derive(Clone, Default)]
pub(crate) struct KindCaches {
    /// By group and plural.
    by_name: OrdMap<Arc<str>, Arc<ResourceCache>>,
    by_prefix: Prefixes<Arc<ResourceCache>>,
}

/// Which kind a key of the store belongs to.
#[derive(Clone)]
pub(super) struct Prefixes<T>(OrdMap<Arc<str>, T>);

impl<T> Default for Prefixes<T> {
    fn default() -> Prefixes<T> {
        Prefixes(OrdMap::new())
    }
}

impl<T: Clone> Prefixes<T> {
    pub fn insert(&mut self, resource: &Resource, value: T) {
        self.0.insert(storage_prefix(resource).into(), value);
    }

    fn remove(&mut self, resource: &Resource) {
        self.0.remove(storage_prefix(resource).as_str());
    }

    /// What belongs to the kind, and the key inside it.
    pub fn find<'a>(&self, key: &'a [u8]) -> Option<(&T, &'a str)> {
        let key = std::str::from_utf8(key).ok()?;
        let slashes = key.match_indices('/').map(|(index, _)| index);
        // Prefixes have two or three segments: "/registry/pods/", "/registry/services/specs/".
        slashes.skip(2).take(2).find_map(|slash| {
            let (prefix, rest) = key.split_at(slash + 1);
            Some((self.0.get(prefix)?, rest))
        })
    }
}

/// Those of the kinds that have a cache.
pub(super) fn stored_kinds(resources: &[Arc<Resource>]) -> Vec<Arc<Resource>> {
    let stored = resources.iter().filter(|resource| is_stored(resource));
    stored.cloned().collect()
}

impl KindCaches {
    pub(super) fn new(
        kinds: impl IntoIterator<Item = (Arc<Resource>, Content)>,
        revision: u64,
    ) -> KindCaches {
        let mut all = KindCaches::default();
        for (resource, content) in kinds {
            let cache = ResourceCache::new(resource, content, revision);
            all.insert(Arc::new(cache));
        }
        all
    }

    /// Puts a cache in the place of the one of the same kind, which it returns.
    pub(super) fn insert(&mut self, cache: Arc<ResourceCache>) -> Option<Arc<ResourceCache>> {
        let resource = &cache.resource;
        let name = name_of(&resource.group, &resource.plural);
        self.by_prefix.insert(resource, cache.clone());
        self.by_name.insert(name.into(), cache)
    }

    pub(super) fn remove(&mut self, resource: &Resource) -> Option<Arc<ResourceCache>> {
        let name = name_of(&resource.group, &resource.plural);
        let removed = self.by_name.remove(name.as_str())?;
        self.by_prefix.remove(&removed.resource);
        Some(removed)
    }

    pub fn get(&self, group: &str, plural: &str) -> Option<&Arc<ResourceCache>> {
        self.by_name.get(name_of(group, plural).as_str())
    }

    /// All of them, by group and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceCache>> {
        self.by_name.values()
    }

    /// The cache that a key of the store belongs to, and the key inside it.
    pub(super) fn find<'a>(&self, key: &'a [u8]) -> Option<(&Arc<ResourceCache>, &'a str)> {
        self.by_prefix.find(key)
    }
}

/// Sorts by group first.
fn name_of(group: &str, plural: &str) -> String {
    let mut name = String::with_capacity(group.len() + plural.len() + 1);
    name.push_str(group);
    name.push('\0');
    name.push_str(plural);
    name
}
