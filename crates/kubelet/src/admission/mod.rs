//! Admits or rejects pods that were bound to this node, and grants or defers resizes. What was granted
//! to which pod is kept here. The checks themselves are pure and are in files next to this one.
//!
//! The scheduler has looked at all of this before; a pod bound by hand, or two schedulers at once,
//! are what the node itself must reject.

mod apparmor;
mod fit;
pub mod placement;
pub mod preemption;
mod pressure;
mod queue;
mod sysctls;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::capacity::Capacity;
pub use fit::Shortage;

/// Why a pod is rejected. Reason and message are upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: String,
    pub message: String,
    /// How much is missing, when that is the cause: preemption may help then.
    pub shortage: Option<Shortage>,
}

impl Rejection {
    fn new(reason: &str, message: impl Into<String>) -> Rejection {
        Rejection {
            reason: reason.to_owned(),
            message: message.into(),
            shortage: None,
        }
    }

    pub fn unknown() -> Rejection {
        Rejection::new(
            "UnknownReason",
            "GeneralPredicates failed due to unknown reason, which is unexpected.",
        )
    }

    /// A critical pod for which not even preempting all others would make room.
    pub fn no_victims(missing: &[Shortage]) -> Rejection {
        let list: String = missing
            .iter()
            .map(|one| format!("(res: {}, q: {}), ", one.resource, one.amount))
            .collect();
        Rejection::new(
            "UnexpectedAdmissionError",
            format!(
                "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [{list}]"
            ),
        )
    }

    pub fn node_shutdown() -> Rejection {
        let message = "Pod was rejected as the node is shutting down.";
        Rejection::new("NodeShutdown", message)
    }

    fn predicate(name: &str, description: &str) -> Rejection {
        Rejection::new(name, format!("Predicate {name} failed: {description}"))
    }
}

/// The resources that this node has granted to pods. Cheap to clone.
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
}

struct Shared {
    capacity: Capacity,
    node_name: String,
    unsafe_sysctls: Vec<String>,
    grants: Mutex<Grants>,
    /// Something was given back: what waits for room may try again.
    released: Notify,
}

#[derive(Default)]
struct Grants {
    /// Pods with the resources they were granted, by UID.
    granted: BTreeMap<String, Arc<Pod>>,
    /// Resizes that wait for room.
    deferred: queue::Queue,
}

impl Grants {
    /// The resources that the pod lacks besides those granted to others.
    fn shortages(&self, pod: &Pod, capacity: &Capacity) -> Vec<Rejection> {
        let uid = uid(pod);
        let others: Vec<&Arc<Pod>> = self
            .granted
            .iter()
            .filter(|(known, _)| **known != uid)
            .map(|(_, pod)| pod)
            .collect();
        fit::check(pod, &others, capacity, None)
    }
}

impl Admission {
    pub fn new(capacity: Capacity, node_name: &str, unsafe_sysctls: Vec<String>) -> Admission {
        Admission {
            shared: Arc::new(Shared {
                capacity,
                node_name: node_name.to_owned(),
                unsafe_sysctls,
                grants: Mutex::default(),
                released: Notify::new(),
            }),
        }
    }

    /// Admits the pod, or returns why not, the weightiest reason first. `node`: the Node object, without
    /// which no pod is admitted. `pressures`: the node's pressure conditions that are true.
    pub fn admit(
        &self,
        pod: &Arc<Pod>,
        node: Option<&Node>,
        pressures: &[&str],
    ) -> Result<(), Vec<Rejection>> {
        let mut grants = self.shared.grants.lock();
        let uid = uid(pod);
        let others: Vec<&Arc<Pod>> = grants
            .granted
            .iter()
            .filter(|(known, _)| **known != uid)
            .map(|(_, pod)| pod)
            .collect();
        let mut rejections = pressure::check(pod, pressures);
        if rejections.is_empty() {
            rejections = sysctls::check(pod, &self.shared.unsafe_sysctls);
        }
        if rejections.is_empty() {
            rejections = apparmor::check(pod, apparmor::is_enabled);
        }
        if rejections.is_empty() && node.is_none() {
            rejections.push(Rejection::new(
                "InvalidNodeInfo",
                "Kubelet cannot get node info.",
            ));
        }
        if rejections.is_empty() {
            rejections = placement::check_system(pod, node);
        }
        if rejections.is_empty() {
            rejections = fit::check(pod, &others, &self.shared.capacity, node);
            rejections.extend(placement::check(pod, &others, node, &self.shared.node_name));
        }
        if !rejections.is_empty() {
            return Err(rejections);
        }
        grants.granted.insert(uid, pod.clone());
        Ok(())
    }

    /// A pod that runs here already keeps what it has, no matter what the checks would say today.
    pub fn readmit(&self, pod: Arc<Pod>) {
        self.shared.grants.lock().granted.insert(uid(&pod), pod);
    }

