//! Pods that want to be near others or far from them, and existing pods that want others far away.
//! Required terms filter, preferred terms score.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    NodeInfo, PodInfo, Snapshot,
    affinity_terms::{AffinityTerms, Term},
    configuration::InterPodAffinityArguments,
    counts::{Count, Effect, Question},
    framework::{
        ClusterEvent, CycleFilter, MAX_SCORE, Plugin, Points, PreFilter, PreFiltered, PreScore,
        Rejection, Score,
    },
};

const NOT_NEAR: &str = "node(s) didn't match pod affinity rules";
const TOO_NEAR: &str = "node(s) didn't match pod anti-affinity rules";
const UNWELCOME: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

pub struct InterPodAffinity {
    /// How much a pod that must be near others attracts them in turn.
    hard_weight: i64,
    /// Whether existing pods' wishes count only for pods that have some themselves.
    ignores_others: bool,
}

impl Default for InterPodAffinity {
    fn default() -> InterPodAffinity {
        InterPodAffinity::new(&InterPodAffinityArguments::default())
    }
}

impl InterPodAffinity {
    pub fn new(arguments: &InterPodAffinityArguments) -> InterPodAffinity {
        InterPodAffinity {
            hard_weight: i64::from(arguments.hard_pod_affinity_weight),
            ignores_others: arguments.ignore_preferred_terms_of_existing_pods,
        }
    }

    /// The score that a term of an existing pod gives to pods that it means.
    fn weight(&self, effect: Effect, has_preferences: bool) -> Option<i64> {
        match effect {
            Effect::Repels => None,
            _ if self.ignores_others && !has_preferences => None,
            Effect::Requires => Some(self.hard_weight).filter(|weight| *weight > 0),
            Effect::Attracts(weight) => Some(weight),
        }
    }
}

fn has_preferences(pod: &PodInfo) -> bool {
    let mut terms = pod.affinity.iter();
    terms.any(|terms| !terms.preferred.is_empty())
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
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
        let none = AffinityTerms::default();
        let terms = pod.affinity.as_deref().unwrap_or(&none);
        let wanted = |other: &PodInfo| {
            let required = &terms.required;
            !required.is_empty() && required.iter().all(|term| term.may_match(&other.pod))
        };
        let repelled = |other: &PodInfo| {
            let mut anti = terms.required_anti.iter();
            anti.any(|term| term.may_match(&other.pod))
        };
        let repels = |other: &PodInfo| {
            let others = other.affinity.iter();
            let mut anti = others.flat_map(|terms| &terms.required_anti);
            anti.any(|term| term.may_match(&pod.pod))
        };
        match event {
            ClusterEvent::PodAdded(other) => wanted(other),
            ClusterEvent::PodChanged { old, new } => {
                (wanted(new) && !wanted(old)) || (repelled(old) && !repelled(new))
            }
            ClusterEvent::PodRemoved { pod: other, .. } => repelled(other) || repels(other),
            // A pod that every node repels may fit on a new node.
            ClusterEvent::NodeAdded(node) => {
                let mut required = terms.required.iter();
                required.all(|term| node.label(&term.topology_key).is_some())
            }
            ClusterEvent::NodeChanged { old, new } => {
                let new = new
                    .node
                    .as_ref()
                    .and_then(|new| new.metadata.labels.as_ref());
                old.metadata.labels.as_ref() != new
            }
            _ => false,
        }
    }
}

impl PreFilter for InterPodAffinity {
    fn pre_filter(&self, pod: &PodInfo, snapshot: &Snapshot) -> PreFiltered {
        let mut nearness = Nearness::default();
        snapshot.each_held_term(|held| {
            if held.effect == Effect::Repels && held.term.matches(&pod.pod, snapshot.namespaces()) {
                let key = held.term.topology_key.clone();
                let counts = nearness.repelling.entry(key).or_default();
                counts.push(held.count.clone());
            }
        });
        if let Some(terms) = pod.affinity.as_deref() {
            for term in &terms.required {
                let question = Question::Near {
                    terms: terms.required.clone(),
                    topology_key: term.topology_key.clone(),
                };
                let count = snapshot.tally(&question);
                nearness.required.push((term.clone(), count));
            }
            for term in &terms.required_anti {
                let count = tally_one(term, snapshot);
                nearness.anti.push((term.clone(), count));
            }
        }
        let nothing = nearness.repelling.is_empty()
            && nearness.required.is_empty()
            && nearness.anti.is_empty();
        match nothing {
            true => PreFiltered::Any,
            false => PreFiltered::By(Box::new(nearness)),
        }
    }
}

