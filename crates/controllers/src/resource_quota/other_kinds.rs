//! What is kept for kinds that quotas count by number and that no other part watches: each is kept
//! while some quota counts the kind.

use std::collections::{BTreeMap, BTreeSet};

use client::ObjectKey;
use parking_lot::Mutex;

/// By `plural.group`: what is kept for the kind, and the quotas that count it.
pub struct OtherKinds<T> {
    kinds: Mutex<BTreeMap<String, (T, BTreeSet<ObjectKey>)>>,
}

impl<T> Default for OtherKinds<T> {
    fn default() -> OtherKinds<T> {
        OtherKinds {
            kinds: Mutex::default(),
        }
    }
}

impl<T: Clone> OtherKinds<T> {
    /// What is kept for a kind that the quota counts, if it is known.
    pub fn get(&self, resource: &str, quota: &ObjectKey) -> Option<T> {
        let mut kinds = self.kinds.lock();
        let (kept, quotas) = kinds.get_mut(resource)?;
        quotas.insert(quota.clone());
        Some(kept.clone())
    }

    /// As [`OtherKinds::get`], made if it is not known.
    pub fn get_or_make(&self, resource: &str, quota: &ObjectKey, make: impl FnOnce() -> T) -> T {
        let mut kinds = self.kinds.lock();
        let (kept, quotas) = kinds
            .entry(resource.to_string())
            .or_insert_with(|| (make(), BTreeSet::new()));
        quotas.insert(quota.clone());
        kept.clone()
    }

    /// The quota counts only these kinds now. What no quota counts any more is dropped.
    pub fn release_others(&self, quota: &ObjectKey, counted: &BTreeSet<&str>) {
        self.kinds.lock().retain(|resource, (_, quotas)| {
            if !counted.contains(resource.as_str()) {
                quotas.remove(quota);
            }
            !quotas.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_kind_is_kept_while_a_quota_counts_it() {
        let quota = |name: &str| ObjectKey {
            namespace: "a".to_string(),
            name: name.to_string(),
        };
        let (one, two) = (quota("one"), quota("two"));
        let kinds: OtherKinds<Arc<str>> = OtherKinds::default();
        assert!(kinds.get("widgets.b.io", &one).is_none());
        let made = Arc::downgrade(&kinds.get_or_make("widgets.b.io", &one, || "w".into()));
        let again = kinds.get_or_make("widgets.b.io", &two, || "other".into());
        assert_eq!(&*again, "w", "it is made once");
        drop(again);
        kinds.release_others(&one, &BTreeSet::new());
        kinds.release_others(&two, &BTreeSet::from(["widgets.b.io"]));
        assert!(kinds.get("widgets.b.io", &two).is_some());
        kinds.release_others(&two, &BTreeSet::new());
        assert!(
            made.upgrade().is_none(),
            "it is dropped with the last quota"
        );
    }
}
