//! What is known of all nodes for pods of one shape, kept up to date node by node: the next pod of
//! that shape costs as much as there were changes since the last, and the logarithm of the nodes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    Framework, NodeInfo, PodInfo, Snapshot,
    cycle::{Cycle, TurnedAway, first_rejection},
    framework::{NodeScore, Scaling},
};

/// Beyond this many shapes the one not seen for the longest is forgotten.
const MOST_SHAPES: usize = 64;
/// So many nodes are told of with the one that was chosen.
const RUNNERS_UP: usize = 9;
/// So many nodes are told of that were turned down.
const TURNED_DOWN: usize = 20;

/// The shapes that pods had lately.
#[derive(Default)]
pub(crate) struct Shapes {
    shapes: BTreeMap<String, Shape>,
    uses: u64,
}

/// A node that would do, and why it is better or worse than others.
pub(crate) struct Candidate {
    pub(crate) node: String,
    pub(crate) total: i64,
    /// What each plugin gave, with its weight.
    pub(crate) parts: Vec<(&'static str, i64)>,
}

pub(crate) struct Ranking {
    /// The best first; at least one, and not many.
    pub(crate) best: Vec<Candidate>,
    /// How many nodes pass the filters that look at one node at a time.
    pub(crate) feasible: usize,
    /// Some of the others, with who turned them down and why.
    pub(crate) turned_down: Vec<(String, TurnedAway)>,
}

impl Shapes {
    /// The best nodes for the pod of the cycle. None if none would do or if its shape does not tell:
    /// then all nodes have to be looked at.
    pub(crate) fn rank(
        &mut self,
        cycle: &Cycle<'_>,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<Ranking> {
        let (framework, pod, snapshot) = (cycle.framework, cycle.pod, cycle.snapshot);
        let scorers = scorers(framework, pod, snapshot)?;
        let key = key(framework, pod)?;
        self.uses += 1;
        if !self.shapes.contains_key(&key) && self.shapes.len() >= MOST_SHAPES {
            let oldest = self.shapes.iter().min_by_key(|(_, shape)| shape.used);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|oldest| self.shapes.remove(&oldest));
        }
        let shape = self.shapes.entry(key).or_default();
        shape.used = self.uses;
        shape.follow(framework, &scorers, pod, snapshot, random);
        shape.best(cycle, &scorers)
    }
}

/// The plugins that score nodes for this pod, with their weights. None if one of them looks at more
/// than one node at a time.
fn scorers<'a>(
    framework: &'a Framework,
    pod: &PodInfo,
    snapshot: &Snapshot,
) -> Option<Vec<(i64, &'a dyn NodeScore)>> {
    framework
        .talking_scores(pod, snapshot)
        .map(|(weight, plugin)| Some((*weight, plugin.by_node()?)))
        .collect()
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
        // Who looks at more than the node has been found silent about this pod.
        all &= plugin.by_node().is_none() || plugin.shape(pod, &mut key);
    }
    all.then_some(key)
}

#[derive(Default)]
struct Shape {
    used: u64,
    /// How many changes of nodes have been followed.
    changes: Option<u64>,
    epoch: u64,
    /// By the node's slot.
    entries: Vec<Option<Entry>>,
    /// Nodes that do not pass, and why.
    rejected: BTreeMap<usize, TurnedAway>,
    /// The best first; among equals by lot.
    order: BTreeSet<(Reverse<i64>, u64, usize)>,
    /// For each scorer that is scaled, how many nodes have which score.
    spreads: Vec<BTreeMap<i64, usize>>,
    /// For each scorer, the score to which the others are scaled.
    highest: Vec<i64>,
}

/// A node that passes all filters.
struct Entry {
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
        let known = self.changes.filter(|_| self.epoch == snapshot.epoch());
        let changed = known.and_then(|changes| table.changed_since(changes));
        let changed: BTreeSet<usize> = match changed {
            Some(changed) => changed.collect(),
            None => {
                self.entries.clear();
                self.order.clear();
                self.rejected.clear();
                self.spreads = vec![BTreeMap::new(); scorers.len()];
                self.highest = vec![0; scorers.len()];
                (0..table.width()).collect()
            }
        };
        self.changes = Some(table.changes());
        self.epoch = snapshot.epoch();
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
        self.entries[slot] = Some(Entry {
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
            // Whether others would do as well is not found out where that takes long.
            if depends || best.len() > RUNNERS_UP {
                break;
            }
        }
        let named = |(slot, (plugin, rejection)): (&usize, &TurnedAway)| {
            let name = table.at(*slot)?.name.clone();
            Some((name, (*plugin, rejection.clone())))
        };
        let turned_down = self.rejected.iter().take(TURNED_DOWN);
        (!best.is_empty()).then(|| Ranking {
            best,
            feasible: self.order.len(),
            turned_down: turned_down.filter_map(named).collect(),
        })
    }
}

fn parts(
    entry: &Entry,
    scorers: &[(i64, &dyn NodeScore)],
    highest: &[i64],
) -> impl Iterator<Item = (&'static str, i64)> {
    let scored = scorers.iter().zip(entry.scores.iter().zip(highest));
    scored.map(|((weight, plugin), (score, highest))| {
        let scaled = plugin.scaling().apply(*score, *highest);
        (plugin.name(), weight * scaled)
    })
}
