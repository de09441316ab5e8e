//! Affinity and anti-affinity of pods to other pods, read once per pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::selector::LabelSelector;
use k8s_openapi::{
    api::core::v1::{Pod, PodAffinityTerm, PodSpec, WeightedPodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement,
};
use semantics::label_selector;

pub type Labels = BTreeMap<String, String>;
/// The labels of each namespace.
pub type Namespaces = BTreeMap<String, Labels>;

/// Which pods are meant, and within what they are near.
#[derive(Debug)]
pub struct Term {
    pub topology_key: String,
    namespaces: BTreeSet<String>,
    namespace_selector: LabelSelector,
    selector: LabelSelector,
    /// The same for terms that mean the same.
    pub text: String,
}

impl Term {
    fn of(pod: &Pod, term: &PodAffinityTerm) -> Arc<Term> {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(pod.metadata.namespace.clone().unwrap_or_default());
        }
        let mut selector = term.label_selector.clone();
        // The API server may have merged these already; saying it twice does no harm.
        let labels = pod.metadata.labels.as_ref();
        if let Some(selector) = &mut selector {
            let keys = |keys: &Option<Vec<String>>, operator: &str| {
                let keys = keys.iter().flatten();
                let with_values = keys.filter_map(|key| {
                    let value = labels?.get(key)?.clone();
                    Some(LabelSelectorRequirement {
                        key: key.clone(),
                        operator: operator.to_owned(),
                        values: Some(vec![value]),
                    })
                });
                with_values.collect::<Vec<_>>()
            };
            let mut more = keys(&term.match_label_keys, "In");
            more.extend(keys(&term.mismatch_label_keys, "NotIn"));
            if !more.is_empty() {
                let expressions = selector.match_expressions.get_or_insert_default();
                expressions.extend(more);
            }
        }
        let selector = label_selector::parse(selector.as_ref());
        let namespace_selector = label_selector::parse(term.namespace_selector.as_ref());
        let text = format!(
            "{}\n{namespaces:?}\n{namespace_selector:?}\n{selector:?}",
            term.topology_key
        );
        Arc::new(Term {
            topology_key: term.topology_key.clone(),
            namespaces,
            namespace_selector,
            selector,
            text,
        })
    }

    pub fn matches(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let labels = namespaces.get(namespace);
        let meant = self.namespaces.contains(namespace)
            || self
                .namespace_selector
                .matches(|name| labels?.get(name).map(String::as_str));
        meant && self.matches_labels(pod)
    }

    /// As `matches`, where the labels of namespaces are not known.
    pub fn may_match(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let meant = self.namespaces.contains(namespace)
            || self.namespace_selector != LabelSelector::nothing();
        meant && self.matches_labels(pod)
    }

    fn matches_labels(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        self.selector
            .matches(|name| labels?.get(name).map(String::as_str))
    }
}

/// All terms of a pod.
#[derive(Debug, Default)]
pub struct AffinityTerms {
    pub required: Vec<Arc<Term>>,
    pub required_anti: Vec<Arc<Term>>,
    /// With their weights, those of anti-affinity negative.
    pub preferred: Vec<(i64, Arc<Term>)>,
}

impl AffinityTerms {
    /// `None` if the pod has no affinity to other pods.
    pub fn of(pod: &Pod, spec: &PodSpec) -> Option<Box<AffinityTerms>> {
        let affinity = spec.affinity.as_ref()?;
        let near = affinity.pod_affinity.as_ref();
        let far = affinity.pod_anti_affinity.as_ref();
        let read = |terms: Option<&Vec<PodAffinityTerm>>| -> Vec<Arc<Term>> {
            let terms = terms.into_iter().flatten();
            terms.map(|term| Term::of(pod, term)).collect()
        };
        let weigh = |terms: Option<&Vec<WeightedPodAffinityTerm>>, sign: i64| {
            let terms = terms.into_iter().flatten();
            let weighed = terms.map(|weighted| {
                let term = Term::of(pod, &weighted.pod_affinity_term);
                (sign * i64::from(weighted.weight), term)
            });
            weighed.collect::<Vec<_>>()
        };
        let mut terms = AffinityTerms {
            required: read(near.and_then(|near| {
                near.required_during_scheduling_ignored_during_execution
                    .as_ref()
            })),
            required_anti: read(far.and_then(|far| {
                far.required_during_scheduling_ignored_during_execution
                    .as_ref()
            })),
            preferred: weigh(
                near.and_then(|near| {
                    near.preferred_during_scheduling_ignored_during_execution
                        .as_ref()
                }),
                1,
            ),
        };
        terms.preferred.extend(weigh(
            far.and_then(|far| {
                far.preferred_during_scheduling_ignored_during_execution
                    .as_ref()
            }),
            -1,
        ));
        let empty = terms.required.is_empty()
            && terms.required_anti.is_empty()
            && terms.preferred.is_empty();
        (!empty).then(|| Box::new(terms))
    }
}
