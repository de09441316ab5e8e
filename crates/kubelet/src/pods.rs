//! The pods of this node: takes them from the API's watch, gives each a worker, passes on hints
//! from the runtime, and finds what no longer belongs to any pod.

use std::{collections::BTreeMap, sync::Arc};

use client::{Change, Informer};
use k8s_openapi::{
    api::core::v1::{Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use trace::Hop;

use crate::{
    node_context::NodeContext,
    pod::{mailbox::Mailbox, worker::Worker},
    runtime::{changes::Hint, observe},
};

/// The pods this node works on, for its HTTP server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Pods {
    known: Arc<Mutex<BTreeMap<String, Known>>>,
    /// Wakes those who wait for a container's end.
    changed: Arc<Notify>,
}

struct Known {
    pod: Arc<Pod>,
    mailbox: Arc<Mailbox>,
    /// Its worker has ended; the object is still there (a finalizer holds it).
    over: bool,
    /// The API no longer has it; its worker is still clearing up.
    gone: bool,
}

impl Pods {
    pub fn list(&self) -> Vec<Arc<Pod>> {
        self.known
            .lock()
            .values()
            .map(|known| known.pod.clone())
            .collect()
    }

    /// The pod of that name; one that the API has goes before a namesake that is being cleared up.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let known = self.known.lock();
        known
            .values()
            .filter(|known| {
                let meta = &known.pod.metadata;
                meta.namespace.as_deref() == Some(namespace) && meta.name.as_deref() == Some(name)
            })
            .min_by_key(|known| known.gone)
            .map(|known| known.pod.clone())
    }

    /// Notified whenever something changed in the runtime.
    pub fn runtime_changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// Runs until `shutdown`. Containers go on: the next kubelet finds them again.
    pub async fn run(
        &self,
        node: Arc<NodeContext>,
        informer: Informer<Pod>,
        mut hints: mpsc::Receiver<Hint>,
        shutdown: CancellationToken,
    ) {
        let mut changes = informer.subscribe();
        let mut workers: JoinSet<String> = JoinSet::new();
        let mut synced = false;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                delivery = changes.next_delivery() => match delivery.change {
                    Change::Added(pod) => {
                        self.take(&node, pod, delivery.received_micros, delivery.bytes, &mut workers);
                    }
                    Change::Modified { new, .. } => {
                        self.take(&node, new, delivery.received_micros, delivery.bytes, &mut workers);
                    }
                    Change::Deleted(pod) => self.gone(&pod),
                    Change::Resynced => {
                        if !synced {
                            synced = true;
                            self.end_orphans(&node, &mut workers).await;
                        }
                    }
                },
                Some(hint) = hints.recv() => self.pass_on(hint),
                Some(ended) = workers.join_next() => {
                    if let Ok(uid) = ended {
                        self.over(&uid);
                    }
                }
            }
        }
    }

    fn take(
        &self,
        node: &Arc<NodeContext>,
        pod: Arc<Pod>,
        received: i64,
        bytes: u64,
        workers: &mut JoinSet<String>,
    ) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut known = self.known.lock();
        if let Some(known) = known.get_mut(&uid) {
            known.pod = pod.clone();
            if !known.over {
                known.mailbox.pod(pod);
            }
            return;
        }
        let mailbox = Arc::new(Mailbox::default());
        let entry = Known {
            pod: pod.clone(),
            mailbox: mailbox.clone(),
            over: false,
            gone: false,
        };
        known.insert(uid.clone(), entry);
        drop(known);
        let worker = Worker::new(node.clone(), mailbox, pod, received);
        workers.spawn(run_worker(uid.clone(), worker));
        node.spans
            .record_bytes(&uid, Hop::WatchNode, "receive", received, bytes);
    }

    fn gone(&self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut known = self.known.lock();
        match known.get_mut(uid) {
            Some(entry) if entry.over => {
                known.remove(uid);
            }
            Some(entry) => {
                entry.gone = true;
                entry.mailbox.removed();
            }
            None => {}
        }
    }

    fn over(&self, uid: &str) {
        let mut known = self.known.lock();
        // Kept until the watch says it is gone, so that a late event does not revive it.
        if let Some(entry) = known.get_mut(uid) {
            entry.over = true;
            if entry.gone {
                known.remove(uid);
            }
        }
    }

    fn pass_on(&self, hint: Hint) {
        self.changed.notify_waiters();
        let known = self.known.lock();
        match hint {
            Hint::Pod { uid } => {
                if let Some(entry) = known.get(&uid) {
                    entry.mailbox.runtime_changed();
                }
            }
            Hint::All => {
                for entry in known.values() {
                    entry.mailbox.runtime_changed();
                }
            }
        }
    }

    /// Ends what the runtime or the disk holds of pods that the API no longer has.
    async fn end_orphans(&self, node: &Arc<NodeContext>, workers: &mut JoinSet<String>) {
        let mut orphans: BTreeMap<String, Pod> = BTreeMap::new();
        for uid in node.volumes.known_uids().await {
            orphans.insert(uid.clone(), orphan(uid, String::new(), String::new()));
        }
        match observe::owners(&node.cri).await {
            Ok(owners) => {
                for owner in owners {
                    let pod = orphan(owner.uid.clone(), owner.namespace, owner.name);
                    orphans.insert(owner.uid, pod);
                }
            }
            Err(status) => tracing::warn!(%status, "the runtime's sandboxes could not be listed"),
        }
        for (uid, pod) in orphans {
            if self.known.lock().contains_key(&uid) {
                continue;
            }
            tracing::info!(pod = uid, "ending a pod that the API no longer has");
            let (pod, mailbox) = (Arc::new(pod), Arc::new(Mailbox::default()));
            mailbox.removed();
            let entry = Known {
                pod: pod.clone(),
                mailbox: mailbox.clone(),
                over: false,
                gone: true,
            };
            self.known.lock().insert(uid.clone(), entry);
            let worker = Worker::orphaned(node.clone(), mailbox, pod);
            workers.spawn(run_worker(uid, worker));
        }
    }
}

async fn run_worker(uid: String, worker: Worker) -> String {
    worker.run().await;
    uid
}

fn orphan(uid: String, namespace: String, name: String) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace),
            uid: Some(uid),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec::default()),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(pods: &Pods, uid: &str, over: bool) {
        let entry = Known {
            pod: Arc::new(orphan(uid.into(), "default".into(), "boat".into())),
            mailbox: Arc::default(),
            over,
            gone: false,
        };
        pods.known.lock().insert(uid.into(), entry);
    }

    fn uid_of(pod: &Pod) -> &str {
        pod.metadata.uid.as_deref().unwrap_or_default()
    }

    #[test]
    fn a_new_pod_goes_before_its_deleted_namesake() {
        let pods = Pods::default();
        known(&pods, "a", false);
        known(&pods, "b", false);
        let old = pods.find("default", "boat").expect("a pod");
        assert_eq!(uid_of(&old), "a");
        pods.gone(&old);
        let new = pods.find("default", "boat").expect("a pod");
        assert_eq!(uid_of(&new), "b");
    }

    #[test]
    fn a_pod_is_forgotten_when_object_and_worker_are_gone_in_either_order() {
        let pods = Pods::default();
        known(&pods, "a", false);
        known(&pods, "b", true);
        let all = pods.list();
        for pod in &all {
            pods.gone(pod);
        }
        assert_eq!(pods.list().len(), 1, "a's worker is still clearing up");
        pods.over("a");
        assert!(pods.list().is_empty());
    }
}
