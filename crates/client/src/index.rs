//! Indexes of an informer's cache: the objects by terms that are read from them, so that who looks
//! for a few objects does not look at all of them. Kept up to date with each change.
//!
//! [`Terms::All`] files an object under each of its terms, e.g. a pod under each of its labels.
//! [`Terms::Rarest`] files it under one of several alternatives, the one with the fewest objects:
//! a selector of two labels needs to be found by one of them only, and where ten thousand selectors
//! share `app=web` the other label is what tells them apart.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{Object, ObjectKey, cache::Cache, informer::Running};

/// How the terms of an object are found.
pub enum Terms<K> {
    /// The object is found under each of these.
    All(fn(&K) -> Vec<String>),
    /// The object is found under all terms of one of these groups.
    Rarest(fn(&K) -> Vec<Vec<String>>),
}

/// A handle on one index of a cache. Cheap to clone.
pub struct Index<K> {
    pub(crate) cache: Arc<Cache<K>>,
    pub(crate) name: &'static str,
    pub(crate) _running: Arc<Running>,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Index<K> {
        Index {
            cache: self.cache.clone(),
            name: self.name,
            _running: self._running.clone(),
        }
    }
}

impl<K: Object> Index<K> {
    /// The objects under `term`, ordered by namespace and name.
    pub fn get(&self, term: &str) -> Vec<Arc<K>> {
        self.cache.indexed(self.name, &[term.to_owned()])
    }

    /// The objects under any of `terms`, each once, ordered by namespace and name.
    pub fn get_any(&self, terms: &[String]) -> Vec<Arc<K>> {
        self.cache.indexed(self.name, terms)
    }

    /// How many objects are under `term`.
    pub fn count(&self, term: &str) -> usize {
        self.cache.indexed_count(self.name, term)
    }
}

/// The content of one index; also for those who keep such an index of something else.
pub struct Filing<K> {
    terms: Terms<K>,
    by_term: BTreeMap<String, BTreeSet<Arc<ObjectKey>>>,
    /// The terms that each object is under; objects without terms are not here.
    filed: BTreeMap<Arc<ObjectKey>, Vec<String>>,
}

impl<K> Filing<K> {
    pub fn new(terms: Terms<K>) -> Filing<K> {
        Filing {
            terms,
            by_term: BTreeMap::new(),
            filed: BTreeMap::new(),
        }
    }

    /// `old` is what was set for the key before.
    pub fn set(&mut self, key: &Arc<ObjectKey>, old: Option<&K>, new: &K) {
        let terms = match &self.terms {
            Terms::All(terms) => {
                let new = terms(new);
                if self.filed.get(key).is_some_and(|filed| *filed == new) {
                    return;
                }
                new
            }
            Terms::Rarest(groups) => {
                let new = groups(new);
                if old.is_some_and(|old| groups(old) == new) && self.filed.contains_key(key) {
                    return;
                }
                let size = |group: &Vec<String>| -> usize {
                    group.iter().map(|term| self.count(term)).sum()
                };
                new.into_iter().min_by_key(size).unwrap_or_default()
            }
        };
        self.remove(key);
        for term in &terms {
            let keys = self.by_term.entry(term.clone()).or_default();
            keys.insert(key.clone());
        }
        if !terms.is_empty() {
            self.filed.insert(key.clone(), terms);
        }
    }

    pub fn remove(&mut self, key: &Arc<ObjectKey>) {
        for term in self.filed.remove(key).unwrap_or_default() {
            if let Some(keys) = self.by_term.get_mut(&term) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_term.remove(&term);
                }
            }
        }
    }

    /// The keys under any of `terms`, each once, in order.
    pub fn under(&self, terms: &[String]) -> BTreeSet<&Arc<ObjectKey>> {
        let found = terms.iter().filter_map(|term| self.by_term.get(term));
        found.flatten().collect()
    }

    pub fn count(&self, term: &str) -> usize {
        self.by_term.get(term).map_or(0, BTreeSet::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Labels = Vec<&'static str>;

    fn key(name: &str) -> Arc<ObjectKey> {
        Arc::new(ObjectKey::new("default", name))
    }

    fn names<K>(filing: &Filing<K>, terms: &[&str]) -> Vec<String> {
        let terms: Vec<String> = terms.iter().map(|term| term.to_string()).collect();
        let found = filing.under(&terms).into_iter();
        found.map(|key| key.name.clone()).collect()
    }

    #[test]
    fn an_object_is_found_under_each_term_it_has_now() {
        let terms = |labels: &Labels| labels.iter().map(|label| label.to_string()).collect();
        let mut filing: Filing<Labels> = Filing::new(Terms::All(terms));
        filing.set(&key("a"), None, &vec!["x", "y"]);
        filing.set(&key("b"), None, &vec!["y"]);
        assert_eq!(names(&filing, &["y"]), ["a", "b"]);
        assert_eq!(names(&filing, &["x", "y"]), ["a", "b"]);
        filing.set(&key("a"), Some(&vec!["x", "y"]), &vec!["x"]);
        assert_eq!(names(&filing, &["y"]), ["b"]);
        assert_eq!(names(&filing, &["x"]), ["a"]);
        filing.remove(&key("a"));
        filing.remove(&key("b"));
        assert!(filing.by_term.is_empty() && filing.filed.is_empty());
    }

    #[test]
    fn a_selector_is_filed_under_the_label_that_the_fewest_share() {
        let groups = |labels: &Labels| labels.iter().map(|label| vec![label.to_string()]).collect();
        let mut filing: Filing<Labels> = Filing::new(Terms::Rarest(groups));
        for name in ["a", "b", "c", "d"] {
            let own: &'static str = name;
            filing.set(&key(name), None, &vec!["app=web", own]);
        }
        assert!(filing.count("app=web") <= 1);
        // Whoever has both labels finds it under either.
        assert_eq!(
            names(&filing, &["app=web", "c"])
                .iter()
                .filter(|name| *name == "c")
                .count(),
            1
        );
        filing.set(&key("c"), Some(&vec!["app=web", "c"]), &vec!["other"]);
        assert_eq!(names(&filing, &["c"]), [""; 0]);
        assert_eq!(names(&filing, &["other"]), ["c"]);
    }
}
