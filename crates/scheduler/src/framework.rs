//! The extension points of a decision, and the profile that lines plugins up behind them.
//!
//! Plugins are pure over the pod and the snapshot; only [`PreBind`] and [`Bind`] do I/O, beside the
//! loop. A cycle: PreFilter, Filter per node, Score over the nodes that passed, Reserve, PreBind, Bind.

use std::{collections::BTreeSet, future::Future, pin::Pin, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSINode, StorageClass},
};

use crate::{
    NodeInfo, PodInfo, Snapshot, WorkloadSelectors,
    plugins::{
        assume::Assume, image_locality::ImageLocality, inter_pod_affinity::InterPodAffinity,
        node_affinity::NodeAffinity, node_name::NodeName, node_ports::NodePorts,
        node_resources_balanced_allocation::NodeResourcesBalancedAllocation,
        node_resources_fit::NodeResourcesFit, node_unschedulable::NodeUnschedulable,
        node_volume_limits::NodeVolumeLimits, pod_topology_spread::PodTopologySpread,
        taint_toleration::TaintToleration, volume_binding::VolumeBinding,
        volume_restrictions::VolumeRestrictions, volume_zone::VolumeZone,
    },
};

/// The highest score of a plugin for a node.
pub const MAX_SCORE: i64 = 100;

/// Something that happened in the cluster and may let a waiting pod fit.
pub enum ClusterEvent<'a> {
    NodeAdded(&'a NodeInfo),
    NodeChanged {
        old: &'a Node,
        new: &'a NodeInfo,
    },
    NodeRemoved(&'a Node),
    /// A pod has been seen on its node.
    PodAdded(&'a PodInfo),
    /// The labels of a pod on its node have changed.
    PodChanged {
        old: &'a PodInfo,
        new: &'a PodInfo,
    },
    /// A pod left its node (deleted, ended, or its binding failed). The node is as it is now.
    PodRemoved {
        pod: &'a PodInfo,
        node: Option<&'a NodeInfo>,
    },
    /// New or changed.
    Claim(&'a PersistentVolumeClaim),
    /// New or changed.
    Volume(&'a PersistentVolume),
    StorageClass {
        old: Option<&'a StorageClass>,
        new: &'a StorageClass,
    },
    CsiNode {
        old: Option<&'a CSINode>,
        new: &'a CSINode,
    },
}

pub trait Plugin: Send + Sync {
    fn name(&self) -> &'static str;

    /// Whether the event may let any pod pass that this plugin turned away. Pods come to nodes all
    /// the time and hardly ever help: plugins that they do help say so.
    fn hears_of(&self, event: &ClusterEvent<'_>) -> bool {
        !matches!(
            event,
            ClusterEvent::PodAdded(_) | ClusterEvent::PodChanged { .. }
        )
    }

    /// Whether a pod that this plugin turned away may pass after the event. Asked so that a
    /// heartbeat of a node does not try every waiting pod again.
    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        let _ = (event, pod);
        true
    }

    /// Writes down all of the pod that the plugin's [`Filter`] and [`NodeScore`] look at. Pods for
    /// which all plugins write the same are of one shape: what is found out about a node for one of
    /// them holds for the others until the node changes. False if that cannot be said.
    fn shape(&self, pod: &PodInfo, key: &mut String) -> bool {
        let _ = (pod, key);
        false
    }
}

/// What is known of the pod before any node is looked at.
pub enum PreFiltered {
    Any,
    /// Only these nodes can pass.
    Only(BTreeSet<String>),
    /// No node can, because of this.
    Reject(String),
    /// Nodes are filtered by what was computed for this pod.
    By(Box<dyn CycleFilter>),
}

pub trait PreFilter: Plugin {
    /// A plugin that has nothing to say about the pod answers [`PreFiltered::Any`] and is not asked
    /// for any node.
    fn pre_filter(&self, pod: &PodInfo, snapshot: &Snapshot) -> PreFiltered;
}

/// Why a pod cannot run on a node.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reasons: Vec<String>,
    /// Whether the node may pass after pods of it have gone, so that making room is worth a try.
    pub resolvable: bool,
}

impl Rejection {
    pub fn resolvable(reason: &str) -> Rejection {
        Rejection {
            reasons: vec![reason.to_owned()],
            resolvable: true,
        }
    }

    pub fn unresolvable(reason: &str) -> Rejection {
        Rejection {
            reasons: vec![reason.to_owned()],
            resolvable: false,
        }
    }
}

/// What a plugin computed about one pod before looking at nodes. When pods come to a node or leave
/// it on trial, it is told so and counts with them.
pub trait CycleFilter: Send + Sync {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> Option<Rejection>;

    fn add_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) {
        let _ = (pod, other, node, snapshot);
    }

    fn remove_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) {
        let _ = (pod, other, node, snapshot);
    }

    fn boxed_clone(&self) -> Box<dyn CycleFilter>;
}