fn tally_one(term: &Arc<Term>, snapshot: &Snapshot) -> Arc<Count> {
    snapshot.tally(&Question::Near {
        terms: vec![term.clone()],
        topology_key: term.topology_key.clone(),
    })
}

/// How many pods matter to this one, by topology value. The counts are shared; what is different on
/// trial is kept separately.
#[derive(Clone, Default)]
struct Nearness {
    /// By topology key, pods that do not want this one near.
    repelling: BTreeMap<String, Vec<Arc<Count>>>,
    /// Pods that match all required terms.
    required: Vec<(Arc<Term>, Arc<Count>)>,
    anti: Vec<(Arc<Term>, Arc<Count>)>,
    /// By topology key and value.
    repelling_on_trial: BTreeMap<(String, String), isize>,
    /// By the term's position and the value.
    required_on_trial: BTreeMap<(usize, String), isize>,
    anti_on_trial: BTreeMap<(usize, String), isize>,
}

impl Nearness {
    fn is_unwelcome(&self, node: &NodeInfo) -> bool {
        self.repelling.iter().any(|(key, counts)| {
            let Some(value) = node.label(key) else {
                return false;
            };
            let counts = counts.iter().filter_map(|count| count.get(value));
            let counted: usize = counts.sum();
            let trial = match self.repelling_on_trial.is_empty() {
                true => 0,
                false => on_trial(&self.repelling_on_trial, key.clone(), value),
            };
            counted.saturating_add_signed(trial) > 0
        }) || self.repelling_on_trial.iter().any(|((key, value), trial)| {
            // A key that only pods on trial brought.
            *trial > 0 && !self.repelling.contains_key(key) && node.label(key) == Some(value)
        })
    }

    fn is_too_near(&self, node: &NodeInfo) -> bool {
        self.anti.iter().enumerate().any(|(index, (term, count))| {
            node.label(&term.topology_key)
                .is_some_and(|value| total(count, &self.anti_on_trial, index, value) > 0)
        })
    }

