//! Keeps the graph in step with every kind the server serves: kinds that other controllers hold
//! whole are shared with them, of all others the metadata is watched. Kinds that appear later (a
//! CRD) are picked up, those that vanish are dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use client::{Change, Informer, Informers, Metadata, Object, ObjectKey, WorkQueue};
use k8s_openapi::api::apps::v1::{
    ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet,
};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{
    Endpoints, Namespace, Node as ClusterNode, PersistentVolume, PersistentVolumeClaim, Pod,
    ReplicationController, ResourceQuota, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttributesClass};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::graph::Graph;
use super::node::Node;
use crate::Config;
use crate::discovery::{self, Discovered, Served};

/// The served kinds change with CRDs, which we watch, and with aggregated servers, which we
/// are not.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// After a change among CRDs the server takes a moment to serve them.
const SETTLE: Duration = Duration::from_millis(200);
/// A kind that cannot be listed must not hold up all others for ever.
const FILLING: Duration = Duration::from_secs(30);

type Filled = Pin<Box<dyn Future<Output = ()> + Send>>;

pub struct Monitors {
    graph: Arc<Mutex<Graph>>,
    queue: WorkQueue<ObjectKey>,
    /// Lock order: `waiting`, then this.
    served: Mutex<Vec<Served>>,
    /// Objects with owners of kinds that are not served.
    waiting: Mutex<BTreeSet<String>>,
    filled: Semaphore,
    /// A CRD or an aggregated group has changed.
    changed: Arc<Notify>,
}

