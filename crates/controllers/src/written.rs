//! What a controller has last written of an object, so that it does not act on an older copy: a
//! cache that lacks a status we wrote would make us do the work of that status again.

use std::collections::BTreeMap;

use client::{Object, ObjectKey};
use parking_lot::Mutex;

/// By object: its UID and the newest resourceVersion we got from a write. Bounded by the objects
/// there are: whoever sees that one is gone forgets it.
#[derive(Default)]
pub struct Written {
    versions: Mutex<BTreeMap<ObjectKey, (Option<String>, u64)>>,
}

impl Written {
    /// Remembers the answer to a write.
    pub fn note<K: Object>(&self, object: &K) {
        if let Some(version) = version(object) {
            let entry = (object.meta().uid.clone(), version);
            self.versions.lock().insert(ObjectKey::of(object), entry);
        }
    }

    /// Whether this copy is older than what we wrote.
    pub fn is_ahead_of<K: Object>(&self, object: &K) -> bool {
        let key = ObjectKey::of(object);
        let mut versions = self.versions.lock();
        let Some((uid, written)) = versions.get(&key) else {
            return false;
        };
        let ahead = *uid == object.meta().uid
            && version(object).is_some_and(|version| version < *written);
        if !ahead {
            versions.remove(&key);
        }
        ahead
    }

    pub fn forget(&self, key: &ObjectKey) {
        self.versions.lock().remove(key);
    }
}

fn version<K: Object>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::batch::v1::Job;

    #[test]
    fn an_older_copy_is_told_from_a_newer_one_and_from_another_object() {
        let job = |uid: &str, version: u64| -> Job {
            serde_json::from_value(serde_json::json!({"metadata": {
                "namespace": "ns", "name": "j", "uid": uid, "resourceVersion": version.to_string(),
            }}))
            .unwrap()
        };
        let written = Written::default();
        written.note(&job("a", 7));
        assert!(written.is_ahead_of(&job("a", 6)));
        assert!(!written.is_ahead_of(&job("b", 6)));
        written.note(&job("a", 7));
        assert!(!written.is_ahead_of(&job("a", 7)));
        assert!(!written.is_ahead_of(&job("a", 6)), "seen once, it is forgotten");
    }
}
