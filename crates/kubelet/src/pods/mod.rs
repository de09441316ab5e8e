//! The pods of this node. [`Pods`] lists them for the rest of the kubelet; [`intake`] takes them from
//! the API's watch and from manifests and gives each a worker; [`leftovers`] finds what belongs to no
//! pod any more.

pub mod intake;
mod leftovers;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use semantics::pod::is_terminal;
use tokio::sync::Notify;

use crate::{
    admission::Admission,
    pod::{lifecycle::Lifecycle, mailbox::Mailbox, termination::Termination},
    runtime::changes::Hint,
};

/// The loop that takes pods is stuck when it has not come around for so long.
const STUCK: Duration = Duration::from_secs(300);

/// The pods that this node works on. Cheap to clone.
#[derive(Clone, Default)]
pub struct Pods {
    known: Arc<Mutex<BTreeMap<String, KnownPod>>>,
    /// Wakes those who wait for a container's end.
    changed: Arc<Notify>,
    /// When the loop that takes pods last came around, in microseconds; 0 before it runs.
    came_around: Arc<AtomicI64>,
}

/// A pod that has a worker, or had one.
struct KnownPod {
    pod: Arc<Pod>,
    mailbox: Arc<Mailbox>,
    /// `Terminating` is not noted here: the pod's deletion timestamp says it.
    lifecycle: Lifecycle,
}

impl KnownPod {
    /// Whether nothing of it runs any more, or its phase says so.
    fn has_ended(&self) -> bool {
        self.lifecycle == Lifecycle::Finished || is_terminal(&self.pod)
    }
}

impl Pods {
    /// Whether the loop that takes pods has not come around for long.
    pub fn is_stuck(&self, now: i64) -> bool {
        let last = self.came_around();
        last > 0 && now - last > STUCK.as_micros() as i64
    }

    /// When the loop that takes pods last came around, in microseconds; 0 before it runs.
    pub fn came_around(&self) -> i64 {
        self.came_around.load(Ordering::Relaxed)
    }

    pub fn list(&self) -> Vec<Arc<Pod>> {
        let known = self.known.lock();
        known.values().map(|known| known.pod.clone()).collect()
    }

    /// The pods that have not ended.
    pub fn active(&self) -> Vec<Arc<Pod>> {
        let known = self.known.lock();
        let active = known.values().filter(|known| !known.has_ended());
        active.map(|known| known.pod.clone()).collect()
    }

    /// The pods that the API has and that this node has not decided to end: a pod is ended once.
    pub fn not_ending(&self) -> Vec<Arc<Pod>> {
        let known = self.known.lock();
        let staying = known
            .values()
            .filter(|known| known.lifecycle == Lifecycle::Running);
        staying.map(|known| known.pod.clone()).collect()
    }

    /// Whether the pod is one of ours and known to have ended.
    pub fn has_ended(&self, uid: &str) -> bool {
        let known = self.known.lock();
        known.get(uid).is_some_and(KnownPod::has_ended)
    }

    /// Whether the API knows that the pod has ended, or has it no longer.
    pub fn end_is_reported(&self, uid: &str) -> bool {
        let known = self.known.lock();
        known
            .get(uid)
            .is_none_or(|known| known.lifecycle == Lifecycle::Deleted || known.has_ended())
    }

