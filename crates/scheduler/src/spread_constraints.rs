//! How a pod and its like want to be spread, read once per pod.

use std::sync::Arc;

use api::selector::LabelSelector;
use k8s_openapi::{
    api::core::v1::{Pod, PodSpec, TopologySpreadConstraint},
    apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement,
};
use semantics::label_selector;

#[derive(Clone, Debug)]
pub struct SpreadConstraint {
    pub topology_key: String,
    pub max_skew: i64,
    pub min_domains: usize,
    /// Whether the pod would rather wait than break it.
    pub is_hard: bool,
    pub selector: Arc<LabelSelector>,
    /// Whether nodes that the pod's node affinity excludes do not count.
    pub honors_affinity: bool,
    /// Whether nodes with taints that the pod does not tolerate do not count.
    pub honors_taints: bool,
}

impl SpreadConstraint {
    pub fn all_of(pod: &Pod, spec: &PodSpec) -> Vec<SpreadConstraint> {
        let constraints = spec.topology_spread_constraints.iter().flatten();
        constraints
            .map(|constraint| SpreadConstraint::of(pod, constraint))
            .collect()
    }

    fn of(pod: &Pod, constraint: &TopologySpreadConstraint) -> SpreadConstraint {
        let labels = pod.metadata.labels.as_ref();
        let mut selector = constraint.label_selector.clone();
        if let Some(selector) = &mut selector {
            let keys = constraint.match_label_keys.iter().flatten();
            for key in keys {
                if let Some(value) = labels.and_then(|labels| labels.get(key)) {
                    let expressions = selector.match_expressions.get_or_insert_default();
                    expressions.push(LabelSelectorRequirement {
                        key: key.clone(),
                        operator: "In".to_owned(),
                        values: Some(vec![value.clone()]),
                    });
                }
            }
        }
        SpreadConstraint {
            topology_key: constraint.topology_key.clone(),
            max_skew: i64::from(constraint.max_skew),
            min_domains: constraint
                .min_domains
                .and_then(|least| usize::try_from(least).ok())
                .unwrap_or(1),
            is_hard: is_hard(constraint),
            selector: Arc::new(label_selector::parse(selector.as_ref())),
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    /// The constraints for pods of a service or workload that have none themselves.
    pub fn of_system() -> Vec<TopologySpreadConstraint> {
        let wish = |topology_key: &str, max_skew| TopologySpreadConstraint {
            topology_key: topology_key.to_owned(),
            max_skew,
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            ..TopologySpreadConstraint::default()
        };
        vec![wish(HOSTNAME, 3), wish("topology.kubernetes.io/zone", 5)]
    }

    /// Wishes for pods that say nothing themselves but belong to those that `selector` selects.
    pub fn defaults<'a>(
        wishes: impl Iterator<Item = &'a TopologySpreadConstraint>,
        selector: LabelSelector,
    ) -> Vec<SpreadConstraint> {
        let selector = Arc::new(selector);
        let each = wishes.map(|wish| SpreadConstraint {
            selector: selector.clone(),
            ..SpreadConstraint::of(&Pod::default(), wish)
        });
        each.collect()
    }

    pub fn selects(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        self.selector
            .matches(|name| labels?.get(name).map(String::as_str))
    }
}

/// Whether pods would rather wait than break the constraint.
pub fn is_hard(constraint: &TopologySpreadConstraint) -> bool {
    constraint.when_unsatisfiable == "DoNotSchedule"
}

pub const HOSTNAME: &str = "kubernetes.io/hostname";
