//! A pod with scheduling gates is not tried until they are gone.

use std::sync::Arc;

use crate::{
    PodInfo,
    framework::{ClusterEvent, Plugin, Points, PreEnqueue},
    pod_info::is_gated,
};

pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            pre_enqueue: Some(self),
            ..Points::default()
        }
    }

    fn is_interested_in(&self, _: &ClusterEvent<'_>) -> bool {
        false
    }
}

impl PreEnqueue for SchedulingGates {
    fn may_enter(&self, pod: &PodInfo) -> bool {
        !is_gated(&pod.pod)
    }
}
