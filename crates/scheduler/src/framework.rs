//! The extension points of the scheduler. A plugin has a name and something for one or more points.
//!
//! A pod's way: PreEnqueue and QueueSort in the queue; PreFilter, Filter per node, PostFilter if no
//! node is feasible, PreScore, Score; then Reserve, Permit, PreBind, Bind, PostBind. Plugins are
//! pure over the pod and the snapshot; only PreBind and Bind do I/O, outside the loop. The profile
//! decides which plugins run at which point: [`Framework`](crate::Framework).

use std::{collections::BTreeSet, future::Future, pin::Pin, sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSINode, StorageClass},
};

use crate::{NodeInfo, PodInfo, Snapshot, decision::NodeResult, disruption_budget::Budget};

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
    /// A pod takes less of its node than it did. The node is as it is now.
    PodShrank {
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
    /// A storage driver says something new about the room it has.
    StorageRoom,
}

pub trait Plugin: Send + Sync {
    fn name(&self) -> &'static str;

    /// The extension points that the plugin implements.
    fn points(self: Arc<Self>) -> Points;

    /// Whether the event may let any pod pass that this plugin rejected. Pods come to nodes all the
    /// time and hardly ever help: plugins whose pods they do help say so.
    fn is_interested_in(&self, event: &ClusterEvent<'_>) -> bool {
        !matches!(
            event,
            ClusterEvent::PodAdded(_) | ClusterEvent::PodChanged { .. }
        )
    }

    /// Whether a pod that this plugin rejected may pass after the event. Asked so that a
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

/// The implementations of a plugin for the extension points.
#[derive(Clone, Default)]
pub struct Points {
    pub pre_enqueue: Option<Arc<dyn PreEnqueue>>,
    pub queue_sort: Option<Arc<dyn QueueSort>>,
    pub pre_filter: Option<Arc<dyn PreFilter>>,
    pub filter: Option<Arc<dyn Filter>>,
    pub post_filter: Option<Arc<dyn PostFilter>>,
    pub pre_score: Option<Arc<dyn PreScore>>,
    pub score: Option<Arc<dyn Score>>,
    pub reserve: Option<Arc<dyn Reserve>>,
    pub permit: Option<Arc<dyn Permit>>,
    pub pre_bind: Option<Arc<dyn PreBind>>,
    pub bind: Option<Arc<dyn Bind>>,
    pub post_bind: Option<Arc<dyn PostBind>>,
}

pub trait PreEnqueue: Plugin {
    /// Whether the pod may be tried at all; asked again whenever the pod changes.
    fn may_enter(&self, pod: &PodInfo) -> bool;
}

pub trait QueueSort: Plugin {
    /// Pods of a higher rank are tried first; among equals, who waited longest.
    fn rank(&self, pod: &PodInfo) -> i64;
}

/// The result of a PreFilter plugin for a pod.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reasons: Vec<String>,
    /// Whether the node may pass after pods of it have been preempted.
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

/// A filter with what a plugin computed about one pod before looking at nodes. When pods come to a
/// node or leave it on trial, the filter is informed and counts with them.
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
    /// Whether a node that was rejected may pass after pods of it have been preempted.
    fn resolvable(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        let _ = (pod, node);
        false
    }

    /// The reasons why the pod cannot run there; none if it can.
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<String>;
}

/// The filters of a profile, asked about nodes as they would be with other pods on them.
pub trait Trials {
    fn pod(&self) -> &PodInfo;

    fn snapshot(&self) -> &Snapshot;

    /// The node, to add pods to it and remove pods from it on trial.
    fn try_out(&self, node: &NodeInfo) -> Box<dyn NodeTrial + '_>;
}

/// A node as it would be with other pods on it.
pub trait NodeTrial {
    fn add_pod(&mut self, other: Arc<PodInfo>);

    fn remove_pod(&mut self, other: &PodInfo);

    /// Why the pod of the trial cannot run on the node as it is now.
    fn reject(&self) -> Option<Rejection>;
}

/// A pod that no node can run.
pub struct UnschedulablePod<'a> {
    pub trials: &'a dyn Trials,
    pub budgets: &'a [Budget],
    /// The result for each node.
    pub results: &'a [NodeResult],
    /// A random number.
    pub random: u64,
}

