//! Pods of a kind are spread over zones, nodes or other topology domains: hard constraints filter, soft ones
//! score. Pods that say nothing but belong to a service or workload are spread softly.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::{node_affinity::admits, taint_toleration::admits as tolerates_taints};
use crate::{
    NodeInfo, PodInfo, Snapshot,
    configuration::SpreadArguments,
    counts::{Count, Question},
    framework::{
        ClusterEvent, CycleFilter, MAX_SCORE, Plugin, Points, PreFilter, PreFiltered, PreScore,
        Rejection, Score,
    },
    spread_constraints::{HOSTNAME, SpreadConstraint, is_hard},
    workload_selectors::WorkloadSelectors,
};

const SKEWED: &str = "node(s) didn't match pod topology spread constraints";
const NO_LABEL: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";

pub struct PodTopologySpread {
    /// Where pods that say nothing are looked up; without it they are not spread.
    workloads: Option<Arc<dyn WorkloadSelectors>>,
    /// The constraints for pods that have none.
    defaults: Vec<TopologySpreadConstraint>,
    /// Whether the defaults are the system's own: then nodes without a domain count, too.
    by_system: bool,
}

impl Default for PodTopologySpread {
    fn default() -> PodTopologySpread {
        PodTopologySpread::new(None, SpreadArguments::default())
    }
}

impl PodTopologySpread {
    pub fn new(
        workloads: Option<Arc<dyn WorkloadSelectors>>,
        arguments: SpreadArguments,
    ) -> PodTopologySpread {
        let by_system = arguments.defaulting_type == "System";
        PodTopologySpread {
            workloads,
            defaults: match by_system {
                true => SpreadConstraint::of_system(),
                false => arguments.default_constraints,
            },
            by_system,
        }
    }

    /// The pod's hard or soft constraints: its own, or those that hold for pods that say nothing.
    fn constraints(&self, pod: &PodInfo, hard: bool) -> Vec<SpreadConstraint> {
        if !pod.spread.is_empty() {
            let own = pod.spread.iter();
            return own.filter(|own| own.is_hard == hard).cloned().collect();
        }
        if !self.defaults.iter().any(|default| is_hard(default) == hard) {
            return Vec::new();
        }
        let selector = self.workloads.as_ref();
        let selector = selector.and_then(|workloads| workloads.selector_for(&pod.pod));
        selector.map_or(Vec::new(), |selector| {
            let defaults = self.defaults.iter().filter(|d| is_hard(d) == hard);
            SpreadConstraint::defaults(defaults, selector)
        })
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            pre_filter: Some(self.clone()),
            pre_score: Some(self.clone()),
            score: Some(self),
            ..Points::default()
        }
    }

    fn is_interested_in(&self, _: &ClusterEvent<'_>) -> bool {
        true
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        let all = self.constraints(pod, true);
        let hard = || all.iter();
        let counts = |other: &PodInfo| {
            other.key.namespace == pod.key.namespace
                && hard().any(|constraint| constraint.selects(&other.pod))
        };
        let has_keys = |labels: Option<&std::collections::BTreeMap<String, String>>| {
            hard().all(|constraint| {
                labels.is_some_and(|labels| labels.contains_key(&constraint.topology_key))
            })
        };
        match event {
            ClusterEvent::PodAdded(other) | ClusterEvent::PodRemoved { pod: other, .. } => {
                counts(other)
            }
            ClusterEvent::PodChanged { old, new } => {
                old.key.namespace == pod.key.namespace
                    && hard().any(|constraint| {
                        constraint.selects(&old.pod) != constraint.selects(&new.pod)
                    })
            }
            ClusterEvent::NodeAdded(node) => has_keys(node.labels()),
            ClusterEvent::NodeRemoved(node) => has_keys(node.metadata.labels.as_ref()),
            ClusterEvent::NodeChanged { old, new } => {
                let labels = old.metadata.labels.as_ref();
                let (before, after) = (has_keys(labels), has_keys(new.labels()));
                let moved = hard().any(|constraint| {
                    let value = labels.and_then(|labels| labels.get(&constraint.topology_key));
                    value.map(String::as_str) != new.label(&constraint.topology_key)
                });
                let taints = old.spec.as_ref().and_then(|spec| spec.taints.as_deref());
                before != after || (after && (moved || taints.unwrap_or_default() != new.taints()))
            }
            _ => false,
        }
    }
}

