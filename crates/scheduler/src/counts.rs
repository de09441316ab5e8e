//! How many pods of some description are where, kept up to date pod by pod, so that a decision does
//! not walk all pods: what existing pods say about others, and answers to what was asked lately.

use std::{collections::BTreeMap, sync::Arc};

use api::selector::LabelSelector;
use k8s_openapi::api::core::v1::Pod;

use crate::{
    NodeInfo, PodInfo,
    affinity_terms::{Namespaces, Term},
};

/// By topology value, or by node.
pub type Count = BTreeMap<String, usize>;

/// Beyond this many, the answers not asked for the longest are dropped.
const MOST_TALLIES: usize = 256;

/// Which pods, and by what they are counted.
#[derive(Clone)]
pub enum Question {
    /// Pods that all these terms mean, by the value of a label of their nodes.
    Near {
        terms: Vec<Arc<Term>>,
        topology_key: String,
    },
    /// Pods of a namespace that a selector selects and that are not on their way out.
    Spread {
        namespace: String,
        selector: Arc<LabelSelector>,
        /// Nodes without all of these labels do not count.
        required_keys: Vec<String>,
        /// By the value of this label, values without pods included; by node if none.
        topology_key: Option<String>,
    },
}

impl Question {
    fn text(&self) -> String {
        match self {
            Question::Near {
                terms,
                topology_key,
            } => {
                let terms: Vec<&str> = terms.iter().map(|term| term.text.as_str()).collect();
                format!("near\n{topology_key}\n{}", terms.join("\n"))
            }
            Question::Spread {
                namespace,
                selector,
                required_keys,
                topology_key,
            } => format!("spread\n{namespace}\n{selector:?}\n{required_keys:?}\n{topology_key:?}"),
        }
    }

    fn counts(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        match self {
            Question::Near { terms, .. } => terms.iter().all(|term| term.matches(pod, namespaces)),
            Question::Spread {
                namespace,
                selector,
                ..
            } => {
                let labels = pod.metadata.labels.as_ref();
                pod.metadata.namespace.as_deref() == Some(namespace)
                    && pod.metadata.deletion_timestamp.is_none()
                    && !selector.is_everything()
                    && selector.matches(|name| labels?.get(name).map(String::as_str))
            }
        }
    }

    fn place<'a>(&self, node: &'a NodeInfo) -> Option<&'a str> {
        node.node.as_ref()?;
        match self {
            Question::Near { topology_key, .. } => node.label(topology_key),
            Question::Spread {
                required_keys,
                topology_key,
                ..
            } => {
                let complete = required_keys.iter().all(|key| node.label(key).is_some());
                complete
                    .then(|| match topology_key {
                        Some(key) => node.label(key),
                        None => Some(node.name.as_str()),
                    })
                    .flatten()
            }
        }
    }

    fn keeps_zeros(&self) -> bool {
        matches!(self, Question::Spread { .. })
    }

    /// The answer from scratch, of the nodes given.
    pub fn count<'a>(
        &self,
        nodes: impl Iterator<Item = &'a NodeInfo>,
        namespaces: &Namespaces,
    ) -> Count {
        let mut count = Count::new();
        for node in nodes {
            let Some(place) = self.place(node) else {
                continue;
            };
            let pods = node.pods.values();
            let here = pods.filter(|pod| self.counts(&pod.pod, namespaces)).count();
            if here > 0 || self.keeps_zeros() {
                match count.get_mut(place) {
                    Some(count) => *count += here,
                    None => {
                        count.insert(place.to_owned(), here);
                    }
                }
            }
        }
        count
    }
}

/// The effect of a term of an existing pod on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    Repels,
    /// Others are required to be near, and attracted in turn.
    Requires,
    /// Adds so much score; less than nothing if negative.
    Attracts(i64),
}

/// A term that existing pods have, with how many of them are where.
pub struct HeldTerm {
    pub effect: Effect,
    pub term: Arc<Term>,
    pub count: Arc<Count>,
}

struct Tally {
    question: Question,
    count: Arc<Count>,
    /// How many nodes are at each place, where places without pods count too.
    nodes: Count,
    used: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    held: BTreeMap<(Effect, String), HeldTerm>,
    tallies: BTreeMap<String, Tally>,
    uses: u64,
}