impl UnschedulablePod<'_> {
    pub fn pod(&self) -> &PodInfo {
        self.trials.pod()
    }

    pub fn snapshot(&self) -> &Snapshot {
        self.trials.snapshot()
    }

    /// The node, to add pods to it and remove pods from it on trial.
    pub fn try_out(&self, node: &NodeInfo) -> Box<dyn NodeTrial + '_> {
        self.trials.try_out(node)
    }
}

/// The pods to preempt on a node, for which the waiting pod is then nominated.
pub struct Preemption {
    pub node: String,
    /// They are deleted; the pod is tried again when they are gone.
    pub victims: Vec<Arc<PodInfo>>,
}

/// Why preemption does not help, in the words of the FailedScheduling event.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPreemption {
    #[error("preemption: not eligible due to {0}.")]
    NotEligible(&'static str),
    #[error("preemption: 0/{nodes} nodes are available: {reasons}.")]
    NoCandidate { nodes: usize, reasons: String },
    /// The reason of a plugin that is not upstream's.
    #[error("{0}")]
    Other(String),
}

pub trait PostFilter: Plugin {
    /// Finds pods to preempt, or says why that does not help.
    fn post_filter(&self, unschedulable: &UnschedulablePod<'_>)
    -> Result<Preemption, NoPreemption>;
}

pub trait PreScore: Plugin {
    /// Whether the plugin's score has anything to say about this pod, wherever it goes.
    fn pre_score(&self, pod: &PodInfo, snapshot: &Snapshot) -> bool;
}

pub trait Score: Plugin {
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
    /// Higher is better, unless `scaling` turns it round.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> i64;

    fn scaling(&self) -> Scaling {
        Scaling::Kept
    }

    /// Stands for all that the scores of this pod depend on besides the node: when it differs, the
    /// scores of all nodes are found anew.
    fn depends_on(&self, _pod: &PodInfo, _snapshot: &Snapshot) -> u64 {
        0
    }
}

impl<P: NodeScore> Score for P {
    fn scores(&self, pod: &PodInfo, nodes: &[&NodeInfo], snapshot: &Snapshot) -> Option<Vec<i64>> {
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

/// A plugin's answer for a pod that is about to be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    Allow,
    /// The pod is tried again when something has changed.
    Reject(String),
    /// The binding waits until the plugin approves or rejects it through
    /// [`WaitingPods`](crate::WaitingPods), and is rejected after this long.
    Wait(Duration),
}

pub trait Permit: Plugin {
    fn permit(&self, pod: &Arc<PodInfo>, node: &str) -> Permission;
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("the binding could not be encoded")]
    Encode(#[source] serde_json::Error),
    /// Its message is the server's own. `kube::Error` is no source here: it would print the whole
    /// `Status` once more.
    #[error("{}", client::retry::sentence(.0))]
    Api(kube::Error),
    /// A plugin failed before the binding was written.
    #[error(transparent)]
    Unprepared(PreBindError),
    /// A plugin that had delayed the binding did not permit it.
    #[error("{message}")]
    NotPermitted {
        plugin: &'static str,
        message: String,
    },
}

impl From<kube::Error> for BindError {
    fn from(error: kube::Error) -> BindError {
        BindError::Api(error)
    }
}

/// A plugin failed before the binding was written.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PreBindError {
    pub plugin: &'static str,
    pub message: String,
}

/// Work that ends before the binding is written.
pub type Preparation = Pin<Box<dyn Future<Output = Result<(), PreBindError>> + Send>>;

pub trait PreBind: Plugin {
    /// The work to do before the binding is written, if there is any. Asked in the loop after
    /// Reserve; the work itself runs outside it and may take minutes.
    fn pre_bind(&self, pod: &Arc<PodInfo>, node: &str, snapshot: &Snapshot) -> Option<Preparation>;
}

#[async_trait::async_trait]
pub trait Bind: Plugin {
    /// Whether this plugin binds the pod; otherwise the next is asked.
    fn binds(&self, pod: &PodInfo) -> bool {
        let _ = pod;
        true
    }

    /// Writes the binding; gives the bytes sent.
    async fn bind(&self, pod: &PodInfo, node: &str) -> Result<u64, BindError>;
}

pub trait PostBind: Plugin {
    /// The pod is bound.
    fn post_bind(&self, pod: &PodInfo, node: &str);
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
