//! Resizes that found no room, in the order in which upstream serves them: those that ask for no
//! more than they have, then by priority, guaranteed pods before others, and who waits longest.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;

use crate::resources::{self, QosClass};

#[derive(Default)]
pub struct Queue {
    /// By UID, with the number under which each came.
    waiting: BTreeMap<String, (u64, Arc<Pod>)>,
    next: u64,
}

/// The smaller comes first.
type Rank = (Reverse<i32>, bool, u64);

impl Queue {
    /// The pod waits, in this form. It keeps its place.
    pub fn put(&mut self, pod: Arc<Pod>) {
        let number = self.next;
        self.next += 1;
        let waiting = self.waiting.get(&super::uid(&pod));
        let number = waiting.map_or(number, |waiting| waiting.0);
        self.waiting.insert(super::uid(&pod), (number, pod));
    }

    pub fn remove(&mut self, uid: &str) {
        self.waiting.remove(uid);
    }

    /// The deferred resizes that are served before this pod's, in order. `granted`: the pod as it is now.
    pub fn before(&self, pod: &Pod, granted: Option<&Pod>) -> Vec<Arc<Pod>> {
        if granted.is_some_and(|granted| !asks_for_more(pod, granted)) {
            return Vec::new();
        }
        let uid = super::uid(pod);
        let number = self.waiting.get(&uid).map_or(u64::MAX, |entry| entry.0);
        let own = rank(pod, number);
        let mut earlier: Vec<(Rank, &Arc<Pod>)> = self
            .waiting
            .values()
            .map(|(number, pod)| (rank(pod, *number), pod))
            .filter(|(rank, _)| *rank < own)
            .collect();
        earlier.sort_by_key(|(rank, _)| *rank);
        earlier.into_iter().map(|(_, pod)| pod.clone()).collect()
    }
}

fn rank(pod: &Pod, number: u64) -> Rank {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
    let guaranteed = resources::qos_class(pod) == QosClass::Guaranteed;
    (Reverse(priority.unwrap_or(0)), !guaranteed, number)
}

fn asks_for_more(pod: &Pod, granted: &Pod) -> bool {
    ["cpu", "memory"].into_iter().any(|resource| {
        resources::pod_request(pod, resource) > resources::pod_request(granted, resource)
    })
}
