//! Finds the objects that belong together by indexes of the informers' caches, so that the work for
//! one object does not grow with the number of others: pods by their labels, node, controller or
//! claim, and what selects pods by its selector.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Index, Informer, Object, Terms};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ReplicationController, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use semantics::pod_claim::pod_claims;

use crate::meta;

pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

type Labels = BTreeMap<String, String>;

/// Objects by their labels.
pub struct Labelled<K> {
    objects: Informer<K>,
    index: Index<K>,
}

impl<K> Clone for Labelled<K> {
    fn clone(&self) -> Labelled<K> {
        Labelled {
            objects: self.objects.clone(),
            index: self.index.clone(),
        }
    }
}

impl<K: Object> Labelled<K> {
    pub fn of(objects: &Informer<K>) -> Labelled<K> {
        Labelled {
            objects: objects.clone(),
            index: objects.index("labels", Terms::All(|object| pairs_of(object.meta()))),
        }
    }

    /// The objects of the namespace that the selector matches; an empty one matches all of them.
    /// Costs what the rarest of the labels it demands costs. A selector that demands no value of
    /// any label is compared with the whole namespace.
    pub fn selected_by(&self, namespace: &str, selector: &LabelSelector) -> Vec<Arc<K>> {
        let mut found = self.having_one_of(namespace, required_pairs(namespace, selector));
        let none = Labels::new();
        found.retain(|object| {
            let labels = object.meta().labels.as_ref().unwrap_or(&none);
            semantics::label_selector::matches(selector, labels)
        });
        found
    }

    /// The objects under the rarest group of labels, of which there is one per requirement.
    fn having_one_of(&self, namespace: &str, groups: Vec<Vec<String>>) -> Vec<Arc<K>> {
        let rarest = groups.into_iter().min_by_key(|group| {
            let counts = group.iter().map(|term| self.index.count(term));
            counts.sum::<usize>()
        });
        match rarest {
            Some(terms) => self.index.get_any(&terms),
            None => self.objects.list_in(namespace),
        }
    }

    /// As [`Labelled::selected_by`], for a selector in the form that the API's query has.
    pub fn matching(
        &self,
        namespace: &str,
        selector: &api::selector::LabelSelector,
    ) -> Vec<Arc<K>> {
        let mut found = self.having_one_of(namespace, required_of(namespace, selector));
        found.retain(|object| selector.matches(|label| meta::label(object.meta(), label)));
        found
    }

    /// As [`Labelled::selected_by`], for a selector that is a map of labels.
    pub fn having(&self, namespace: &str, labels: &Labels) -> Vec<Arc<K>> {
        let selector = LabelSelector {
            match_labels: Some(labels.clone()),
            match_expressions: None,
        };
        self.selected_by(namespace, &selector)
    }
}

/// For each requirement of a selector that names values, the labels of which one must be there.
pub fn required_of(namespace: &str, selector: &api::selector::LabelSelector) -> Vec<Vec<String>> {
    use api::selector::Operator::{DoubleEquals, Equals, In};
    let requirements = selector.requirements().iter();
    let naming = requirements.filter(|one| matches!(one.operator, In | Equals | DoubleEquals));
    naming
        .map(|one| {
            let values = one.values.iter();
            values
                .map(|value| pair_term(namespace, &one.key, value))
                .collect()
        })
        .collect()
}

/// The terms under which selectors are found by the labels of an object.
pub fn terms_of_labels(meta: &ObjectMeta) -> Vec<String> {
    let mut terms = pairs_of(meta);
    terms.push(key_term(namespace_of(meta), ""));
    terms
}

/// A kind that selects pods by their labels.
pub trait Selects: Object {
    /// None if it selects nothing; an empty selector selects everything in its namespace.
    fn selects(&self) -> Option<LabelSelector>;
}

/// Objects by whom they select.
pub struct Selecting<K> {
    index: Index<K>,
}

impl<K> Clone for Selecting<K> {
    fn clone(&self) -> Selecting<K> {
        Selecting {
            index: self.index.clone(),
        }
    }
}

