//! Which pods belong together because a service or a workload selects them, for the spreading of
//! pods that say nothing themselves.

use std::borrow::Cow;

use api::selector::LabelSelector;
use client::{Index, Informer, Informers, Terms};
use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{LabelSelector as Document, ObjectMeta},
};
use semantics::{label_selector, owner::controller_of};
use serde::Deserialize;

use crate::affinity_terms::Labels;

pub trait WorkloadSelectors: Send + Sync {
    /// The selectors of the pod's services and of its controller as one, if there are any.
    fn selector_for(&self, pod: &Pod) -> Option<LabelSelector>;
}

/// Declares a kind of which only the selector is kept.
macro_rules! selecting {
    ($name:ident, $group:literal, $plural:literal, $selector:ty) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        struct $name {
            #[serde(default)]
            metadata: ObjectMeta,
            #[serde(default)]
            spec: Selecting<$selector>,
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

            fn kind(_: &()) -> Cow<'_, str> {
                stringify!($name).into()
            }

            fn group(_: &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version(_: &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Selecting<S> {
    #[serde(default = "Option::default")]
    selector: Option<S>,
}

selecting!(Service, "", "services", Labels);
selecting!(ReplicationController, "", "replicationcontrollers", Labels);
selecting!(ReplicaSet, "apps", "replicasets", Document);
selecting!(StatefulSet, "apps", "statefulsets", Document);

/// As the API has them.
pub struct InformedSelectors {
    /// By a label that they select.
    services: Index<Service>,
    replication_controllers: Informer<ReplicationController>,
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
}

impl InformedSelectors {
    pub fn new(informers: &Informers) -> InformedSelectors {
        InformedSelectors {
            services: informers
                .of::<Service>()
                .index("selector", Terms::Rarest(labels_of)),
            replication_controllers: informers.of(),
            replica_sets: informers.of(),
            stateful_sets: informers.of(),
        }
    }
}

impl WorkloadSelectors for InformedSelectors {
    fn selector_for(&self, pod: &Pod) -> Option<LabelSelector> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let labels = pod.metadata.labels.iter().flatten();
        let terms: Vec<String> = labels
            .map(|(name, value)| term(namespace, name, value))
            .collect();
        let services = self.services.get_any(&terms);
        let services = services.iter().filter_map(|s| s.spec.selector.as_ref());
        let mut selector = Document {
            match_labels: Some(merge_matching(services, pod)),
            ..Document::default()
        };
        if let Some(owner) = controller_of(&pod.metadata) {
            let name = owner.name.as_str();
            match (owner.api_version.as_str(), owner.kind.as_str()) {
                ("v1", "ReplicationController") => {
                    let controller = self.replication_controllers.get(namespace, name);
                    let labels = controller.and_then(|c| c.spec.selector.clone());
                    let all = selector.match_labels.get_or_insert_default();
                    all.extend(labels.into_iter().flatten());
                }
                ("apps/v1", "ReplicaSet") => {
                    let set = self.replica_sets.get(namespace, name);
                    add(&mut selector, set.and_then(|set| set.spec.selector.clone()));
                }
                ("apps/v1", "StatefulSet") => {
                    let set = self.stateful_sets.get(namespace, name);
                    add(&mut selector, set.and_then(|set| set.spec.selector.clone()));
                }
                _ => {}
            }
        }
        let selector = label_selector::parse(Some(&selector));
        (!selector.is_everything()).then_some(selector)
    }
}

/// A Service is found by any one of the labels it selects. One that selects nothing is found by
/// none: it adds nothing to what others select.
fn labels_of(service: &Service) -> Vec<Vec<String>> {
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    let selector = service.spec.selector.iter().flatten();
    selector
        .map(|(name, value)| vec![term(namespace, name, value)])
        .collect()
}

fn term(namespace: &str, name: &str, value: &str) -> String {
    format!("{namespace}\n{name}={value}")
}

/// The selectors among these that select the pod, as one.
fn merge_matching<'a>(selectors: impl Iterator<Item = &'a Labels>, pod: &Pod) -> Labels {
    let labels = pod.metadata.labels.as_ref();
    let mut merged = Labels::new();
    for selector in selectors {
        let selects = selector
            .iter()
            .all(|(name, value)| labels.and_then(|labels| labels.get(name)) == Some(value));
        if selects {
            merged.extend(selector.clone());
        }
    }
    merged
}

/// Adds the requirements of another selector. Labels that both name are the same, as both select
/// the pod.
fn add(selector: &mut Document, more: Option<Document>) {
    let Some(more) = more else {
        return;
    };
    let labels = selector.match_labels.get_or_insert_default();
    labels.extend(more.match_labels.into_iter().flatten());
    let expressions = selector.match_expressions.get_or_insert_default();
    expressions.extend(more.match_expressions.into_iter().flatten());
}
