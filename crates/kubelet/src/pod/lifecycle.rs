//! The stages of a pod's life on this node.

/// The stages of a pod's life on this node, in order. A pod only moves forward, and may skip stages.
/// The pod's worker and the list of the node's pods use the same stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifecycle {
    /// The pod is to run: its worker starts and restarts its containers. This is also the stage of a
    /// pod that has run to its end by itself (Succeeded or Failed).
    ///
    /// Leads to `Ending` when the node decides that the pod must end, to `Terminating` when its
    /// deletion is requested, to `Deleted` when the API no longer has it.
    Running,
    /// The node has decided that the pod ends: it was rejected, evicted, preempted, exceeded its
    /// deadline, or the node shuts down. Its containers and sandboxes are stopped and its volumes
    /// unmounted; the object stays in the API with phase Failed.
    ///
    /// Leads to `Terminating` or `Deleted` when the object is deleted.
    Ending,
    /// The API has the pod with a deletion timestamp. Its containers are stopped within the grace
    /// period, everything of it is removed from the node, the last status is written and the object
    /// deleted.
    ///
    /// Leads to `Deleted` when the object disappears before that, else to `Finished`.
    Terminating,
    /// The API no longer has the pod. Its containers are stopped and everything of it is removed
    /// from the node; no status is written any more.
    ///
    /// Leads to `Finished`.
    Deleted,
    /// Nothing of the pod is left on the node and its worker has ended. The object may still be in
    /// the API because of a finalizer: the pod is remembered until the watch reports its deletion, so
    /// that a late event does not start it again.
    Finished,
}

impl Lifecycle {
    /// Moves on to `stage`, unless the pod is further already.
    pub fn advance(&mut self, stage: Lifecycle) {
        *self = (*self).max(stage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_only_moves_forward() {
        let mut lifecycle = Lifecycle::Running;
        lifecycle.advance(Lifecycle::Terminating);
        lifecycle.advance(Lifecycle::Ending);
        assert_eq!(lifecycle, Lifecycle::Terminating, "evicted too late");
        lifecycle.advance(Lifecycle::Finished);
        lifecycle.advance(Lifecycle::Deleted);
        assert_eq!(lifecycle, Lifecycle::Finished);
    }
}
