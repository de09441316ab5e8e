//! One scheduling cycle: what is computed once per pod before nodes are looked at, and whether the
//! filters reject a node, as it is or on trial with pods added or removed. Pure.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Framework, NodeInfo, PodInfo, Snapshot,
    framework::{CycleFilter, NodeTrial, PreFiltered, Rejection, Trials},
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

/// The plugin that rejected a node, and why.
pub(crate) type RejectedBy = (&'static str, Rejection);

impl<'a> Cycle<'a> {
    /// Otherwise the plugin for which no node can pass, and its reason.
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

    /// Whether a node may be rejected for what happens on others, or because of nominated pods.
    pub(crate) fn depends_on_more_than_the_node(&self) -> bool {
        !self.stateful.is_empty() || self.snapshot.has_nominations()
    }

    pub(crate) fn considers(&self, node: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(node))
    }

    /// The first plugin that rejects the node. Pods of no lower priority that are nominated for the
    /// node count as if they ran there; but should they go elsewhere, the pod must fit as well.
    pub(crate) fn reject(&self, node: &NodeInfo) -> Option<RejectedBy> {
        self.reject_with(node, &self.stateful)
    }

    fn reject_with(&self, node: &NodeInfo, stateful: &[Stateful]) -> Option<RejectedBy> {
        let mut nominated = self
            .snapshot
            .nominated_before(&node.name, self.pod)
            .peekable();
        if nominated.peek().is_some() {
            let mut crowded = Trial {
                cycle: self,
                node: node.clone(),
                stateful: boxed_clone(stateful),
            };
            for other in nominated {
                crowded.add_pod(other.clone());
            }
            let rejected = self.first_rejection(&crowded.node, &crowded.stateful);
            if rejected.is_some() {
                return rejected;
            }
        }
        self.first_rejection(node, stateful)
    }

    fn first_rejection(&self, node: &NodeInfo, stateful: &[Stateful]) -> Option<RejectedBy> {
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

/// The first plugin that rejects the node, of those that need to know nothing else.
pub(crate) fn first_rejection(
    framework: &Framework,
    pod: &PodInfo,
    node: &NodeInfo,
) -> Option<RejectedBy> {
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

impl Trials for Cycle<'_> {
    fn pod(&self) -> &PodInfo {
        self.pod
    }

    fn snapshot(&self) -> &Snapshot {
        self.snapshot
    }

    fn try_out(&self, node: &NodeInfo) -> Box<dyn NodeTrial + '_> {
        Box::new(Trial {
            cycle: self,
            node: node.clone(),
            stateful: boxed_clone(&self.stateful),
        })
    }
}

/// A node as it would be with other pods on it.
struct Trial<'c, 'a> {
    cycle: &'c Cycle<'a>,
    node: NodeInfo,
    stateful: Vec<Stateful>,
}

impl NodeTrial for Trial<'_, '_> {
    fn add_pod(&mut self, other: Arc<PodInfo>) {
        for (_, filter) in &mut self.stateful {
            filter.add_pod(self.cycle.pod, &other, &self.node, self.cycle.snapshot);
        }
        self.node.add_pod(other);
    }

    fn remove_pod(&mut self, other: &PodInfo) {
        if self.node.remove_pod(&other.uid).is_some() {
            for (_, filter) in &mut self.stateful {
                filter.remove_pod(self.cycle.pod, other, &self.node, self.cycle.snapshot);
            }
        }
    }

    fn reject(&self) -> Option<Rejection> {
        let rejected = self.cycle.reject_with(&self.node, &self.stateful);
        rejected.map(|(_, rejection)| rejection)
    }
}

fn boxed_clone(stateful: &[Stateful]) -> Vec<Stateful> {
    let clones = stateful.iter();
    clones
        .map(|(plugin, filter)| (*plugin, filter.boxed_clone()))
        .collect()
}
