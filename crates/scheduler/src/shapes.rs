//! Filter and score results of all nodes for pods of one shape, kept up to date node by node: the
//! next pod of that shape costs as much as there were changes since the last, and the logarithm of
//! the nodes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    Framework, NodeInfo, PodInfo, Snapshot,
    cycle::{Cycle, RejectedBy, first_rejection},
    framework::{NodeScore, Scaling},
};

/// Beyond this many shapes the one not seen for the longest is forgotten.
const MOST_SHAPES: usize = 64;
/// So many feasible nodes are reported with the one that was chosen.
const RUNNERS_UP: usize = 9;
/// So many rejected nodes are reported.
const MOST_REJECTED: usize = 20;
/// So many nodes are scored where the score of one depends on others. Upstream's share of the nodes
/// comes to no more in clusters of up to ten thousand.
const MOST_SCORED: usize = 500;

/// The shapes that pods had lately.
#[derive(Default)]
pub(crate) struct Shapes {
    shapes: BTreeMap<String, Shape>,
    uses: u64,
    /// The slot of the node from which the next sample is taken, so that every node has its turn.
    next_sampled: usize,
}

/// A feasible node, and why it is better or worse than others.
pub(crate) struct Candidate {
    pub(crate) node: String,
    pub(crate) total: i64,
    /// The score of each plugin, with its weight.
    pub(crate) parts: Vec<(&'static str, i64)>,
}

/// Feasible nodes, to be scored together.
pub(crate) struct Sample<'a> {
    pub(crate) nodes: Vec<&'a NodeInfo>,
    /// How many nodes pass the filters that look at one node at a time.
    pub(crate) feasible: usize,
    /// Some of the others, with the plugin that rejected them and why.
    pub(crate) rejected_nodes: Vec<(String, RejectedBy)>,
}

pub(crate) struct Ranking {
    /// The best first; at least one, and not many.
    pub(crate) best: Vec<Candidate>,
    /// How many nodes pass the filters that look at one node at a time.
    pub(crate) feasible: usize,
    /// Some of the others, with the plugin that rejected them and why.
    pub(crate) rejected_nodes: Vec<(String, RejectedBy)>,
}

impl Shapes {
    /// The best nodes for the pod of the cycle. `None` if none is feasible or if its shape does not
    /// decide: then all nodes have to be looked at.
    pub(crate) fn rank(
        &mut self,
        cycle: &Cycle<'_>,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<Ranking> {
        let (all, scorers) = scorers(cycle.framework, cycle.pod, cycle.snapshot);
        if !all {
            return None;
        }
        self.current(cycle, &scorers, random)?.best(cycle, &scorers)
    }

    /// Some feasible nodes, where their scores have to be found together; others have their turn
    /// with the next pod. `None` if none is feasible, or if there are so few nodes that all of them
    /// can be looked at.
    pub(crate) fn sample<'c>(
        &mut self,
        cycle: &Cycle<'c>,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<Sample<'c>> {
        if cycle.snapshot.node_count() <= MOST_SCORED {
            return None;
        }
        let (_, scorers) = scorers(cycle.framework, cycle.pod, cycle.snapshot);
        let start = self.next_sampled;
        let shape = self.current(cycle, &scorers, random)?;
        let (nodes, next) = shape.from(start, cycle);
        let sample = (!nodes.is_empty()).then(|| Sample {
            nodes,
            feasible: shape.order.len(),
            rejected_nodes: shape.rejected_nodes(cycle.snapshot),
        });
        self.next_sampled = next;
        sample
    }

    /// The results for the shape of the cycle's pod, brought up to date.
    fn current(
        &mut self,
        cycle: &Cycle<'_>,
        scorers: &[(i64, &dyn NodeScore)],
        random: &mut dyn FnMut() -> u64,
    ) -> Option<&mut Shape> {
        let (framework, pod, snapshot) = (cycle.framework, cycle.pod, cycle.snapshot);
        let key = key(framework, pod)?;
        self.uses += 1;
        if !self.shapes.contains_key(&key) && self.shapes.len() >= MOST_SHAPES {
            let oldest = self.shapes.iter().min_by_key(|(_, shape)| shape.used);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|oldest| self.shapes.remove(&oldest));
        }
        let shape = self.shapes.entry(key).or_default();
        shape.used = self.uses;
        shape.follow(framework, scorers, pod, snapshot, random);
        Some(shape)
    }
}