impl<K: Selects> Selecting<K> {
    pub fn of(objects: &Informer<K>) -> Selecting<K> {
        Selecting {
            index: objects.index("selector", Terms::Rarest(alternatives)),
        }
    }

    /// The objects of the namespace whose selector matches these labels.
    pub fn of_labels(&self, namespace: &str, labels: Option<&Labels>) -> Vec<Arc<K>> {
        let none = Labels::new();
        let labels = labels.unwrap_or(&none);
        let mut terms = vec![key_term(namespace, "")];
        for (key, value) in labels {
            terms.push(key_term(namespace, key));
            terms.push(pair_term(namespace, key, value));
        }
        let mut found = self.index.get_any(&terms);
        found.retain(|object| {
            let selector = object.selects();
            selector.is_some_and(|selector| semantics::label_selector::matches(&selector, labels))
        });
        found
    }
}

/// Objects by the one that controls them.
pub struct Controlled<K> {
    by_controller: Index<K>,
    orphans: Index<K>,
}

impl<K> Clone for Controlled<K> {
    fn clone(&self) -> Controlled<K> {
        Controlled {
            by_controller: self.by_controller.clone(),
            orphans: self.orphans.clone(),
        }
    }
}

impl<K: Object> Controlled<K> {
    pub fn of(objects: &Informer<K>) -> Controlled<K> {
        let controller = |object: &K| {
            let controller = semantics::owner::controller_of(object.meta());
            controller
                .map(|owner| owner.uid.clone())
                .into_iter()
                .collect()
        };
        let orphans = |object: &K| match semantics::owner::controller_of(object.meta()) {
            Some(_) => Vec::new(),
            None => {
                let mut terms = pairs_of(object.meta());
                terms.push(key_term(namespace_of(object.meta()), ""));
                terms
            }
        };
        Controlled {
            by_controller: objects.index("controller", Terms::All(controller)),
            orphans: objects.index("orphans", Terms::All(orphans)),
        }
    }

    /// The objects that the one with `uid` controls.
    pub fn by(&self, uid: &str) -> Vec<Arc<K>> {
        self.by_controller.get(uid)
    }

    /// The objects that `owner` controls, and those without a controller that its selector matches.
    pub fn claimable(&self, owner: &ObjectMeta, selector: &LabelSelector) -> Vec<Arc<K>> {
        let mut found = self.by(owner.uid.as_deref().unwrap_or_default());
        if *selector == LabelSelector::default() {
            return found;
        }
        let namespace = namespace_of(owner);
        let groups = required_pairs(namespace, selector);
        let rarest = groups.into_iter().min_by_key(|group| {
            let counts = group.iter().map(|term| self.orphans.count(term));
            counts.sum::<usize>()
        });
        let terms = rarest.unwrap_or_else(|| vec![key_term(namespace, "")]);
        let mut orphans = self.orphans.get_any(&terms);
        orphans.retain(|object| {
            let labels = object.meta().labels.as_ref();
            labels.is_some_and(|labels| semantics::label_selector::selects(selector, labels))
        });
        found.extend(orphans);
        found.sort_by(|a, b| a.meta().name.cmp(&b.meta().name));
        found
    }
}

/// Pods by the name of the node they are bound to.
pub fn by_node(pods: &Informer<Pod>) -> Index<Pod> {
    let node = |pod: &Pod| {
        let node = meta::node_name(pod);
        Vec::from_iter((!node.is_empty()).then(|| node.to_owned()))
    };
    pods.index("node", Terms::All(node))
}

/// Pods by the claims they use; look up with [`in_namespace`].
pub fn by_claim(pods: &Informer<Pod>) -> Index<Pod> {
    let claims = |pod: &Pod| {
        let namespace = namespace_of(&pod.metadata);
        pod_claims(pod)
            .map(|claim| in_namespace(namespace, &claim.name))
            .collect()
    };
    pods.index("claims", Terms::All(claims))
}