    fn is_near(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> bool {
        let mut everywhere = true;
        for (index, (term, count)) in self.required.iter().enumerate() {
            let Some(value) = node.label(&term.topology_key) else {
                return false;
            };
            everywhere &= total(count, &self.required_on_trial, index, value) > 0;
        }
        everywhere || self.is_first(pod, snapshot)
    }

    /// Whether the pod is what it wants to be near, and no such pod is anywhere yet.
    fn is_first(&self, pod: &PodInfo, snapshot: &Snapshot) -> bool {
        let nobody = self.required.iter().enumerate().all(|(index, (_, count))| {
            let trial = self.required_on_trial.iter();
            let extra: isize = trial
                .filter(|((of, _), _)| *of == index)
                .map(|(_, trial)| trial)
                .sum();
            let counted: usize = match extra {
                0 => return count.is_empty(),
                _ => count.values().sum(),
            };
            counted.saturating_add_signed(extra) == 0
        });
        nobody
            && self
                .required
                .iter()
                .all(|(term, _)| term.matches(&pod.pod, snapshot.namespaces()))
    }

    fn change(
        &mut self,
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeInfo,
        snapshot: &Snapshot,
        by: isize,
    ) {
        let namespaces = snapshot.namespaces();
        let others = other.affinity.iter();
        for term in others.flat_map(|terms| &terms.required_anti) {
            if let Some(value) = node.label(&term.topology_key)
                && term.matches(&pod.pod, namespaces)
            {
                let key = (term.topology_key.clone(), value.to_owned());
                *self.repelling_on_trial.entry(key).or_default() += by;
            }
        }
        if self
            .required
            .iter()
            .all(|(term, _)| term.matches(&other.pod, namespaces))
        {
            for (index, (term, _)) in self.required.iter().enumerate() {
                if let Some(value) = node.label(&term.topology_key) {
                    let key = (index, value.to_owned());
                    *self.required_on_trial.entry(key).or_default() += by;
                }
            }
        }
        for (index, (term, _)) in self.anti.iter().enumerate() {
            if let Some(value) = node.label(&term.topology_key)
                && term.matches(&other.pod, namespaces)
            {
                let key = (index, value.to_owned());
                *self.anti_on_trial.entry(key).or_default() += by;
            }
        }
    }
}

fn on_trial<K: Ord>(trial: &BTreeMap<(K, String), isize>, key: K, value: &str) -> isize {
    trial.get(&(key, value.to_owned())).copied().unwrap_or(0)
}

fn total(
    count: &Count,
    trial: &BTreeMap<(usize, String), isize>,
    index: usize,
    value: &str,
) -> usize {
    let counted = count.get(value).copied().unwrap_or(0);
    match trial.is_empty() {
        true => counted,
        false => counted.saturating_add_signed(on_trial(trial, index, value)),
    }
}

impl CycleFilter for Nearness {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> Option<Rejection> {
        if !self.is_near(pod, node, snapshot) {
            Some(Rejection::unresolvable(NOT_NEAR))
        } else if self.is_too_near(node) {
            Some(Rejection::resolvable(TOO_NEAR))
        } else if self.is_unwelcome(node) {
            Some(Rejection::resolvable(UNWELCOME))
        } else {
            None
        }
    }

    fn add_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) {
        self.change(pod, other, node, snapshot, 1);
    }

    fn remove_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) {
        self.change(pod, other, node, snapshot, -1);
    }

    fn boxed_clone(&self) -> Box<dyn CycleFilter> {
        Box::new(self.clone())
    }
}

impl PreScore for InterPodAffinity {
    fn pre_score(&self, pod: &PodInfo, snapshot: &Snapshot) -> bool {
        if has_preferences(pod) {
            return true;
        }
        let mut attracted = false;
        snapshot.each_held_term(|held| {
            attracted |= self.weight(held.effect, false).is_some()
                && held.term.matches(&pod.pod, snapshot.namespaces());
        });
        attracted
    }
}

impl Score for InterPodAffinity {
    fn scores(&self, pod: &PodInfo, nodes: &[&NodeInfo], snapshot: &Snapshot) -> Option<Vec<i64>> {
        let mut parts: Vec<(String, i64, Arc<Count>)> = Vec::new();
        let preferred = pod.affinity.iter().flat_map(|terms| &terms.preferred);
        for (weight, term) in preferred {
            let count = tally_one(term, snapshot);
            parts.push((term.topology_key.clone(), *weight, count));
        }
        snapshot.each_held_term(|held| {
            if let Some(weight) = self.weight(held.effect, has_preferences(pod))
                && held.term.matches(&pod.pod, snapshot.namespaces())
            {
                let key = held.term.topology_key.clone();
                parts.push((key, weight, held.count.clone()));
            }
        });
        parts.retain(|(_, _, count)| !count.is_empty());
        if parts.is_empty() {
            return None;
        }
        let score = |node: &&NodeInfo| -> i64 {
            let parts = parts.iter().filter_map(|(key, weight, count)| {
                let here = count.get(node.label(key)?)?;
                Some(weight * i64::try_from(*here).unwrap_or(i64::MAX))
            });
            parts.sum()
        };
        let mut scores: Vec<i64> = nodes.iter().map(score).collect();
        let lowest = scores.iter().copied().min()?;
        let span = scores.iter().copied().max()? - lowest;
        for score in &mut scores {
            *score = match span {
                0 => 0,
                span => (MAX_SCORE as f64 * ((*score - lowest) as f64 / span as f64)) as i64,
            };
        }
        Some(scores)
    }
}

#[cfg(test)]
mod tests;
