//! Why this node ends a pod that its owner did not delete.

/// The node's decision that a pod ends: rejected, evicted, preempted, over its deadline, or because
/// the node shuts down. The pod's phase becomes Failed with this reason and message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Termination {
    pub reason: String,
    pub message: String,
    /// The pod was never admitted: nothing of it was created.
    pub rejected: bool,
    /// The node is the cause, not the pod: the DisruptionTarget condition is set.
    pub disruption: bool,
    /// The grace period of its containers in seconds, where it is shorter than the pod's own.
    pub grace: Option<i64>,
}
