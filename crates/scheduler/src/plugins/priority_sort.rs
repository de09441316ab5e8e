//! Pods of higher priority are tried first.

use std::sync::Arc;

use crate::{
    PodInfo,
    framework::{ClusterEvent, Plugin, Points, QueueSort},
};

pub struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            queue_sort: Some(self),
            ..Points::default()
        }
    }

    fn is_interested_in(&self, _: &ClusterEvent<'_>) -> bool {
        false
    }
}

impl QueueSort for PrioritySort {
    fn rank(&self, pod: &PodInfo) -> i64 {
        i64::from(pod.priority)
    }
}
