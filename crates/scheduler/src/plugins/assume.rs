//! Reserves by putting the pod on its node's account before the binding is written.

use std::sync::Arc;

use crate::{
    PodInfo, Snapshot,
    framework::{Plugin, Points, Reserve},
};

pub struct Assume;

impl Plugin for Assume {
    fn name(&self) -> &'static str {
        "Assume"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            reserve: Some(self),
            ..Points::default()
        }
    }
}

impl Reserve for Assume {
    fn reserve(&self, pod: &Arc<PodInfo>, node: &str, snapshot: &mut Snapshot) {
        snapshot.assume(pod.clone(), node);
    }

    fn unreserve(&self, pod: &PodInfo, snapshot: &mut Snapshot) {
        // A pod seen as bound meanwhile stays: the API knows better than the failed call.
        if snapshot.is_assumed(&pod.uid) {
            snapshot.remove_pod(&pod.uid);
        }
    }
}
