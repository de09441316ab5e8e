//! Whose pods each autoscaler follows, as last seen, so that it is found out when two follow the
//! same pod. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::selector::LabelSelector;
use client::ObjectKey;
use client::index::{TermIndex, Terms};
use k8s_openapi::api::core::v1::Pod;

use crate::{lookup, meta};

/// A selector and the namespace it is about.
type Scoped = (String, LabelSelector);

pub struct Selectors {
    selectors: BTreeMap<ObjectKey, Scoped>,
    by_label: TermIndex<Scoped>,
}

impl Default for Selectors {
    fn default() -> Selectors {
        let groups = |(namespace, selector): &Scoped| {
            let mut groups = lookup::required_of(namespace, selector);
            if groups.is_empty() {
                groups.push(vec![lookup::in_namespace(namespace, "")]);
            }
            groups
        };
        Selectors {
            selectors: BTreeMap::new(),
            by_label: TermIndex::new(Terms::Rarest(groups)),
        }
    }
}

impl Selectors {
    pub fn set(&mut self, scaler: &ObjectKey, selector: LabelSelector) {
        let scoped = (scaler.namespace.clone(), selector);
        let old = self.selectors.get(scaler);
        self.by_label.set(&Arc::new(scaler.clone()), old, &scoped);
        self.selectors.insert(scaler.clone(), scoped);
    }

    pub fn remove(&mut self, scaler: &ObjectKey) {
        self.by_label.remove(&Arc::new(scaler.clone()));
        self.selectors.remove(scaler);
    }

    /// The autoscalers that follow one of these pods.
    pub fn selecting(&self, pods: &[Arc<Pod>]) -> Vec<ObjectKey> {
        let mut found = BTreeSet::new();
        for pod in pods {
            let terms = lookup::terms_of_labels(&pod.metadata);
            for scaler in self.by_label.under(&terms) {
                let selects = self.selectors.get(&**scaler).is_some_and(|(_, selector)| {
                    selector.matches(|label| meta::label(&pod.metadata, label))
                });
                if selects {
                    found.insert((**scaler).clone());
                }
            }
        }
        found.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autoscalers_with_a_pod_in_common_are_found() {
        let pod = |namespace: &str, app: &str| -> Arc<Pod> {
            let mut pod = Pod::default();
            pod.metadata.namespace = Some(namespace.to_owned());
            pod.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
            Arc::new(pod)
        };
        let mut selectors = Selectors::default();
        for (name, selector) in [("a", "app=web"), ("b", "app in (web,db)"), ("c", "app!=db")] {
            let selector = LabelSelector::parse(selector).unwrap();
            selectors.set(&ObjectKey::new("default", name), selector);
        }
        let names = |selectors: &Selectors, pod: Arc<Pod>| -> Vec<String> {
            let found = selectors.selecting(&[pod]).into_iter();
            found.map(|key| key.name).collect()
        };
        assert_eq!(names(&selectors, pod("default", "web")), ["a", "b", "c"]);
        assert_eq!(names(&selectors, pod("default", "db")), ["b"]);
        assert_eq!(names(&selectors, pod("other", "web")), [""; 0]);
        selectors.remove(&ObjectKey::new("default", "a"));
        selectors.set(
            &ObjectKey::new("default", "c"),
            LabelSelector::parse("app=db").unwrap(),
        );
        assert_eq!(names(&selectors, pod("default", "web")), ["b"]);
    }
}
