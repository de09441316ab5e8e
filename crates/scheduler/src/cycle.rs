//! What is computed once per pod before nodes are looked at, and the verdict of all filters on a
//! node: as it is, or on trial with pods added or taken away. Pure.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Framework, NodeInfo, PodInfo, Snapshot,
    framework::{CycleFilter, PreFiltered, Rejection},
};

type Stateful = (&'static str, Box<dyn CycleFilter>);

pub(crate) struct Cycle<'a> {
    pub(crate) framework: &'a Framework,
    pub(crate) pod: &'a PodInfo,
    pub(crate) snapshot: &'a Snapshot,
    /// The only nodes that can pass, if some plugin said so.
    pub(crate) names: Option<BTreeSet<String>>,
    pub(crate) narrowed_by: BTreeSet<&'static str>,
    stateful: Vec<Stateful>,
}

/// Who turned a pod away, and why.
pub(crate) type TurnedAway = (&'static str, Rejection);

impl<'a> Cycle<'a> {
    /// The plugin for which no node can pass, and its reason, otherwise.
    pub(crate) fn begin(
        framework: &'a Framework,
        pod: &'a PodInfo,
        snapshot: &'a Snapshot,
    ) -> Result<Cycle<'a>, (&'static str, String)> {
        let mut cycle = Cycle {
            framework,
            pod,
            snapshot,
            names: None,
            narrowed_by: BTreeSet::new(),
            stateful: Vec::new(),
        };
        for plugin in &framework.pre_filters {
            match plugin.pre_filter(pod, snapshot) {
                PreFiltered::Any => {}
                PreFiltered::Reject(reason) => return Err((plugin.name(), reason)),
                PreFiltered::Only(names) => {
                    cycle.narrowed_by.insert(plugin.name());
                    cycle.names = Some(match cycle.names {
                        None => names,
                        Some(others) => others.intersection(&names).cloned().collect(),
                    });
                }
                PreFiltered::By(filter) => cycle.stateful.push((plugin.name(), filter)),
            }
        }
        Ok(cycle)
    }

    /// Whether a node may be out for what happens on others, or for what was promised to others.
    pub(crate) fn depends_on_more_than_the_node(&self) -> bool {
        !self.stateful.is_empty() || self.snapshot.has_promises()
    }

    pub(crate) fn considers(&self, node: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(node))
    }

    /// The first plugin that turns the pod away from the node. Room that was promised to others of
    /// no lower priority is taken; but should they go elsewhere, the pod must fit as well.
    pub(crate) fn reject(&self, node: &NodeInfo) -> Option<TurnedAway> {
        self.reject_with(node, &self.stateful)
    }

    pub(crate) fn try_out(&self, node: &NodeInfo) -> Trial<'_, 'a> {
        Trial {
            cycle: self,
            node: node.clone(),
            stateful: boxed_clone(&self.stateful),
        }
    }

    fn reject_with(&self, node: &NodeInfo, stateful: &[Stateful]) -> Option<TurnedAway> {
        let mut promised = self
            .snapshot
            .promised_to_others(&node.name, self.pod)
            .peekable();
        if promised.peek().is_some() {
            let mut crowded = Trial {
                cycle: self,
                node: node.clone(),
                stateful: boxed_clone(stateful),
            };
            for other in promised {
                crowded.add_pod(other.clone());
            }
            let rejected = self.first_rejection(&crowded.node, &crowded.stateful);
            if rejected.is_some() {
                return rejected;
            }
        }
        self.first_rejection(node, stateful)
    }

    fn first_rejection(&self, node: &NodeInfo, stateful: &[Stateful]) -> Option<TurnedAway> {
        let pod = self.pod;
        let alone = first_rejection(self.framework, pod, node);
        if alone.is_some() {
            return alone;
        }
        stateful.iter().find_map(|(plugin, filter)| {
            let rejection = filter.filter(pod, node, self.snapshot)?;
            Some((*plugin, rejection))
        })
    }
}

/// The first plugin of those that need no more than the node to turn the pod away.
pub(crate) fn first_rejection(
    framework: &Framework,
    pod: &PodInfo,
    node: &NodeInfo,
) -> Option<TurnedAway> {
    framework.filters.iter().find_map(|plugin| {
        let reasons = plugin.filter(pod, node);
        (!reasons.is_empty()).then(|| {
            let resolvable = plugin.resolvable(pod, node);
            let rejection = Rejection {
                reasons,
                resolvable,
            };
            (plugin.name(), rejection)
        })
    })
}

/// A node as it would be with other pods on it.
pub(crate) struct Trial<'c, 'a> {
    cycle: &'c Cycle<'a>,
    node: NodeInfo,
    stateful: Vec<Stateful>,
}

impl Trial<'_, '_> {
    pub(crate) fn add_pod(&mut self, other: Arc<PodInfo>) {
        for (_, filter) in &mut self.stateful {
            filter.add_pod(self.cycle.pod, &other, &self.node, self.cycle.snapshot);
        }
        self.node.add_pod(other);
    }

    pub(crate) fn remove_pod(&mut self, other: &PodInfo) {
        if self.node.remove_pod(&other.uid).is_some() {
            for (_, filter) in &mut self.stateful {
                filter.remove_pod(self.cycle.pod, other, &self.node, self.cycle.snapshot);
            }
        }
    }

    pub(crate) fn reject(&self) -> Option<TurnedAway> {
        self.cycle.reject_with(&self.node, &self.stateful)
    }
}

fn boxed_clone(stateful: &[Stateful]) -> Vec<Stateful> {
    let clones = stateful.iter();
    clones
        .map(|(plugin, filter)| (*plugin, filter.boxed_clone()))
        .collect()
}