/// A filter that needs no more than the pod and the node.
pub trait Filter: Plugin {
    /// Whether a node that was turned down may pass after pods of it have gone.
    fn resolvable(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        let _ = (pod, node);
        false
    }

    /// The reasons why the pod cannot run there; none if it can.
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<String>;
}

pub trait Score: Plugin {
    /// Whether the plugin has nothing to say about this pod, wherever it goes.
    fn is_silent(&self, pod: &PodInfo, snapshot: &Snapshot) -> bool {
        let _ = (pod, snapshot);
        false
    }

    /// A score in 0..=[`MAX_SCORE`] for each of the nodes; none if the plugin has nothing to say
    /// about this pod.
    fn scores(&self, pod: &PodInfo, nodes: &[&NodeInfo], snapshot: &Snapshot) -> Option<Vec<i64>>;

    /// The plugin, if it looks at one node at a time.
    fn by_node(&self) -> Option<&dyn NodeScore> {
        None
    }
}

/// How the scores of a plugin are brought into 0..=[`MAX_SCORE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// They are so already.
    Kept,
    /// The highest becomes [`MAX_SCORE`].
    ToHighest,
    /// The highest becomes zero.
    Reversed,
}

impl Scaling {
    pub fn apply(self, score: i64, highest: i64) -> i64 {
        let scaled = match highest {
            0 => 0,
            _ => MAX_SCORE * score / highest,
        };
        match self {
            Scaling::Kept => score,
            Scaling::ToHighest => scaled,
            Scaling::Reversed => MAX_SCORE - scaled,
        }
    }
}

/// A score that looks at one node at a time, and beyond it only at what does not change with pods.
pub trait NodeScore: Plugin {
    /// Whether the plugin has anything to say about this pod.
    fn pre_score(&self, pod: &PodInfo) -> bool {
        let _ = pod;
        true
    }

    /// Higher is better, unless `scaling` turns it round.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> i64;

    fn scaling(&self) -> Scaling {
        Scaling::Kept
    }
}

impl<P: NodeScore> Score for P {
    fn is_silent(&self, pod: &PodInfo, _: &Snapshot) -> bool {
        !self.pre_score(pod)
    }

    fn scores(&self, pod: &PodInfo, nodes: &[&NodeInfo], snapshot: &Snapshot) -> Option<Vec<i64>> {
        if !self.pre_score(pod) {
            return None;
        }
        let each = nodes.iter().map(|node| self.score(pod, node, snapshot));
        let mut scores: Vec<i64> = each.collect();
        let highest = scores.iter().copied().max().unwrap_or(0);
        for score in &mut scores {
            *score = self.scaling().apply(*score, highest);
        }
        Some(scores)
    }

    fn by_node(&self) -> Option<&dyn NodeScore> {
        Some(self)
    }
}

pub trait Reserve: Plugin {
    fn reserve(&self, pod: &Arc<PodInfo>, node: &str, snapshot: &mut Snapshot);
    /// Undoes `reserve`, also if it was undone or overtaken already.
    fn unreserve(&self, pod: &PodInfo, snapshot: &mut Snapshot);
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("the binding could not be encoded")]
    Encode(#[source] serde_json::Error),
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Not even the preparations went well.
    #[error(transparent)]
    Unprepared(PreBindError),
}

/// What a plugin could not do before the binding.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PreBindError {
    pub plugin: &'static str,
    pub message: String,
}

/// Work that ends before the binding is written.
pub type Preparation = Pin<Box<dyn Future<Output = Result<(), PreBindError>> + Send>>;

pub trait PreBind: Plugin {
    /// What must be done before the binding is written; none if nothing. Asked in the loop after
    /// Reserve; the work itself runs beside it and may take minutes.
    fn pre_bind(&self, pod: &Arc<PodInfo>, node: &str, snapshot: &Snapshot) -> Option<Preparation>;
}

#[async_trait::async_trait]
pub trait Bind: Plugin {
    /// Writes the binding; gives the bytes sent.
    async fn bind(&self, pod: &PodInfo, node: &str) -> Result<u64, BindError>;
}

