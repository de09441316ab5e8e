//! What a controller has written and its cache may not show yet. A reconcile that would plan on a
//! cache older than its own writes waits instead of doing the same twice.

use std::collections::BTreeMap;
use std::time::Duration;

use client::{Informer, Object, ObjectKey};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How soon a cache that was behind is looked at again.
pub const CATCH_UP: Duration = Duration::from_millis(10);

/// An object that is not in the cache after this time has been deleted meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

/// By the key that was reconciled: each object written for it, and the version it then had.
#[derive(Default)]
pub struct Written {
    versions: Mutex<BTreeMap<ObjectKey, BTreeMap<ObjectKey, (u64, Instant)>>>,
}

impl Written {
    /// Remembers the answer to a create or an update.
    pub fn note<K: Object>(&self, key: &ObjectKey, object: &K) {
        if let Some(version) = version_of(object) {
            let mut versions = self.versions.lock();
            let written = versions.entry(key.clone()).or_default();
            written.insert(ObjectKey::of(object), (version, Instant::now()));
        }
    }

    pub fn forget(&self, key: &ObjectKey) {
        self.versions.lock().remove(key);
    }

    /// Whether the cache has not shown something for so long that the server must be asked.
    pub fn is_overdue(&self, key: &ObjectKey) -> bool {
        let versions = self.versions.lock();
        let written = versions.get(key).into_iter().flatten();
        written
            .into_iter()
            .any(|(_, (_, since))| since.elapsed() >= PATIENCE / 2)
    }

    /// Whether the cache shows everything that was written for `key`; what it shows is forgotten.
    pub fn is_shown<K: Object>(&self, key: &ObjectKey, cache: &Informer<K>) -> bool {
        let mut versions = self.versions.lock();
        let Some(written) = versions.get_mut(key) else {
            return true;
        };
        written.retain(|object, (version, since)| {
            let shown = cache
                .get(&object.namespace, &object.name)
                .and_then(|object| version_of(&*object));
            match shown {
                // However long that takes.
                Some(shown) => shown < *version,
                None => since.elapsed() < PATIENCE,
            }
        });
        let all = written.is_empty();
        if all {
            versions.remove(key);
        }
        all
    }
}

fn version_of<K: Object>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}