impl PreFilter for PodTopologySpread {
    fn pre_filter(&self, pod: &PodInfo, snapshot: &Snapshot) -> PreFiltered {
        let hard = self.constraints(pod, true);
        if hard.is_empty() {
            return PreFiltered::Any;
        }
        let keys = topology_keys(&hard);
        let domains = hard.into_iter().map(|constraint| {
            let key = Some(constraint.topology_key.clone());
            let count = count(&constraint, key, &keys, pod, snapshot);
            Domains::new(constraint, count)
        });
        PreFiltered::By(Box::new(Spread {
            domains: domains.collect(),
            keys: keys.clone(),
        }))
    }
}

fn topology_keys(constraints: &[SpreadConstraint]) -> Vec<String> {
    let keys = constraints.iter().map(|c| c.topology_key.clone());
    keys.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The pods that the constraint is about, by the value of `key` or by node.
fn count(
    constraint: &SpreadConstraint,
    key: Option<String>,
    required_keys: &[String],
    pod: &PodInfo,
    snapshot: &Snapshot,
) -> Arc<Count> {
    let question = Question::Spread {
        namespace: pod.key.namespace.clone(),
        selector: constraint.selector.clone(),
        required_keys: required_keys.to_vec(),
        topology_key: key,
    };
    if !excludes_nodes(constraint, pod) {
        return snapshot.tally(&question);
    }
    let nodes = snapshot
        .nodes()
        .filter(|node| includes(constraint, pod, node));
    Arc::new(question.count(nodes, snapshot.namespaces()))
}

/// Whether the answer depends on more than the question.
fn excludes_nodes(constraint: &SpreadConstraint, pod: &PodInfo) -> bool {
    let chooses = pod.spec().is_some_and(|spec| {
        let selector = spec.node_selector.as_ref();
        let affinity = spec.affinity.as_ref();
        selector.is_some_and(|selector| !selector.is_empty())
            || affinity.is_some_and(|affinity| affinity.node_affinity.is_some())
    });
    constraint.honors_taints || (constraint.honors_affinity && chooses)
}

/// Whether a node's pods count for the constraint.
fn includes(constraint: &SpreadConstraint, pod: &PodInfo, node: &NodeInfo) -> bool {
    let Some(object) = &node.node else {
        return false;
    };
    (!constraint.honors_affinity || admits(pod, object))
        && (!constraint.honors_taints || tolerates_taints(node.taints(), pod))
}

/// How many of the pods a hard constraint is about are in each domain.
#[derive(Clone)]
struct Domains {
    constraint: SpreadConstraint,
    count: Arc<Count>,
    /// The two domains with the fewest.
    fewest: [Option<(String, usize)>; 2],
    /// A trial is about one node, hence about one domain.
    on_trial: Option<(String, isize)>,
}

impl Domains {
    fn new(constraint: SpreadConstraint, count: Arc<Count>) -> Domains {
        let mut fewest: [Option<(&String, usize)>; 2] = [None, None];
        for (value, here) in count.iter() {
            let less_than = |other: Option<(&String, usize)>| other.is_none_or(|o| *here < o.1);
            if less_than(fewest[0]) {
                fewest = [Some((value, *here)), fewest[0]];
            } else if less_than(fewest[1]) {
                fewest[1] = Some((value, *here));
            }
        }
        let fewest = fewest.map(|one| one.map(|(value, here)| (value.clone(), here)));
        Domains {
            constraint,
            count,
            fewest,
            on_trial: None,
        }
    }

    fn in_domain(&self, value: &str) -> usize {
        let counted = self.count.get(value).copied().unwrap_or(0);
        match &self.on_trial {
            Some((domain, trial)) if domain == value => counted.saturating_add_signed(*trial),
            _ => counted,
        }
    }

    fn least(&self) -> usize {
        if self.count.len() < self.constraint.min_domains {
            return 0;
        }
        let on_trial = self.on_trial.as_ref().map(|(domain, _)| domain);
        let mut others = self.fewest.iter().flatten();
        let others = others.find(|(domain, _)| Some(domain) != on_trial);
        let others = others.map(|(_, here)| *here);
        let tried = on_trial.filter(|domain| self.count.contains_key(*domain));
        let tried = tried.map(|domain| self.in_domain(domain));
        others.into_iter().chain(tried).min().unwrap_or(0)
    }
}

#[derive(Clone)]
struct Spread {
    domains: Vec<Domains>,
    keys: Vec<String>,
}

impl Spread {
    fn change(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: isize) {
        let complete = self.keys.iter().all(|key| node.label(key).is_some());
        if other.key.namespace != pod.key.namespace
            || other.pod.metadata.deletion_timestamp.is_some()
            || !complete
        {
            return;
        }
        for domains in &mut self.domains {
            let constraint = &domains.constraint;
            if !constraint.selector.is_everything()
                && constraint.selects(&other.pod)
                && includes(constraint, pod, node)
                && let Some(value) = node.label(&constraint.topology_key)
            {
                let trial = domains
                    .on_trial
                    .get_or_insert_with(|| (value.to_owned(), 0));
                trial.1 += by;
            }
        }
    }
}

impl CycleFilter for Spread {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> Option<Rejection> {
        for domains in &self.domains {
            let constraint = &domains.constraint;
            let Some(value) = node.label(&constraint.topology_key) else {
                return Some(Rejection::unresolvable(NO_LABEL));
            };
            let itself = usize::from(constraint.selects(&pod.pod));
            let here = domains.in_domain(value) + itself;
            let skew = here as i64 - domains.least() as i64;
            if skew > constraint.max_skew {
                return Some(Rejection::resolvable(SKEWED));
            }
        }
        None
    }

    fn add_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, _: &Snapshot) {
        self.change(pod, other, node, 1);
    }

    fn remove_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, _: &Snapshot) {
        self.change(pod, other, node, -1);
    }

    fn boxed_clone(&self) -> Box<dyn CycleFilter> {
        Box::new(self.clone())
    }
}

