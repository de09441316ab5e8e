//! Expectations: the pods that a controller has created and deleted but has not yet seen in its
//! watch. Acting on a cache that lacks our own writes would create or delete twice. A write whose
//! answer was lost is a doubt, to be settled by asking the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A pod that was created and removed between two looks never comes back through the watch; its
/// expectation must not hold up its owner for ever.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// By owner.
#[derive(Default)]
pub struct Expectations {
    expected: Mutex<BTreeMap<ObjectKey, Expected>>,
}

struct Expected {
    /// Another owner of the same name expects nothing of what the former one did.
    owner: String,
    /// The names of pods by their UIDs.
    created: BTreeMap<String, String>,
    deleted: BTreeMap<String, String>,
    /// By the pod's name.
    doubts: BTreeMap<String, Deed>,
    since: Instant,
}

/// The write that was tried on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    Create,
    /// Of the pod with this UID.
    Delete(String),
}

impl Expected {
    fn of(owner: &str) -> Expected {
        Expected {
            owner: owner.to_owned(),
            created: BTreeMap::new(),
            deleted: BTreeMap::new(),
            doubts: BTreeMap::new(),
            since: Instant::now(),
        }
    }
}

impl Expectations {
    /// The owner, with that UID, has created a pod.
    pub fn created(&self, key: &ObjectKey, owner: &str, uid: &str, name: &str) {
        self.with(key, owner, |expected| {
            expected.created.insert(uid.to_owned(), name.to_owned());
        });
    }

    pub fn deleted(&self, key: &ObjectKey, owner: &str, uid: &str, name: &str) {
        self.with(key, owner, |expected| {
            expected.deleted.insert(uid.to_owned(), name.to_owned());
        });
    }

    /// The deletion did not happen after all.
    pub fn not_deleted(&self, key: &ObjectKey, pod: &str) {
        if let Some(expected) = self.expected.lock().get_mut(key) {
            expected.deleted.remove(pod);
        }
    }

    /// It is unknown whether it happened.
    pub fn doubt(&self, key: &ObjectKey, owner: &str, name: &str, deed: Deed) {
        self.with(key, owner, |expected| {
            expected.doubts.insert(name.to_owned(), deed);
        });
    }

    /// What is to be asked, by the pods' names.
    pub fn doubts(&self, key: &ObjectKey, owner: &str) -> Vec<(String, Deed)> {
        let all = self.expected.lock();
        let expected = all.get(key).filter(|expected| expected.owner == owner);
        let doubts = expected.into_iter().flat_map(|expected| &expected.doubts);
        doubts
            .map(|(name, deed)| (name.clone(), deed.clone()))
            .collect()
    }

    /// The server was asked.
    pub fn settle(&self, key: &ObjectKey, name: &str) {
        if let Some(expected) = self.expected.lock().get_mut(key) {
            expected.doubts.remove(name);
        }
    }

    pub fn forget(&self, key: &ObjectKey) {
        self.expected.lock().remove(key);
    }

    /// Whether the cache shows all we did; `shown` gives the pod of a name as the cache has it,
    /// `owner` is a UID. A deletion is seen when the pod is gone or marked.
    pub fn are_met(
        &self,
        key: &ObjectKey,
        owner: &str,
        shown: impl Fn(&str) -> Option<Arc<Pod>>,
    ) -> bool {
        let mut all = self.expected.lock();
        let Some(expected) = all.get_mut(key) else {
            return true;
        };
        let shown = |uid: &String, name: &str| {
            shown(name).filter(|pod| pod.metadata.uid.as_ref() == Some(uid))
        };
        expected
            .created
            .retain(|uid, name| shown(uid, name).is_none());
        expected.deleted.retain(|uid, name| {
            shown(uid, name).is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
        });
        let met = expected.created.is_empty()
            && expected.deleted.is_empty()
            && expected.doubts.is_empty()
            || expected.owner != owner
            || expected.since.elapsed() >= LONGEST_WAIT;
        if met {
            all.remove(key);
        }
        met
    }

    fn with(&self, key: &ObjectKey, owner: &str, change: impl FnOnce(&mut Expected)) {
        let mut all = self.expected.lock();
        let expected = all
            .entry(key.clone())
            .or_insert_with(|| Expected::of(owner));
        if expected.owner != owner {
            *expected = Expected::of(owner);
        }
        change(expected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, terminating: bool) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod.metadata.name = Some(format!("web-{uid}"));
        if terminating {
            pod.metadata.deletion_timestamp = Some(
                k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH),
            );
        }
        Arc::new(pod)
    }

    #[tokio::test(start_paused = true)]
    async fn expectations_are_met_by_the_cache_or_expire() {
        let key = ObjectKey::new("default", "web");
        let expectations = Expectations::default();
        let are_met = |owner: &str, pods: &[Arc<Pod>]| {
            expectations.are_met(&key, owner, |name| {
                let mut pods = pods.iter();
                pods.find(|pod| pod.metadata.name.as_deref() == Some(name))
                    .cloned()
            })
        };
        expectations.created(&key, "owner", "a", "web-a");
        expectations.deleted(&key, "owner", "b", "web-b");
        assert!(!are_met("owner", &[pod("b", false)]));
        assert!(!are_met("owner", &[pod("a", false), pod("b", false)]));
        assert!(are_met("owner", &[pod("a", false), pod("b", true)]));

        expectations.created(&key, "owner", "never-seen", "web-never-seen");
        assert!(!are_met("owner", &[]));
        tokio::time::advance(LONGEST_WAIT).await;
        assert!(are_met("owner", &[]));

        let lost = Deed::Delete("d".to_owned());
        expectations.doubt(&key, "owner", "web-d", lost.clone());
        assert!(!are_met("owner", &[]));
        let doubts = expectations.doubts(&key, "owner");
        assert_eq!(doubts, [("web-d".to_owned(), lost)]);
        expectations.settle(&key, "web-d");
        assert!(are_met("owner", &[]));

        expectations.created(&key, "former", "c", "web-c");
        assert!(are_met("successor", &[]));
    }
}