impl Counts {
    /// The node has come, or its labels have changed; before that it went with its former ones.
    pub(crate) fn node_comes(&mut self, node: &NodeInfo, namespaces: &Namespaces) {
        for pod in node.pods.values() {
            self.hold(pod, node, 1);
        }
        for tally in self.tallies.values_mut() {
            tally.move_node(node, namespaces, 1);
        }
    }

    pub(crate) fn node_goes(&mut self, node: &NodeInfo, namespaces: &Namespaces) {
        for pod in node.pods.values() {
            self.hold(pod, node, -1);
        }
        for tally in self.tallies.values_mut() {
            tally.move_node(node, namespaces, -1);
        }
    }

    pub(crate) fn namespaces_changed(&mut self) {
        self.tallies.clear();
    }

    pub(crate) fn pod_came(&mut self, pod: &PodInfo, node: &NodeInfo, namespaces: &Namespaces) {
        self.adjust(pod, node, namespaces, 1);
    }

    pub(crate) fn pod_went(&mut self, pod: &PodInfo, node: &NodeInfo, namespaces: &Namespaces) {
        self.adjust(pod, node, namespaces, -1);
    }

    /// Every term that existing pods have.
    pub(crate) fn held(&self) -> impl Iterator<Item = &HeldTerm> {
        self.held.values()
    }

    pub(crate) fn tally<'a>(
        &mut self,
        question: &Question,
        nodes: impl Iterator<Item = &'a NodeInfo> + Clone,
        namespaces: &Namespaces,
    ) -> Arc<Count> {
        self.uses += 1;
        let (text, used) = (question.text(), self.uses);
        if let Some(tally) = self.tallies.get_mut(&text) {
            tally.used = used;
            return tally.count.clone();
        }
        if self.tallies.len() >= MOST_TALLIES {
            let oldest = self.tallies.iter().min_by_key(|(_, tally)| tally.used);
            if let Some(oldest) = oldest.map(|(text, _)| text.clone()) {
                self.tallies.remove(&oldest);
            }
        }
        let mut nodes_at = Count::new();
        if question.keeps_zeros() {
            for place in nodes.clone().filter_map(|node| question.place(node)) {
                *nodes_at.entry(place.to_owned()).or_default() += 1;
            }
        }
        let count = Arc::new(question.count(nodes, namespaces));
        let tally = Tally {
            question: question.clone(),
            count: count.clone(),
            nodes: nodes_at,
            used,
        };
        self.tallies.insert(text, tally);
        count
    }

    fn adjust(&mut self, pod: &PodInfo, node: &NodeInfo, namespaces: &Namespaces, by: isize) {
        self.hold(pod, node, by);
        for tally in self.tallies.values_mut() {
            let question = &tally.question;
            if question.counts(&pod.pod, namespaces)
                && let Some(place) = question.place(node)
            {
                let keeps_zeros = question.keeps_zeros();
                change(Arc::make_mut(&mut tally.count), place, by, keeps_zeros);
            }
        }
    }

    fn hold(&mut self, pod: &PodInfo, node: &NodeInfo, by: isize) {
        let Some(terms) = pod.affinity.as_deref() else {
            return;
        };
        if node.node.is_none() {
            return;
        }
        let repelling = terms
            .required_anti
            .iter()
            .map(|term| (Effect::Repels, term));
        let required = terms.required.iter().map(|term| (Effect::Requires, term));
        let preferred = terms.preferred.iter();
        let preferred = preferred.map(|(weight, term)| (Effect::Attracts(*weight), term));
        for (effect, term) in repelling.chain(required).chain(preferred) {
            let Some(place) = node.label(&term.topology_key) else {
                continue;
            };
            let key = (effect, term.text.clone());
            let held = self.held.entry(key.clone()).or_insert_with(|| HeldTerm {
                effect,
                term: term.clone(),
                count: Arc::default(),
            });
            change(Arc::make_mut(&mut held.count), place, by, false);
            if held.count.is_empty() {
                self.held.remove(&key);
            }
        }
    }
}

