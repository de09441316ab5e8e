//! An index of objects by terms that are read from them, such as labels, so that a lookup does not
//! visit all objects. It is updated with each change.
//!
//! [`Terms::All`] indexes an object under each of its terms, for example a pod under each label.
//! [`Terms::Rarest`] indexes it under one of several alternatives, the one with the fewest objects:
//! a selector of two labels only needs to be found by one of them, and where ten thousand selectors
//! share `app=web` the other label distinguishes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::ObjectKey;

/// How to read the terms of an object.
pub enum Terms<K> {
    /// The object is found under each of these.
    All(fn(&K) -> Vec<String>),
    /// The object is found under all terms of one of these groups.
    Rarest(fn(&K) -> Vec<Vec<String>>),
}

/// An index of the keys of objects of type `K`.
pub struct TermIndex<K> {
    terms: Terms<K>,
    by_term: BTreeMap<String, BTreeSet<Arc<ObjectKey>>>,
    /// The terms under which each object is indexed; objects without terms are not here.
    indexed: BTreeMap<Arc<ObjectKey>, Vec<String>>,
}

impl<K> TermIndex<K> {
    pub fn new(terms: Terms<K>) -> TermIndex<K> {
        TermIndex {
            terms,
            by_term: BTreeMap::new(),
            indexed: BTreeMap::new(),
        }
    }

    /// Adds or replaces an object. `old` is the object that was set for the key before.
    pub fn set(&mut self, key: &Arc<ObjectKey>, old: Option<&K>, new: &K) {
        let terms = match &self.terms {
            Terms::All(terms) => {
                let new = terms(new);
                if self.indexed.get(key).is_some_and(|indexed| *indexed == new) {
                    return;
                }
                new
            }
            Terms::Rarest(groups) => {
                let new = groups(new);
                if old.is_some_and(|old| groups(old) == new) && self.indexed.contains_key(key) {
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
            self.indexed.insert(key.clone(), terms);
        }
    }

    pub fn remove(&mut self, key: &Arc<ObjectKey>) {
        for term in self.indexed.remove(key).unwrap_or_default() {
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

    fn names<K>(index: &TermIndex<K>, terms: &[&str]) -> Vec<String> {
        let terms: Vec<String> = terms.iter().map(|term| term.to_string()).collect();
        let found = index.under(&terms).into_iter();
        found.map(|key| key.name.clone()).collect()
    }

    #[test]
    fn an_object_is_found_under_each_of_its_current_terms() {
        let terms = |labels: &Labels| labels.iter().map(|label| label.to_string()).collect();
        let mut index: TermIndex<Labels> = TermIndex::new(Terms::All(terms));
        index.set(&key("a"), None, &vec!["x", "y"]);
        index.set(&key("b"), None, &vec!["y"]);
        assert_eq!(names(&index, &["y"]), ["a", "b"]);
        assert_eq!(names(&index, &["x", "y"]), ["a", "b"]);
        index.set(&key("a"), Some(&vec!["x", "y"]), &vec!["x"]);
        assert_eq!(names(&index, &["y"]), ["b"]);
        assert_eq!(names(&index, &["x"]), ["a"]);
        index.remove(&key("a"));
        index.remove(&key("b"));
        assert!(index.by_term.is_empty() && index.indexed.is_empty());
    }

    #[test]
    fn a_selector_is_indexed_under_its_rarest_label() {
        let groups = |labels: &Labels| labels.iter().map(|label| vec![label.to_string()]).collect();
        let mut index: TermIndex<Labels> = TermIndex::new(Terms::Rarest(groups));
        for name in ["a", "b", "c", "d"] {
            let own: &'static str = name;
            index.set(&key(name), None, &vec!["app=web", own]);
        }
        assert!(index.count("app=web") <= 1);
        // A lookup with both labels finds it.
        assert_eq!(
            names(&index, &["app=web", "c"])
                .iter()
                .filter(|name| *name == "c")
                .count(),
            1
        );
        index.set(&key("c"), Some(&vec!["app=web", "c"]), &vec!["other"]);
        assert_eq!(names(&index, &["c"]), [""; 0]);
        assert_eq!(names(&index, &["other"]), ["c"]);
    }
}
