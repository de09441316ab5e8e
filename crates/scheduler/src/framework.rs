//! The extension points of a decision, and the profile that lines plugins up behind them.
//!
//! Plugins are pure over the pod and the snapshot; only [`Bind`] does I/O, and the loop calls it
//! aside. A cycle: PreFilter, Filter per node, Score per node that passed, Reserve, Bind.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::Node;

use crate::{
    NodeInfo, PodInfo, Snapshot,
    plugins::{
        assume::Assume, image_locality::ImageLocality, node_affinity::NodeAffinity,
        node_name::NodeName, node_ports::NodePorts, node_resources_fit::NodeResourcesFit,
        node_unschedulable::NodeUnschedulable, taint_toleration::TaintToleration,
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
    /// A pod left its node (deleted, ended, or its binding failed).
    PodRemoved(&'a PodInfo),
}

pub trait Plugin: Send + Sync {
    fn name(&self) -> &'static str;

    /// Whether a pod that this plugin turned away may pass after the event. Asked so that a
    /// heartbeat of a node does not try every waiting pod again.
    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        let _ = (event, pod);
        true
    }
}

/// What is known of the pod before any node is looked at.
pub enum PreFiltered {
    Any,
    /// Only these nodes can pass.
    Only(BTreeSet<String>),
    /// No node can, because of this.
    Reject(String),
}

pub trait PreFilter: Plugin {
    fn pre_filter(&self, pod: &PodInfo) -> PreFiltered;
}

pub trait Filter: Plugin {
    /// Whether a node may pass after pods of it have gone, so that making room is worth a try.
    fn resolvable(&self) -> bool {
        false
    }

    /// The reasons why the pod cannot run there; none if it can.
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<String>;
}

pub trait Score: Plugin {
    /// Whether the plugin has anything to say about this pod.
    fn pre_score(&self, pod: &PodInfo) -> bool {
        let _ = pod;
        true
    }

    /// Higher is better, unless `normalize` turns it round.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> i64;

    /// Brings the scores of all nodes into 0..=[`MAX_SCORE`].
    fn normalize(&self, scores: &mut [i64]) {
        let _ = scores;
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
    pub binder: Arc<dyn Bind>,
}

impl Framework {
    /// Upstream's default plugins (those we have), order and weights.
    pub fn with_defaults(binder: Arc<dyn Bind>) -> Framework {
        Framework {
            pre_filters: vec![Box::new(NodeAffinity)],
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
                (1, Box::new(ImageLocality)),
            ],
            reserves: vec![Box::new(Assume)],
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

    /// Whether making room may help against the plugin that turned a pod away.
    pub fn resolvable(&self, plugin: &str) -> bool {
        self.filters
            .iter()
            .any(|filter| filter.name() == plugin && filter.resolvable())
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
    }
}

/// Scales scores so that the highest becomes [`MAX_SCORE`]; `reverse` makes the lowest best.
pub fn scale(scores: &mut [i64], reverse: bool) {
    let highest = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let scaled = match highest {
            0 => 0,
            _ => MAX_SCORE * *score / highest,
        };
        *score = if reverse { MAX_SCORE - scaled } else { scaled };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_fills_the_range() {
        let check = |reverse, mut scores: Vec<i64>, expected: &[i64]| {
            scale(&mut scores, reverse);
            assert_eq!(scores, expected);
        };
        check(false, vec![0, 1, 2, 4], &[0, 25, 50, 100]);
        check(true, vec![0, 1, 2, 4], &[100, 75, 50, 0]);
        check(false, vec![0, 0], &[0, 0]);
        check(true, vec![0, 0], &[100, 100]);
        check(true, vec![], &[]);
    }
}