    /// The pod of that name. One that the API has takes precedence over a deleted one of the same
    /// name whose worker has not finished.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let known = self.known.lock();
        known
            .values()
            .filter(|known| {
                let meta = &known.pod.metadata;
                meta.namespace.as_deref() == Some(namespace) && meta.name.as_deref() == Some(name)
            })
            .min_by_key(|known| known.lifecycle == Lifecycle::Deleted)
            .map(|known| known.pod.clone())
    }

    /// Notified whenever something changed in the runtime.
    pub fn runtime_changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// Has the pod's worker end it, for a reason that lies with the node.
    pub fn end(&self, uid: &str, termination: Termination) {
        if let Some(known) = self.known.lock().get_mut(uid) {
            known.lifecycle.advance(Lifecycle::Ending);
            known.mailbox.end(termination);
        }
    }

    fn contains(&self, uid: &str) -> bool {
        self.known.lock().contains_key(uid)
    }

    fn insert(&self, pod: Arc<Pod>, mailbox: Arc<Mailbox>, lifecycle: Lifecycle) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let known = KnownPod {
            pod,
            mailbox,
            lifecycle,
        };
        self.known.lock().insert(uid, known);
    }

    /// Passes a new form of the pod to its worker. Returns false if the pod is not known.
    fn update(&self, pod: &Arc<Pod>) -> bool {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut known = self.known.lock();
        let Some(known) = known.get_mut(uid) else {
            return false;
        };
        known.pod = pod.clone();
        if known.lifecycle != Lifecycle::Finished {
            known.mailbox.pod(pod.clone());
        }
        true
    }

    /// Passes the mirror pod of a static pod to its worker.
    fn update_mirror(&self, pod: &Pod, mirror: Option<Arc<Pod>>) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(known) = self.known.lock().get(uid) {
            known.mailbox.mirror(mirror);
        }
    }

    /// The API no longer has the pod. What it was granted is free at once, though its containers may
    /// still be ending: the scheduler does not count it any more either, and would see its next
    /// pods for this node rejected.
    fn deleted(&self, admission: &Admission, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        admission.release(uid);
        let mut known = self.known.lock();
        match known.get_mut(uid) {
            Some(entry) if entry.lifecycle == Lifecycle::Finished => {
                known.remove(uid);
            }
            Some(entry) => {
                entry.lifecycle.advance(Lifecycle::Deleted);
                // Its last form has the grace period: a forced deletion comes at once.
                if pod.metadata.deletion_timestamp.is_some() {
                    entry.mailbox.pod(Arc::new(pod.clone()));
                }
                entry.mailbox.deleted();
            }
            None => {}
        }
    }

    /// The pod's worker has ended. A pod that the API still has is kept until the watch reports its
    /// deletion, so that a late event does not start it again.
    fn finished(&self, uid: &str) -> Option<Arc<Pod>> {
        let mut known = self.known.lock();
        let entry = known.get_mut(uid)?;
        let pod = entry.pod.clone();
        match entry.lifecycle {
            Lifecycle::Deleted => {
                known.remove(uid);
            }
            _ => entry.lifecycle.advance(Lifecycle::Finished),
        }
        Some(pod)
    }

    fn pass_on(&self, hint: Hint) {
        self.changed.notify_waiters();
        let known = self.known.lock();
        match hint {
            Hint::Pod { uid, reported } => {
                if let Some(entry) = known.get(&uid) {
                    entry.mailbox.runtime_changed(reported);
                }
            }
            Hint::All => {
                for entry in known.values() {
                    entry.mailbox.runtime_changed(None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(pods: &Pods, uid: &str, lifecycle: Lifecycle) {
        let pod = intake::orphan(uid.into(), "default".into(), "boat".into());
        pods.insert(Arc::new(pod), Arc::default(), lifecycle);
    }

    fn admission() -> Admission {
        Admission::new(crate::capacity::Capacity::default(), "n1", Vec::new())
    }

    fn uid_of(pod: &Pod) -> &str {
        pod.metadata.uid.as_deref().unwrap_or_default()
    }

    #[test]
    fn a_pod_is_ended_once() {
        let pods = Pods::default();
        insert(&pods, "a", Lifecycle::Running);
        insert(&pods, "b", Lifecycle::Finished);
        assert_eq!(pods.not_ending().len(), 1);
        pods.end("a", Termination::default());
        assert!(pods.not_ending().is_empty());
        assert!(!pods.has_ended("a") && pods.has_ended("b") && !pods.has_ended("c"));
    }

    #[test]
    fn a_new_pod_takes_precedence_over_a_deleted_one_of_its_name() {
        let pods = Pods::default();
        insert(&pods, "a", Lifecycle::Running);
        insert(&pods, "b", Lifecycle::Running);
        let old = pods.find("default", "boat").expect("a pod");
        assert_eq!(uid_of(&old), "a");
        pods.deleted(&admission(), &old);
        let new = pods.find("default", "boat").expect("a pod");
        assert_eq!(uid_of(&new), "b");
    }

    #[test]
    fn a_pod_is_forgotten_when_object_and_worker_are_gone_in_either_order() {
        let pods = Pods::default();
        insert(&pods, "a", Lifecycle::Running);
        insert(&pods, "b", Lifecycle::Finished);
        let all = pods.list();
        let admission = admission();
        for pod in &all {
            pods.deleted(&admission, pod);
        }
        assert_eq!(pods.list().len(), 1, "the worker of a has not finished");
        pods.finished("a");
        assert!(pods.list().is_empty());
    }

    #[test]
    fn a_pod_that_ends_by_decision_of_the_node_and_is_deleted_counts_as_deleted() {
        let pods = Pods::default();
        insert(&pods, "a", Lifecycle::Running);
        let pod = pods.list().remove(0);
        pods.end("a", Termination::default());
        assert!(!pods.end_is_reported("a"));
        pods.deleted(&admission(), &pod);
        assert!(pods.end_is_reported("a"));
        pods.end("a", Termination::default());
        pods.finished("a");
        assert!(pods.list().is_empty());
    }
}