/// EndpointSlices by the Service they belong to; look up with [`in_namespace`].
pub fn by_service(slices: &Informer<EndpointSlice>) -> Index<EndpointSlice> {
    let service = |slice: &EndpointSlice| {
        let service = meta::label(&slice.metadata, SERVICE_LABEL);
        let term = service.map(|name| in_namespace(namespace_of(&slice.metadata), name));
        Vec::from_iter(term)
    };
    slices.index("service", Terms::All(service))
}

/// The selector of a Service whose endpoints are found by controllers.
pub fn service_selector(service: &Service) -> Option<&Labels> {
    let spec = service.spec.as_ref()?;
    let selector = spec.selector.as_ref()?;
    (spec.type_.as_deref() != Some("ExternalName") && !selector.is_empty()).then_some(selector)
}

/// The term for something named in a namespace.
pub fn in_namespace(namespace: &str, name: &str) -> String {
    format!("{namespace}\n{name}")
}

pub fn namespace_of(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// The term of a key; with an empty key, which no label has, that of selectors without
/// requirements.
fn key_term(namespace: &str, key: &str) -> String {
    format!("{namespace}\n{key}")
}

fn pair_term(namespace: &str, key: &str, value: &str) -> String {
    format!("{namespace}\n{key}={value}")
}

fn pairs_of(meta: &ObjectMeta) -> Vec<String> {
    let labels = meta.labels.iter().flatten();
    labels
        .map(|(key, value)| pair_term(namespace_of(meta), key, value))
        .collect()
}

/// For each requirement of the selector that names values, the labels of which one must be there.
fn required_pairs(namespace: &str, selector: &LabelSelector) -> Vec<Vec<String>> {
    let exact = selector.match_labels.iter().flatten();
    let mut groups: Vec<Vec<String>> = exact
        .map(|(key, value)| vec![pair_term(namespace, key, value)])
        .collect();
    for expression in selector.match_expressions.iter().flatten() {
        if expression.operator == "In" {
            let values = expression.values.iter().flatten();
            let pairs = values.map(|value| pair_term(namespace, &expression.key, value));
            groups.push(pairs.collect());
        }
    }
    groups
}

/// The groups of terms under one of which an object with a selector is found by labels.
fn alternatives<K: Selects>(object: &K) -> Vec<Vec<String>> {
    let Some(selector) = object.selects() else {
        return Vec::new();
    };
    let namespace = namespace_of(object.meta());
    let mut groups = required_pairs(namespace, &selector);
    for expression in selector.match_expressions.iter().flatten() {
        if expression.operator == "Exists" {
            groups.push(vec![key_term(namespace, &expression.key)]);
        }
    }
    if groups.is_empty() {
        groups.push(vec![key_term(namespace, "")]);
    }
    groups
}

/// Declares workloads, whose empty selector selects nothing.
macro_rules! workloads {
    ($($kind:ty: $selector:expr;)*) => {
        $(impl Selects for $kind {
            fn selects(&self) -> Option<LabelSelector> {
                let selector: Option<LabelSelector> = self.spec.as_ref().and_then($selector);
                selector.filter(|selector| !semantics::label_selector::is_empty(selector))
            }
        })*
    };
}

workloads! {
    DaemonSet: |spec| Some(spec.selector.clone());
    Deployment: |spec| Some(spec.selector.clone());
    ReplicaSet: |spec| Some(spec.selector.clone());
    StatefulSet: |spec| Some(spec.selector.clone());
    Job: |spec| spec.selector.clone();
    ReplicationController: |spec| Some(LabelSelector {
        match_labels: spec.selector.clone(),
        match_expressions: None,
    });
}

impl Selects for Service {
    fn selects(&self) -> Option<LabelSelector> {
        let labels = service_selector(self)?;
        Some(LabelSelector {
            match_labels: Some(labels.clone()),
            match_expressions: None,
        })
    }
}

impl Selects for PodDisruptionBudget {
    fn selects(&self) -> Option<LabelSelector> {
        self.spec.as_ref()?.selector.clone()
    }
}