/// The plugins of a scheduler, in the order in which they are asked.
pub struct Framework {
    pub pre_filters: Vec<Box<dyn PreFilter>>,
    pub filters: Vec<Box<dyn Filter>>,
    /// With their weights.
    pub scores: Vec<(i64, Box<dyn Score>)>,
    pub reserves: Vec<Box<dyn Reserve>>,
    pub pre_binds: Vec<Box<dyn PreBind>>,
    pub binder: Arc<dyn Bind>,
}

impl Framework {
    /// Upstream's default plugins (those we have), order and weights.
    /// Pods that say nothing about spreading are spread by `workloads`, if given.
    pub fn with_defaults(
        binder: Arc<dyn Bind>,
        workloads: Option<Arc<dyn WorkloadSelectors>>,
    ) -> Framework {
        let spread = PodTopologySpread {
            workloads: workloads.clone(),
        };
        Framework {
            pre_filters: vec![
                Box::new(NodeAffinity),
                Box::new(VolumeRestrictions),
                Box::new(NodeVolumeLimits),
                Box::new(VolumeBinding),
                Box::new(VolumeZone),
                Box::new(spread),
                Box::new(InterPodAffinity),
            ],
            filters: vec![
                Box::new(NodeUnschedulable),
                Box::new(NodeName),
                Box::new(TaintToleration),
                Box::new(NodeAffinity),
                Box::new(NodePorts),
                Box::new(NodeResourcesFit),
            ],
            scores: vec![
                (3, Box::new(TaintToleration)),
                (2, Box::new(NodeAffinity)),
                (1, Box::new(NodeResourcesFit)),
                (2, Box::new(PodTopologySpread { workloads })),
                (2, Box::new(InterPodAffinity)),
                (1, Box::new(NodeResourcesBalancedAllocation)),
                (1, Box::new(ImageLocality)),
            ],
            reserves: vec![Box::new(Assume), Box::new(VolumeBinding)],
            pre_binds: Vec::new(),
            binder,
        }
    }

    pub fn reserve(&self, pod: &Arc<PodInfo>, node: &str, snapshot: &mut Snapshot) {
        for plugin in &self.reserves {
            plugin.reserve(pod, node, snapshot);
        }
    }

    pub fn unreserve(&self, pod: &PodInfo, snapshot: &mut Snapshot) {
        for plugin in self.reserves.iter().rev() {
            plugin.unreserve(pod, snapshot);
        }
    }

    pub fn pre_bind(
        &self,
        pod: &Arc<PodInfo>,
        node: &str,
        snapshot: &Snapshot,
    ) -> Vec<Preparation> {
        let plugins = self.pre_binds.iter();
        plugins
            .filter_map(|plugin| plugin.pre_bind(pod, node, snapshot))
            .collect()
    }

    /// The plugins that the event may help against.
    pub fn listeners(&self, event: &ClusterEvent<'_>) -> BTreeSet<&'static str> {
        let hears = |plugin: &dyn Plugin| plugin.hears_of(event).then(|| plugin.name());
        let filters = self
            .filters
            .iter()
            .filter_map(|plugin| hears(plugin.as_ref()));
        let pre_filters = self.pre_filters.iter();
        let pre_filters = pre_filters.filter_map(|plugin| hears(plugin.as_ref()));
        filters.chain(pre_filters).collect()
    }

    /// Whether one of the plugins that turned the pod away expects the event to help; any event
    /// may when it is not known who did.
    pub fn may_help(
        &self,
        event: &ClusterEvent<'_>,
        pod: &PodInfo,
        rejected_by: &BTreeSet<&'static str>,
    ) -> bool {
        rejected_by.is_empty()
            || self
                .filters
                .iter()
                .any(|plugin| rejected_by.contains(plugin.name()) && plugin.may_help(event, pod))
            || self
                .pre_filters
                .iter()
                .any(|plugin| rejected_by.contains(plugin.name()) && plugin.may_help(event, pod))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_fills_the_range() {
        let check = |scaling: Scaling, scores: &[i64], expected: &[i64]| {
            let highest = scores.iter().copied().max().unwrap_or(0);
            let scaled: Vec<i64> = scores.iter().map(|s| scaling.apply(*s, highest)).collect();
            assert_eq!(scaled, expected);
        };
        check(Scaling::ToHighest, &[0, 1, 2, 4], &[0, 25, 50, 100]);
        check(Scaling::Reversed, &[0, 1, 2, 4], &[100, 75, 50, 0]);
        check(Scaling::ToHighest, &[0, 0], &[0, 0]);
        check(Scaling::Reversed, &[0, 0], &[100, 100]);
        check(Scaling::Kept, &[7, 200], &[7, 200]);
    }
}