impl Tally {
    /// Takes in a node with its pods, or takes it out.
    fn move_node(&mut self, node: &NodeInfo, namespaces: &Namespaces, by: isize) {
        let question = &self.question;
        let Some(place) = question.place(node) else {
            return;
        };
        let pods = node.pods.values();
        let here = pods.filter(|pod| question.counts(&pod.pod, namespaces));
        let here = here.count() as isize * by;
        let count = Arc::make_mut(&mut self.count);
        if !question.keeps_zeros() {
            if here != 0 {
                change(count, place, here, false);
            }
            return;
        }
        change(&mut self.nodes, place, by, false);
        match self.nodes.contains_key(place) {
            true => {
                count.entry(place.to_owned()).or_default();
                change(count, place, here, true);
            }
            false => {
                count.remove(place);
            }
        }
    }
}

fn change(count: &mut Count, place: &str, by: isize, keeps_zeros: bool) {
    let Some(here) = count.get_mut(place) else {
        if by > 0 {
            count.insert(place.to_owned(), by.unsigned_abs());
        }
        return;
    };
    *here = here.saturating_add_signed(by);
    if *here == 0 && !keeps_zeros {
        count.remove(place);
    }
}

#[cfg(test)]
mod tests {
    use environment::Environment;

    use super::*;
    use crate::{
        Snapshot,
        fixtures::{labelled_node, labelled_pod},
    };

    const ANTI: &str = r#"{"containers":[],"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{"matchLabels":{"app":"web"}},"topologyKey":"zone"}]}}}"#;

    fn questions() -> Vec<Question> {
        let selector = Arc::new(LabelSelector::parse("app=web").expect("a selector"));
        let spread = |required: &[&str], key: Option<&str>| Question::Spread {
            namespace: "default".to_owned(),
            selector: selector.clone(),
            required_keys: required.iter().map(|key| key.to_string()).collect(),
            topology_key: key.map(str::to_owned),
        };
        let terms = labelled_pod("asking", r#"{"app":"web"}"#, ANTI);
        let terms = terms
            .affinity
            .as_deref()
            .map(|terms| terms.required_anti.clone());
        vec![
            spread(&["zone"], Some("zone")),
            spread(&["zone", "rack"], Some("zone")),
            spread(&[], None),
            Question::Near {
                terms: terms.unwrap_or_default(),
                topology_key: "zone".to_owned(),
            },
        ]
    }

    /// What is kept is what would be counted from scratch.
    fn compare(snapshot: &Snapshot, seed: u64, step: usize) {
        for question in questions() {
            let nodes = snapshot.table().values();
            let counted = question.count(nodes, snapshot.namespaces());
            assert_eq!(
                *snapshot.tally(&question),
                counted,
                "seed {seed}, step {step}"
            );
        }
        let mut held = 0;
        snapshot.each_held_term(|term| held += term.count.values().sum::<usize>());
        let with_zone = snapshot.nodes().filter(|node| node.label("zone").is_some());
        let pods: usize = with_zone.map(|node| node.pods.len()).sum();
        assert_eq!(
            held, pods,
            "seed {seed}, step {step}: terms of existing pods"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn answers_follow_nodes_and_pods_that_come_go_and_move() {
        for seed in 0..20 {
            let random = Environment::simulated(seed, 0);
            let below = |limit: u64| random.random_u64() % limit;
            let mut snapshot = Snapshot::default();
            compare(&snapshot, seed, 0);
            for step in 1..80 {
                let node = format!("n{}", below(6));
                let pod = format!("p{}", below(12));
                match below(6) {
                    0 => snapshot.remove_node(&node),
                    1 => {
                        snapshot.remove_pod(&format!("uid-{pod}"));
                    }
                    2 | 3 => {
                        let zone = below(3);
                        let labels = match below(3) {
                            0 => "{}".to_owned(),
                            1 => format!(r#"{{"zone":"z{zone}"}}"#),
                            _ => format!(r#"{{"zone":"z{zone}","rack":"r"}}"#),
                        };
                        snapshot.set_node(labelled_node(&node, &labels, "{}", "{}"));
                    }
                    _ => {
                        let app = if below(2) == 0 { "web" } else { "db" };
                        let labels = format!(r#"{{"app":"{app}"}}"#);
                        snapshot.confirm(labelled_pod(&pod, &labels, ANTI), &node);
                    }
                }
                compare(&snapshot, seed, step);
            }
        }
    }
}
