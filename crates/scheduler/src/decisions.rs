//! The latest decisions with what each node said, for whoever asks why. Bounded.

use std::{collections::VecDeque, sync::Arc};

use client::ObjectKey;
use parking_lot::Mutex;

use crate::decide::{Decision, NodeVerdict, Outcome, Verdict};

const KEPT: usize = 256;
/// Of large clusters the first nodes stand for the others.
const NODES_KEPT: usize = 100;

#[derive(Clone, Debug)]
pub struct DecisionRecord {
    pub pod: ObjectKey,
    pub uid: String,
    pub at_micros: i64,
    /// The how-manieth attempt this was.
    pub attempt: u32,
    pub outcome: Outcome,
    /// How many nodes would have done, as far as that was found out.
    pub feasible: usize,
    /// The best of the nodes that would do; if none would, what each said.
    pub nodes: Vec<NodeVerdict>,
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
    ) {
        let mut nodes = decision.nodes;
        let would_do = |verdict: &NodeVerdict| matches!(verdict.verdict, Verdict::Feasible { .. });
        nodes.sort_by_key(|verdict| !would_do(verdict));
        nodes.truncate(NODES_KEPT);
        let record = DecisionRecord {
            pod,
            uid,
            at_micros,
            attempt,
            outcome: decision.outcome,
            feasible: decision.feasible,
            nodes,
        };
        let mut ring = self.ring.lock();
        if ring.len() == KEPT {
            ring.pop_front();
        }
        ring.push_back(Arc::new(record));
    }
}
