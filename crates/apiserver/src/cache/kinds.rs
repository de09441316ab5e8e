//! The caches of all kinds at one moment, and which of them a key of the store belongs to. A kind
//! that is added or removed makes a new one of these; those who read keep the one they have.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Resource;

use super::is_stored;
use super::keys::storage_prefix;
use super::resource::{Content, ResourceCache};

pub(crate) struct KindCaches {
    /// By group and plural.
    caches: Vec<Arc<ResourceCache>>,
    places: Places,
}

/// Which kind a key of the store belongs to.
pub(super) struct Places(BTreeMap<String, usize>);

impl Places {
    /// For kinds in this order.
    pub fn of<'a>(resources: impl Iterator<Item = &'a Arc<Resource>>) -> Places {
        let prefixes = resources.map(|resource| storage_prefix(resource));
        Places(prefixes.enumerate().map(|(at, text)| (text, at)).collect())
    }

    /// The place of the kind, and the key inside it.
    pub fn find<'a>(&self, key: &'a [u8]) -> Option<(usize, &'a str)> {
        let key = std::str::from_utf8(key).ok()?;
        let slashes = key.match_indices('/').map(|(index, _)| index);
        // Prefixes have two or three segments: "/registry/pods/", "/registry/services/specs/".
        slashes.skip(2).take(2).find_map(|slash| {
            let (prefix, rest) = key.split_at(slash + 1);
            Some((*self.0.get(prefix)?, rest))
        })
    }
}

/// Those of the kinds that have a cache, in its order.
pub(super) fn stored_kinds(resources: &[Arc<Resource>]) -> Vec<Arc<Resource>> {
    let stored = resources.iter().filter(|resource| is_stored(resource));
    let mut stored: Vec<_> = stored.cloned().collect();
    stored.sort_by(|left, right| id(left).cmp(&id(right)));
    stored
}

impl KindCaches {
    /// `kinds` are by group and plural, as [`stored_kinds`] has them.
    pub(super) fn new(
        kinds: impl IntoIterator<Item = (Arc<Resource>, Content)>,
        revision: u64,
    ) -> KindCaches {
        let caches = kinds.into_iter().map(|(resource, content)| {
            let cache = ResourceCache::new(resource, content, revision);
            Arc::new(cache)
        });
        KindCaches::of(caches.collect())
    }

    fn of(mut caches: Vec<Arc<ResourceCache>>) -> KindCaches {
        caches.sort_by(|left, right| id(&left.resource).cmp(&id(&right.resource)));
        let places = Places::of(caches.iter().map(|cache| &cache.resource));
        KindCaches { caches, places }
    }

    /// The same and one more.
    pub(super) fn with(&self, cache: ResourceCache) -> KindCaches {
        let mut caches = self.caches.clone();
        caches.push(Arc::new(cache));
        KindCaches::of(caches)
    }

    /// The same without one.
    pub(super) fn without(&self, removed: &Arc<ResourceCache>) -> KindCaches {
        let caches = self.caches.iter();
        let rest = caches.filter(|cache| !Arc::ptr_eq(cache, removed));
        KindCaches::of(rest.cloned().collect())
    }

    pub fn get(&self, group: &str, plural: &str) -> Option<&Arc<ResourceCache>> {
        let wanted = (group, plural);
        let found = self
            .caches
            .binary_search_by(|cache| id(&cache.resource).cmp(&wanted));
        found.ok().map(|index| &self.caches[index])
    }

    /// All of them, by group and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceCache>> {
        self.caches.iter()
    }

    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// The cache at a place.
    pub(super) fn at(&self, place: usize) -> &Arc<ResourceCache> {
        &self.caches[place]
    }

    pub(super) fn len(&self) -> usize {
        self.caches.len()
    }
}

fn id(resource: &Resource) -> (&str, &str) {
    (&resource.group, &resource.plural)
}