struct Feed {
    task: AbortHandle,
    uids: Arc<Mutex<BTreeMap<ObjectKey, String>>>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Monitors {
    pub fn new(graph: Arc<Mutex<Graph>>, queue: WorkQueue<ObjectKey>) -> Monitors {
        Monitors {
            graph,
            queue,
            served: Mutex::default(),
            waiting: Mutex::default(),
            filled: Semaphore::new(0),
            changed: Arc::default(),
        }
    }

    /// The served kind that an owner reference names.
    pub fn served(&self, api_version: &str, kind: &str) -> Option<Served> {
        let (group, version) = api::resource::split_api_version(api_version);
        let served = self.served.lock();
        served
            .iter()
            .find(|served| {
                served.group == group && served.version == version && served.kind == kind
            })
            .cloned()
    }

    /// As [`Monitors::served`]; when the kind is not served, the object `uid` is looked at again as
    /// soon as other kinds are.
    pub fn served_or_later(&self, api_version: &str, kind: &str, uid: &str) -> Option<Served> {
        // Held together, so that no change of what is served falls in between.
        let mut waiting = self.waiting.lock();
        let found = self.served(api_version, kind);
        if found.is_none() {
            waiting.insert(uid.to_string());
        }
        found
    }

    /// Takes in what is served now. Of groups that do not answer, what was known stays.
    fn learn(&self, discovered: Discovered) {
        let Discovered { mut kinds, stale } = discovered;
        let mut waiting = self.waiting.lock();
        let mut served = self.served.lock();
        let kept = served.iter().filter(|known| {
            stale.contains(&known.api_version())
                // Another version of the group may be preferred now.
                && !kinds.iter().any(|kind| {
                    (&kind.group, &kind.plural) == (&known.group, &known.plural)
                })
        });
        let kept: Vec<Served> = kept.cloned().collect();
        kinds.extend(kept);
        let is_new = kinds.iter().any(|kind| !served.contains(kind));
        *served = kinds;
        if is_new {
            self.touch(std::mem::take(&mut *waiting).into_iter().collect());
        }
    }

    /// Waits until every kind that was served at first is in the graph.
    pub async fn filled(&self) {
        let _ = self.filled.acquire().await;
    }

    /// Runs for ever; drop it to stop.
    pub async fn run(&self, config: &Config) {
        let mut feeds: BTreeMap<(String, String), Feed> = BTreeMap::new();
        let mut first = true;
        loop {
            match discovery::discover(&config.client).await {
                Ok(discovered) => {
                    self.learn(discovered);
                    let filled = self.follow(config, &mut feeds);
                    if first {
                        first = false;
                        if timeout(FILLING, futures::future::join_all(filled))
                            .await
                            .is_err()
                        {
                            tracing::warn!("some kinds cannot be listed; collecting without them");
                        }
                        self.filled.add_permits(1);
                    }
                }
                Err(error) => tracing::warn!(%error, "discovering what is served"),
            }
            let pause = if first { SETTLE } else { LOOK_AGAIN };
            tokio::select! {
                biased;
                () = self.changed.notified() => sleep(SETTLE).await,
                () = sleep(pause) => {}
            }
        }
    }

    /// Starts and ends feeds as the served kinds ask; gives what waits for the new ones' first
    /// lists.
    fn follow(&self, config: &Config, feeds: &mut BTreeMap<(String, String), Feed>) -> Vec<Filled> {
        let wanted: BTreeMap<(String, String), Served> = self
            .served
            .lock()
            .iter()
            .filter(|served| is_collected(served))
            .map(|served| {
                (
                    (served.group.clone(), served.plural.clone()),
                    served.clone(),
                )
            })
            .collect();
        let mut filled = Vec::new();
        for (key, served) in &wanted {
            if !feeds.contains_key(key) {
                let (feed, synced) = self.feed(&config.informers, served);
                feeds.insert(key.clone(), feed);
                filled.push(synced);
            }
        }
        feeds.retain(|key, feed| {
            let kept = wanted.contains_key(key);
            if !kept {
                for uid in std::mem::take(&mut *feed.uids.lock()).into_values() {
                    self.touch(self.graph.lock().remove(&uid));
                }
            }
            kept
        });
        filled
    }

    fn feed(&self, informers: &Informers, served: &Served) -> (Feed, Filled) {
        macro_rules! shared {
            ($($group:literal $plural:literal $kind:ty),* $(,)?) => {
                match (served.group.as_str(), served.plural.as_str()) {
                    $(($group, $plural) => {
                        return self.follow_informer(informers.of::<$kind>(), served);
                    })*
                    _ => {}
                }
            };
        }
        shared!(
            "" "endpoints" Endpoints,
            "" "namespaces" Namespace,
            "" "nodes" ClusterNode,
            "" "persistentvolumeclaims" PersistentVolumeClaim,
            "" "persistentvolumes" PersistentVolume,
            "" "pods" Pod,
            "" "replicationcontrollers" ReplicationController,
            "" "resourcequotas" ResourceQuota,
            "" "serviceaccounts" ServiceAccount,
            "" "services" Service,
            "apps" "controllerrevisions" ControllerRevision,
            "apps" "daemonsets" DaemonSet,
            "apps" "deployments" Deployment,
            "apps" "replicasets" ReplicaSet,
            "apps" "statefulsets" StatefulSet,
            "batch" "cronjobs" CronJob,
            "batch" "jobs" Job,
            "certificates.k8s.io" "certificatesigningrequests" CertificateSigningRequest,
            "discovery.k8s.io" "endpointslices" EndpointSlice,
            "networking.k8s.io" "ipaddresses" IPAddress,
            "networking.k8s.io" "servicecidrs" ServiceCIDR,
            "policy" "poddisruptionbudgets" PodDisruptionBudget,
            "rbac.authorization.k8s.io" "clusterroles" ClusterRole,
            "storage.k8s.io" "storageclasses" StorageClass,
            "storage.k8s.io" "volumeattributesclasses" VolumeAttributesClass,
        );
        self.follow_informer::<Metadata>(informers.metadata_at(&served.path()), served)
    }

    fn follow_informer<K: Object>(&self, informer: Informer<K>, served: &Served) -> (Feed, Filled) {
        let (graph, queue) = (self.graph.clone(), self.queue.clone());
        let uids: Arc<Mutex<BTreeMap<ObjectKey, String>>> = Arc::default();
        let known = uids.clone();
        let (api_version, kind) = (served.api_version(), served.kind.clone());
        let announces = matches!(kind.as_str(), "CustomResourceDefinition" | "APIService");
        let announced = announces.then(|| self.changed.clone());
        let mut changes = informer.subscribe();
        let task = tokio::spawn(async move {
            loop {
                let change = changes.next().await;
                if let Some(changed) = &announced {
                    changed.notify_one();
                }
                let touched = match change {
                    Change::Added(object) | Change::Modified { new: object, .. } => {
                        let node = node_of(&*object, &api_version, &kind);
                        known
                            .lock()
                            .insert(ObjectKey::of(&*object), node.uid.clone());
                        graph.lock().put(node)
                    }
                    Change::Deleted(object) => {
                        known.lock().remove(&ObjectKey::of(&*object));
                        graph
                            .lock()
                            .delete(object.meta().uid.as_deref().unwrap_or_default())
                    }
                    Change::Resynced => continue,
                };
                for uid in touched {
                    queue.add(ObjectKey::new("", uid));
                }
            }
        });
        let feed = Feed {
            task: task.abort_handle(),
            uids,
        };
        (feed, Box::pin(async move { informer.synced().await }))
    }

    fn touch(&self, uids: Vec<String>) {
        for uid in uids {
            self.queue.add(ObjectKey::new("", uid));
        }
    }
}

/// Events come and go by themselves; the rest is collected if it can be.
fn is_collected(served: &Served) -> bool {
    served.preferred && served.plural != "events" && served.allows(&["list", "watch", "delete"])
}

fn node_of<K: Object>(object: &K, api_version: &str, kind: &str) -> Node {
    let meta = object.meta();
    Node {
        uid: meta.uid.clone().unwrap_or_default(),
        api_version: api_version.to_string(),
        kind: kind.to_string(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        owners: meta.owner_references.clone().unwrap_or_default(),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, kind: &str) -> Served {
        Served {
            group: group.to_string(),
            version: "v1".to_string(),
            kind: kind.to_string(),
            plural: format!("{}s", kind.to_lowercase()),
            ..Served::default()
        }
    }

    fn discovered(kinds: &[Served], stale: &[&str]) -> Discovered {
        Discovered {
            kinds: kinds.to_vec(),
            stale: stale.iter().map(|version| version.to_string()).collect(),
        }
    }

    fn monitors() -> Monitors {
        Monitors::new(Arc::default(), WorkQueue::new())
    }

    #[tokio::test]
    async fn an_object_is_looked_at_again_when_the_kind_of_its_owner_comes() {
        let monitors = monitors();
        let pod = kind("", "Pod");
        monitors.learn(discovered(std::slice::from_ref(&pod), &[]));
        assert_eq!(
            monitors.served_or_later("v1", "Pod", "one"),
            Some(pod.clone())
        );
        assert_eq!(
            monitors.served_or_later("example.com/v1", "Shop", "two"),
            None
        );
        monitors.learn(discovered(std::slice::from_ref(&pod), &[]));
        assert!(monitors.queue.is_empty());
        monitors.learn(discovered(&[pod, kind("example.com", "Shop")], &[]));
        assert_eq!(monitors.queue.next_key().await, ObjectKey::new("", "two"));
        assert!(monitors.queue.is_empty());
    }

    #[test]
    fn kinds_of_a_group_that_does_not_answer_stay_known() {
        let monitors = monitors();
        let (pod, shop) = (kind("", "Pod"), kind("example.com", "Shop"));
        monitors.learn(discovered(&[pod.clone(), shop.clone()], &[]));
        monitors.learn(discovered(std::slice::from_ref(&pod), &["example.com/v1"]));
        assert_eq!(monitors.served("example.com/v1", "Shop"), Some(shop));
        monitors.learn(discovered(&[pod], &[]));
        assert_eq!(monitors.served("example.com/v1", "Shop"), None);
    }
}
