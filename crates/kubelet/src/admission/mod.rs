//! Whether this node takes a pod that was bound to it, and later whether it grants a resize: what
//! was granted to whom is kept here. The checks themselves are pure and lie beside this file.
//!
//! The scheduler has looked at all of this before; a pod bound by hand, or two schedulers at once,
//! are what the node itself must refuse.

mod apparmor;
mod fit;
mod placement;
pub mod preemption;
mod pressure;
mod sysctls;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::node::Capacity;
pub use fit::Shortage;

/// Why a pod is not taken; upstream's words.
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

    /// A critical pod for which not even all others together would make room.
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

/// What this node has granted. Cheap to clone.
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
}

struct Shared {
    capacity: Capacity,
    node_name: String,
    unsafe_sysctls: Vec<String>,
    /// Pods with the resources they were granted, by UID.
    granted: Mutex<BTreeMap<String, Arc<Pod>>>,
    /// Something was given back: what waits for room may try again.
    released: Notify,
}

impl Admission {
    pub fn new(capacity: Capacity, node_name: &str, unsafe_sysctls: Vec<String>) -> Admission {
        Admission {
            shared: Arc::new(Shared {
                capacity,
                node_name: node_name.to_owned(),
                unsafe_sysctls,
                granted: Mutex::default(),
                released: Notify::new(),
            }),
        }
    }

    /// Takes the pod or says why not, the weightiest reason first. `node`: the Node object, without
    /// which no pod is taken. `pressures`: the node's conditions that are so.
    pub fn admit(
        &self,
        pod: &Arc<Pod>,
        node: Option<&Node>,
        pressures: &[&str],
    ) -> Result<(), Vec<Rejection>> {
        let mut granted = self.shared.granted.lock();
        let uid = uid(pod);
        let others: Vec<&Arc<Pod>> = granted
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
        granted.insert(uid, pod.clone());
        Ok(())
    }

    /// A pod that runs here already keeps what it has, whatever the checks would say today.
    pub fn readmit(&self, pod: &Arc<Pod>) {
        self.shared.granted.lock().insert(uid(pod), pod.clone());
    }

    /// Grants a changed amount of resources to a pod that is here, or says what is missing.
    pub fn resize(&self, pod: &Arc<Pod>) -> Result<(), Rejection> {
        let mut granted = self.shared.granted.lock();
        let uid = uid(pod);
        let others: Vec<&Arc<Pod>> = granted
            .iter()
            .filter(|(known, _)| **known != uid)
            .map(|(_, pod)| pod)
            .collect();
        if let Some(rejection) = fit::check(pod, &others, &self.shared.capacity, None)
            .into_iter()
            .next()
        {
            return Err(rejection);
        }
        granted.insert(uid, pod.clone());
        drop(granted);
        self.shared.released.notify_waiters();
        Ok(())
    }

    pub fn release(&self, uid: &str) {
        if self.shared.granted.lock().remove(uid).is_some() {
            self.shared.released.notify_waiters();
        }
    }

    /// Waits until something is given back.
    pub async fn released(&self) {
        self.shared.released.notified().await;
    }

    pub fn granted(&self) -> Vec<Arc<Pod>> {
        self.shared.granted.lock().values().cloned().collect()
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
    fn what_is_granted_is_missing_to_the_next() {
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
    fn without_a_node_nothing_is_taken() {
        let admission = admission();
        let refused = admission.admit(&pod("a", "1"), None, &[]);
        let refused = refused.expect_err("nobody knows the node");
        assert_eq!(refused[0].reason, "InvalidNodeInfo");
        assert_eq!(refused[0].message, "Kubelet cannot get node info.");
        assert!(admission.granted().is_empty());
    }
}