/// The plugins that score one node at a time for this pod, with their weights; and whether these
/// are all that score it.
fn scorers<'a>(
    framework: &'a Framework,
    pod: &PodInfo,
    snapshot: &Snapshot,
) -> (bool, Vec<(i64, &'a dyn NodeScore)>) {
    let mut all = true;
    let mut scorers = Vec::new();
    for (weight, plugin) in framework.talking_scores(pod, snapshot) {
        match plugin.by_node() {
            Some(plugin) => scorers.push((*weight, plugin)),
            None => all = false,
        }
    }
    (all, scorers)
}

fn key(framework: &Framework, pod: &PodInfo) -> Option<String> {
    let mut key = String::with_capacity(256);
    let mut all = true;
    for plugin in &framework.filters {
        key.push('\n');
        all &= plugin.shape(pod, &mut key);
    }
    for (_, plugin) in &framework.scores {
        key.push('\n');
        // Who looks at more than the node is asked for each pod.
        all &= plugin.by_node().is_none() || plugin.shape(pod, &mut key);
    }
    all.then_some(key)
}

#[derive(Default)]
struct Shape {
    used: u64,
    /// How many changes of nodes have been followed.
    changes: Option<u64>,
    /// What the scores depend on besides the nodes.
    depends_on: Vec<u64>,
    /// By the node's slot.
    entries: Vec<Option<RankedNode>>,
    /// The slots of `entries` that are taken.
    passing: BTreeSet<usize>,
    /// Nodes that do not pass, and why.
    rejected: BTreeMap<usize, RejectedBy>,
    /// The best first; among equals by lot.
    order: BTreeSet<(Reverse<i64>, u64, usize)>,
    /// For each scorer that is scaled, how many nodes have which score.
    spreads: Vec<BTreeMap<i64, usize>>,
    /// For each scorer, the score to which the others are scaled.
    highest: Vec<i64>,
}

/// A node that passes all filters.
struct RankedNode {
    total: i64,
    lot: u64,
    /// By scorer, not scaled.
    scores: Vec<i64>,
}

impl Shape {
    /// Takes in what has changed since the last time.
    fn follow(
        &mut self,
        framework: &Framework,
        scorers: &[(i64, &dyn NodeScore)],
        pod: &PodInfo,
        snapshot: &Snapshot,
        random: &mut dyn FnMut() -> u64,
    ) {
        let table = snapshot.table();
        let each = scorers.iter();
        let depends_on: Vec<u64> = each
            .map(|(_, plugin)| plugin.depends_on(pod, snapshot))
            .collect();
        let known = self.changes.filter(|_| self.depends_on == depends_on);
        let changed = known.and_then(|changes| table.changed_since(changes));
        let changed: BTreeSet<usize> = match changed {
            Some(changed) => changed.collect(),
            None => {
                self.entries.clear();
                self.passing.clear();
                self.order.clear();
                self.rejected.clear();
                self.spreads = vec![BTreeMap::new(); scorers.len()];
                self.highest = vec![0; scorers.len()];
                (0..table.width()).collect()
            }
        };
        self.changes = Some(table.changes());
        self.depends_on = depends_on;
        self.entries.resize_with(table.width(), || None);
        for slot in &changed {
            self.forget(*slot);
            let node = table.at(*slot).filter(|node| node.node.is_some());
            let Some(node) = node else {
                continue;
            };
            match first_rejection(framework, pod, node) {
                Some(rejection) => {
                    self.rejected.insert(*slot, rejection);
                }
                None => self.learn(*slot, scorers, pod, node, snapshot, random()),
            }
        }
        let highest = self.spreads.iter().map(|spread| {
            let highest = spread.last_key_value();
            highest.map_or(0, |(score, _)| *score)
        });
        let highest: Vec<i64> = highest.collect();
        if highest == self.highest {
            for slot in changed {
                self.sort_in(slot, scorers);
            }
        } else {
            // All are scaled anew.
            self.highest = highest;
            self.order.clear();
            for slot in 0..self.entries.len() {
                self.sort_in(slot, scorers);
            }
        }
    }

    fn forget(&mut self, slot: usize) {
        self.rejected.remove(&slot);
        let Some(entry) = self.entries[slot].take() else {
            return;
        };
        self.passing.remove(&slot);
        self.order.remove(&(Reverse(entry.total), entry.lot, slot));
        for (spread, score) in self.spreads.iter_mut().zip(entry.scores) {
            if let Some(count) = spread.get_mut(&score) {
                *count -= 1;
                if *count == 0 {
                    spread.remove(&score);
                }
            }
        }
    }

    fn learn(
        &mut self,
        slot: usize,
        scorers: &[(i64, &dyn NodeScore)],
        pod: &PodInfo,
        node: &NodeInfo,
        snapshot: &Snapshot,
        lot: u64,
    ) {
        let each = scorers.iter();
        let scores = each.map(|(_, plugin)| plugin.score(pod, node, snapshot));
        let scores: Vec<i64> = scores.collect();
        for ((_, plugin), (spread, score)) in
            scorers.iter().zip(self.spreads.iter_mut().zip(&scores))
        {
            if plugin.scaling() != Scaling::Kept {
                *spread.entry(*score).or_default() += 1;
            }
        }
        self.passing.insert(slot);
        self.entries[slot] = Some(RankedNode {
            total: 0,
            lot,
            scores,
        });
    }

    fn sort_in(&mut self, slot: usize, scorers: &[(i64, &dyn NodeScore)]) {
        let highest = &self.highest;
        if let Some(entry) = &mut self.entries[slot] {
            let parts = parts(entry, scorers, highest);
            entry.total = parts.map(|(_, score)| score).sum();
            self.order.insert((Reverse(entry.total), entry.lot, slot));
        }
    }

    fn best(&self, cycle: &Cycle<'_>, scorers: &[(i64, &dyn NodeScore)]) -> Option<Ranking> {
        // Where more than the node decides who passes, others may be left to be scaled among.
        let depends = cycle.depends_on_more_than_the_node();
        if depends && self.spreads.iter().any(|spread| spread.len() > 1) {
            return None;
        }
        let table = cycle.snapshot.table();
        let mut best = Vec::new();
        for (_, _, slot) in &self.order {
            let node = table.at(*slot)?;
            if depends && cycle.reject(node).is_some() {
                continue;
            }
            let entry = self.entries[*slot].as_ref()?;
            best.push(Candidate {
                node: node.name.clone(),
                total: entry.total,
                parts: parts(entry, scorers, &self.highest).collect(),
            });
            // Whether others are feasible too is not found out where that takes long.
            if depends || best.len() > RUNNERS_UP {
                break;
            }
        }
        (!best.is_empty()).then(|| Ranking {
            best,
            feasible: self.order.len(),
            rejected_nodes: self.rejected_nodes(cycle.snapshot),
        })
    }

    /// As many feasible nodes as are scored at most, from the slot `start` on; and the slot
    /// to go on from.
    fn from<'c>(&self, start: usize, cycle: &Cycle<'c>) -> (Vec<&'c NodeInfo>, usize) {
        let table = cycle.snapshot.table();
        let depends = cycle.depends_on_more_than_the_node();
        let mut nodes = Vec::new();
        let slots = self
            .passing
            .range(start..)
            .chain(self.passing.range(..start));
        for slot in slots {
            let Some(node) = table.at(*slot) else {
                continue;
            };
            if depends && cycle.reject(node).is_some() {
                continue;
            }
            nodes.push(node);
            if nodes.len() == MOST_SCORED {
                return (nodes, slot + 1);
            }
        }
        (nodes, start)
    }

    fn rejected_nodes(&self, snapshot: &Snapshot) -> Vec<(String, RejectedBy)> {
        let table = snapshot.table();
        let named = |(slot, (plugin, rejection)): (&usize, &RejectedBy)| {
            let name = table.at(*slot)?.name.clone();
            Some((name, (*plugin, rejection.clone())))
        };
        let rejected_nodes = self.rejected.iter().take(MOST_REJECTED);
        rejected_nodes.filter_map(named).collect()
    }
}

fn parts(
    entry: &RankedNode,
    scorers: &[(i64, &dyn NodeScore)],
    highest: &[i64],
) -> impl Iterator<Item = (&'static str, i64)> {
    let scored = scorers.iter().zip(entry.scores.iter().zip(highest));
    scored.map(|((weight, plugin), (score, highest))| {
        let scaled = plugin.scaling().apply(*score, *highest);
        (plugin.name(), weight * scaled)
    })
}