impl PreScore for PodTopologySpread {
    fn pre_score(&self, pod: &PodInfo, _: &Snapshot) -> bool {
        !self.constraints(pod, false).is_empty()
    }
}

impl Score for PodTopologySpread {
    fn scores(&self, pod: &PodInfo, nodes: &[&NodeInfo], snapshot: &Snapshot) -> Option<Vec<i64>> {
        let says_itself = !pod.spread.is_empty() || !self.by_system;
        let soft = self.constraints(pod, false);
        if soft.is_empty() {
            return None;
        }
        // Who asks for it himself does not want nodes that are in no domain.
        let keys = match says_itself {
            true => topology_keys(&soft),
            false => Vec::new(),
        };
        let counted = |node: &NodeInfo| keys.iter().all(|key| node.label(key).is_some());
        let ignored: Vec<bool> = nodes.iter().map(|node| !counted(node)).collect();
        let considered = || nodes.iter().zip(&ignored).filter(|(_, ignored)| !**ignored);
        let wishes: Vec<Wish<'_>> = soft
            .iter()
            .map(|constraint| {
                let by_node = constraint.topology_key == HOSTNAME;
                let key = (!by_node).then(|| constraint.topology_key.clone());
                let size = match by_node {
                    true => considered().count(),
                    false => {
                        let values =
                            considered().map(|(node, _)| node.label(&constraint.topology_key));
                        values.collect::<BTreeSet<_>>().len()
                    }
                };
                let count = match by_node {
                    // Every node counts its own pods, whether the pod could run there or not.
                    true => snapshot.tally(&Question::Spread {
                        namespace: pod.key.namespace.clone(),
                        selector: constraint.selector.clone(),
                        required_keys: Vec::new(),
                        topology_key: None,
                    }),
                    false => count(constraint, key, &keys, pod, snapshot),
                };
                Wish {
                    key: &constraint.topology_key,
                    by_node,
                    count,
                    weight: ((size + 2) as f64).ln(),
                    tolerance: (constraint.max_skew - 1) as f64,
                }
            })
            .collect();
        let mut scores: Vec<i64> = nodes
            .iter()
            .map(|node| {
                let parts = wishes.iter().filter_map(|wish| wish.crowding(node));
                parts.sum::<f64>().round() as i64
            })
            .collect();
        let valid = || {
            scores
                .iter()
                .zip(&ignored)
                .filter(|(_, ignored)| !**ignored)
        };
        let lowest = valid().map(|(score, _)| *score).min().unwrap_or(0);
        let highest = valid().map(|(score, _)| *score).max().unwrap_or(0);
        for (score, ignored) in scores.iter_mut().zip(&ignored) {
            *score = match (ignored, highest) {
                (true, _) => 0,
                (false, 0) => MAX_SCORE,
                (false, highest) => MAX_SCORE * (highest + lowest - *score) / highest,
            };
        }
        Some(scores)
    }
}

/// A soft constraint with what scoring needs.
struct Wish<'a> {
    key: &'a str,
    by_node: bool,
    count: Arc<Count>,
    /// Domains that are many weigh more, because each has few.
    weight: f64,
    tolerance: f64,
}

impl Wish<'_> {
    /// How full the node's domain is; nothing if it is in none.
    fn crowding(&self, node: &NodeInfo) -> Option<f64> {
        let value = node.label(self.key)?;
        let place = if self.by_node { &node.name } else { value };
        let here = self.count.get(place).copied().unwrap_or(0);
        Some(here as f64 * self.weight + self.tolerance)
    }
}

#[cfg(test)]
mod tests;