    /// Grants a changed amount of resources to a pod that is here, or returns what is missing. Those
    /// that wait already and come before it get theirs first.
    pub fn resize(&self, pod: &Arc<Pod>) -> Result<(), Rejection> {
        let mut grants = self.shared.grants.lock();
        let capacity = &self.shared.capacity;
        let uid = uid(pod);
        let present = grants.granted.get(&uid).cloned();
        let mut served = false;
        for earlier in grants.deferred.before(pod, present.as_deref()) {
            if grants.shortages(&earlier, capacity).is_empty() {
                let uid = self::uid(&earlier);
                grants.deferred.remove(&uid);
                grants.granted.insert(uid, earlier);
                served = true;
            }
        }
        let refused = grants.shortages(pod, capacity).into_iter().next();
        match refused {
            Some(rejection) => {
                grants.deferred.put(pod.clone());
                drop(grants);
                // Pods whose resize was granted meanwhile ask again and learn it.
                if served {
                    self.shared.released.notify_waiters();
                }
                Err(rejection)
            }
            None => {
                grants.deferred.remove(&uid);
                grants.granted.insert(uid, pod.clone());
                drop(grants);
                self.shared.released.notify_waiters();
                Ok(())
            }
        }
    }

    /// The pod no longer waits for a resize, and has the resources in its spec.
    pub fn withdraw(&self, pod: &Arc<Pod>) {
        let mut grants = self.shared.grants.lock();
        let uid = uid(pod);
        grants.deferred.remove(&uid);
        if let Some(granted) = grants.granted.get_mut(&uid) {
            *granted = pod.clone();
        }
        drop(grants);
        self.shared.released.notify_waiters();
    }

    pub fn release(&self, uid: &str) {
        let mut grants = self.shared.grants.lock();
        grants.deferred.remove(uid);
        if grants.granted.remove(uid).is_some() {
            drop(grants);
            self.shared.released.notify_waiters();
        }
    }

    /// Releases what was granted to all pods but those that stay.
    pub fn release_unless(&self, stays: impl Fn(&Pod) -> bool) {
        let mut grants = self.shared.grants.lock();
        let leaving: Vec<String> = grants
            .granted
            .iter()
            .filter(|(_, pod)| !stays(pod))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in &leaving {
            grants.deferred.remove(uid);
            grants.granted.remove(uid);
        }
        drop(grants);
        if !leaving.is_empty() {
            self.shared.released.notify_waiters();
        }
    }

    /// Waits until none of these pods has anything any more.
    pub async fn without(&self, uids: &[String]) {
        loop {
            let mut released = std::pin::pin!(self.shared.released.notified());
            released.as_mut().enable();
            let gone = {
                let grants = self.shared.grants.lock();
                !uids.iter().any(|uid| grants.granted.contains_key(uid))
            };
            if gone {
                return;
            }
            released.await;
        }
    }

    /// Waits until something is given back.
    pub async fn released(&self) {
        self.shared.released.notified().await;
    }

    pub fn granted(&self) -> Vec<Arc<Pod>> {
        self.shared
            .grants
            .lock()
            .granted
            .values()
            .cloned()
            .collect()
    }
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, cpu: &str) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": uid, "uid": uid},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn admission() -> Admission {
        let capacity = Capacity {
            milli_cpu: 2000,
            memory: 4 << 30,
            storage: 10 << 30,
            ..Capacity::default()
        };
        Admission::new(capacity, "n1", Vec::new())
    }

    #[test]
    fn granted_resources_are_not_available_to_the_next_pod() {
        let admission = admission();
        let node = Node::default();
        admission
            .admit(&pod("a", "1500m"), Some(&node), &[])
            .expect("fits");
        let refused = admission
            .admit(&pod("b", "1"), Some(&node), &[])
            .expect_err("too much");
        assert_eq!(refused[0].reason, "OutOfcpu");
        assert_eq!(
            refused[0].message,
            "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000"
        );
        admission.release("a");
        admission
            .admit(&pod("b", "1"), Some(&node), &[])
            .expect("fits now");
    }

    #[test]
    fn a_resize_counts_the_pod_itself_once() {
        let (admission, node) = (admission(), Node::default());
        let fits = admission.admit(&pod("a", "1"), Some(&node), &[]);
        fits.expect("fits");
        admission.resize(&pod("a", "2")).expect("all of the node");
        let refused = admission.resize(&pod("a", "3")).expect_err("too much");
        assert_eq!(refused.reason, "OutOfcpu");
        assert!(
            admission
                .admit(&pod("b", "100m"), Some(&node), &[])
                .is_err(),
            "the grant stands"
        );
    }

    #[test]
    fn the_most_important_deferred_resize_is_granted_first() {
        let admission = admission();
        let node = Node::default();
        let important = |cpu| {
            let mut pod = Pod::clone(&pod("b", cpu));
            pod.spec.as_mut().expect("spec").priority = Some(10);
            Arc::new(pod)
        };
        admission
            .admit(&pod("a", "500m"), Some(&node), &[])
            .expect("fits");
        admission
            .admit(&important("500m"), Some(&node), &[])
            .expect("fits");
        admission
            .admit(&pod("c", "1"), Some(&node), &[])
            .expect("fits");
        admission.resize(&pod("a", "1400m")).expect_err("waits");
        admission.resize(&important("1400m")).expect_err("waits");
        admission.release("c");
        admission
            .resize(&pod("a", "1400m"))
            .expect_err("b is first");
        admission.resize(&important("1400m")).expect("it has it");
        admission.withdraw(&important("500m"));
        admission.resize(&pod("a", "1400m")).expect("its turn");
    }

    #[test]
    fn no_pod_is_admitted_without_a_node_object() {
        let admission = admission();
        let refused = admission.admit(&pod("a", "1"), None, &[]);
        let refused = refused.expect_err("nobody knows the node");
        assert_eq!(refused[0].reason, "InvalidNodeInfo");
        assert_eq!(refused[0].message, "Kubelet cannot get node info.");
        assert!(admission.granted().is_empty());
    }
}
