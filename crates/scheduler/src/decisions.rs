//! The latest decisions with the result for each node, for `coracle why` and traces. Bounded.

use std::{collections::VecDeque, sync::Arc};

use client::ObjectKey;
use parking_lot::Mutex;

use crate::decision::{Decision, NodeFit, NodeResult, SchedulingResult};

const KEPT: usize = 256;
/// Of large clusters only the first nodes are kept.
const NODES_KEPT: usize = 100;

#[derive(Clone, Debug)]
pub struct DecisionRecord {
    pub pod: ObjectKey,
    pub uid: String,
    pub at_micros: i64,
    /// The number of the attempt, from 1 on.
    pub attempt: u32,
    pub outcome: SchedulingResult,
    /// How many nodes were feasible, as far as that was found out.
    pub feasible: usize,
    /// The best of the feasible nodes; if there was none, why each was rejected.
    pub nodes: Vec<NodeResult>,
}

/// A handle on the ring; cheap to clone.
#[derive(Clone, Default)]
pub struct Decisions {
    ring: Arc<Mutex<VecDeque<Arc<DecisionRecord>>>>,
}

impl Decisions {
    /// The newest decision about the pod of that name.
    pub fn latest(&self, namespace: &str, name: &str) -> Option<Arc<DecisionRecord>> {
        let ring = self.ring.lock();
        ring.iter()
            .rev()
            .find(|record| record.pod.namespace == namespace && record.pod.name == name)
            .cloned()
    }

    /// All that are kept, oldest first.
    pub fn all(&self) -> Vec<Arc<DecisionRecord>> {
        self.ring.lock().iter().cloned().collect()
    }

    pub(crate) fn push(
        &self,
        pod: ObjectKey,
        uid: String,
        at_micros: i64,
        attempt: u32,
        decision: Decision,
    ) -> Arc<DecisionRecord> {
        let mut nodes = decision.nodes;
        let is_feasible = |result: &NodeResult| matches!(result.fit, NodeFit::Feasible { .. });
        nodes.sort_by_key(|result| !is_feasible(result));
        nodes.truncate(NODES_KEPT);
        let record = Arc::new(DecisionRecord {
            pod,
            uid,
            at_micros,
            attempt,
            outcome: decision.outcome,
            feasible: decision.feasible,
            nodes,
        });
        let mut ring = self.ring.lock();
        if ring.len() == KEPT {
            ring.pop_front();
        }
        ring.push_back(record.clone());
        record
    }
}

impl trace::Explain for DecisionRecord {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![match &self.outcome {
            SchedulingResult::Placed { node } => format!(
                "scheduled to {node} at attempt {}; of {} nodes that would do:",
                self.attempt, self.feasible
            ),
            SchedulingResult::Unschedulable { message } => {
                format!("not scheduled at attempt {}: {message}", self.attempt)
            }
        }];
        lines.extend(self.nodes.iter().map(|NodeResult { node, fit }| match fit {
            NodeFit::Feasible { total, parts } => {
                let parts = parts.iter();
                let parts = parts.map(|(plugin, score)| format!("{plugin} {score}"));
                let parts: Vec<String> = parts.collect();
                format!("  {node:<24} {total:>5}  {}", parts.join(", "))
            }
            NodeFit::Rejected {
                plugin, reasons, ..
            } => format!("  {node:<24}     -  {plugin}: {}", reasons.join(", ")),
        }));
        lines
    }
}

#[cfg(test)]
mod tests {
    use trace::Explain;

    use super::*;

    #[test]
    fn a_decision_is_explained_node_by_node() {
        let nodes = vec![
            NodeResult {
                node: "a".to_owned(),
                fit: NodeFit::Rejected {
                    plugin: "NodeName",
                    reasons: vec!["not this one".to_owned()],
                    resolvable: false,
                },
            },
            NodeResult {
                node: "b".to_owned(),
                fit: NodeFit::Feasible {
                    total: 7,
                    parts: vec![("One", 3), ("Two", 4)],
                },
            },
        ];
        let decision = Decision {
            outcome: SchedulingResult::Placed {
                node: "b".to_owned(),
            },
            nodes,
            rejected_by: Default::default(),
            feasible: 1,
        };
        let key = ObjectKey::new("default", "web");
        let record = Decisions::default().push(key, "uid".to_owned(), 0, 2, decision);
        assert_eq!(
            record.lines(),
            [
                "scheduled to b at attempt 2; of 1 nodes that would do:",
                "  b                            7  One 3, Two 4",
                "  a                            -  NodeName: not this one",
            ]
        );
    }
}
