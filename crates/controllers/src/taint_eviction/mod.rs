//! Taint eviction: deletes pods that do not, or no longer, tolerate their node's NoExecute taints.

mod plan;

use std::collections::BTreeMap;
use std::time::Duration;

use client::controller::Reconciled;
use client::events::Recorder;
use client::{Change, Index, Informer, ObjectKey, WorkQueue, retry};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, Reconciler, enqueue, own_key};
use crate::{Config, Error, lookup};
use plan::Stay;

pub async fn run(config: Config, shutdown: CancellationToken) {
    let nodes = config.informers.of::<Node>();
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join(
        enqueue(&pods, &queue, own_key),
        follow_taints(nodes.clone(), lookup::by_node(&pods), queue.clone()),
    );
    let controller = Controller {
        events: config.events("taint-eviction-controller"),
        config,
        nodes,
        pods,
        leaving: Mutex::default(),
    };
    watching::run("taint-eviction", 4, queue, feeds, controller, shutdown).await;
}

/// Looks at all pods of a node whose taints have changed.
async fn follow_taints(nodes: Informer<Node>, pods: Index<Pod>, queue: WorkQueue<ObjectKey>) {
    let mut changes = nodes.subscribe();
    let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
    loop {
        let node = match changes.next().await {
            Change::Added(node) if taints(&node).is_some() => node,
            Change::Modified { old, new } if taints(&old) != taints(&new) => new,
            _ => continue,
        };
        for pod in pods.get(node.metadata.name.as_deref().unwrap_or_default()) {
            queue.add(ObjectKey::of(&*pod));
        }
    }
}

struct Controller {
    config: Config,
    events: Recorder,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    /// Pods that are to go, with the time they were first seen under their taints.
    leaving: Mutex<BTreeMap<ObjectKey, Timestamp>>,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.nodes.synced().await;
        let pod = self
            .pods
            .get(&key.namespace, &key.name)
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let Some(pod) = pod else {
            self.leaving.lock().remove(key);
            return Ok(Reconciled::Done);
        };
        let Some(node) = node_of(&pod).and_then(|node| self.nodes.get("", node)) else {
            return Ok(Reconciled::Done);
        };
        let now = self.config.environment.now();
        let known = self.leaving.lock().get(key).copied();
        match plan::stay(&pod, &node, known.unwrap_or(now)) {
            Stay::Unlimited => {
                if known.is_some() {
                    self.leaving.lock().remove(key);
                    let message = format!("Cancelling deletion of Pod {key}");
                    self.events.normal(&*pod, "TaintManagerEviction", message);
                }
                Ok(Reconciled::Done)
            }
            Stay::Until(second) if second > now.as_second() => {
                self.leaving.lock().entry(key.clone()).or_insert(now);
                let left = (second - now.as_second()) as u64;
                Ok(Reconciled::After(Duration::from_secs(left)))
            }
            Stay::Until(_) => {
                let message = format!("Marking for deletion Pod {key}");
                self.events.normal(&*pod, "TaintManagerEviction", message);
                self.evict(&pod, key, now).await?;
                self.leaving.lock().remove(key);
                Ok(Reconciled::Done)
            }
        }
    }
}

impl Controller {
    async fn evict(&self, pod: &Pod, key: &ObjectKey, now: Timestamp) -> Result<(), Error> {
        let pods: Api<Pod> = Api::namespaced(self.config.client.clone(), &key.namespace);
        let patch = serde_json::json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": [{
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint",
                "lastTransitionTime": now.to_string(),
                "observedGeneration": pod.metadata.generation,
            }]},
        });
        let patch = Patch::Strategic(patch);
        let patched = pods
            .patch_status(&key.name, &PatchParams::default(), &patch)
            .await;
        match patched {
            Err(error) if retry::is_not_found(&error) => return Ok(()),
            patched => patched?,
        };
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: pod.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match pods.delete(&key.name, &parameters).await {
            Err(error) if !retry::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    let name = pod.spec.as_ref()?.node_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}
