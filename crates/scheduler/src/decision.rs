//! The result of one decision: the node of a pod, or why there is none, and what was found out
//! about each node.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

/// Where a pod goes, or why it stays unscheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulingResult {
    Placed {
        node: String,
    },
    /// The message is that of the FailedScheduling event.
    Unschedulable {
        message: String,
    },
}

/// The result of the plugins for one pod and one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResult {
    pub node: String,
    pub fit: NodeFit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeFit {
    Rejected {
        plugin: &'static str,
        reasons: Vec<String>,
        /// Whether the node may pass after pods of it have been preempted.
        resolvable: bool,
    },
    /// With each plugin's weighted part of the total; without parts when there was no other node.
    Feasible {
        total: i64,
        parts: Vec<(&'static str, i64)>,
    },
}

/// One decision about a pod.
pub(crate) struct Decision {
    pub(crate) outcome: SchedulingResult,
    /// All nodes that were rejected, or the best of the feasible ones.
    pub(crate) nodes: Vec<NodeResult>,
    pub(crate) rejected_by: BTreeSet<&'static str>,
    /// How many nodes are feasible, as far as that was found out.
    pub(crate) feasible: usize,
}

/// How many nodes are out for which reason, in upstream's words and order.
pub(crate) fn explain(
    nodes: &[NodeResult],
    count: usize,
    narrowed_by: &BTreeSet<&'static str>,
) -> String {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for result in nodes {
        if let NodeFit::Rejected { reasons: given, .. } = &result.fit {
            for reason in given {
                *reasons.entry(reason).or_default() += 1;
            }
        }
    }
    let plugins: Vec<&str> = narrowed_by.iter().copied().collect();
    let unlisted = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
    if nodes.len() < count && !plugins.is_empty() {
        reasons.insert(&unlisted, count - nodes.len());
    }
    let mut message = format!("0/{count} nodes are available:");
    if !reasons.is_empty() {
        let _ = write!(message, " {}.", reasons_by_count(&reasons));
    }
    message
}

/// `1 Insufficient cpu, 2 node(s) were unschedulable`, in upstream's order.
pub(crate) fn reasons_by_count(reasons: &BTreeMap<&str, usize>) -> String {
    let mut counted: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    counted.sort();
    counted.join(", ")
}
