//! Node lifecycle: a node whose Lease is no longer renewed becomes Unknown, is tainted, and its
//! pods stop being ready; when it comes back its kubelet says so and the taints go. Who must leave
//! a tainted node is `taint_eviction`'s to decide.

mod plan;
mod zones;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::controller::Reconciled;
use client::events::Recorder;
use client::{Change, Index, Informer, ObjectKey, WorkQueue, retry};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, Reconciler, enqueue};
use crate::written::CATCH_UP;
use crate::{Config, Error, lookup};
use zones::{Census, Limiter};

/// v1.36's default node-monitor-grace-period.
const GRACE: Duration = Duration::from_secs(50);
/// For a node that has never reported.
const STARTUP_GRACE: Duration = Duration::from_secs(60);

pub async fn run(config: Config, shutdown: CancellationToken) {
    let nodes = config.informers.of::<Node>();
    let leases = config.informers.within::<Lease>(client::Scope {
        namespace: Some("kube-node-lease".to_string()),
        ..client::Scope::default()
    });
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let census: Arc<Mutex<Census>> = Arc::default();
    let feeds = futures::future::join(
        follow_nodes(nodes.clone(), census.clone(), queue.clone()),
        enqueue(&leases, &queue, |lease: &Lease| {
            vec![ObjectKey::new(
                "",
                lease.metadata.name.clone().unwrap_or_default(),
            )]
        }),
    );
    let controller = Controller {
        events: config.events("node-controller"),
        config,
        nodes,
        leases,
        pods_on: lookup::by_node(&pods),
        pods,
        census,
        known: Mutex::default(),
        limiter: Mutex::default(),
    };
    watching::run("node-lifecycle", 2, queue, feeds, controller, shutdown).await;
}

/// Keeps the census in step with the nodes, and enqueues each node after it was counted.
async fn follow_nodes(
    nodes: Informer<Node>,
    census: Arc<Mutex<Census>>,
    queue: WorkQueue<ObjectKey>,
) {
    let mut changes = nodes.subscribe();
    loop {
        let node = match changes.next().await {
            Change::Added(node) | Change::Modified { new: node, .. } => {
                census.lock().set(&node);
                node
            }
            Change::Deleted(node) => {
                let name = node.metadata.name.as_deref().unwrap_or_default();
                census.lock().remove(name);
                node
            }
            Change::Resynced => {
                census.lock().complete();
                continue;
            }
        };
        queue.add(ObjectKey::of(&*node));
    }
}

/// A node, its last sign of life and when *we* saw it: clocks of nodes are not compared with ours.
struct Known {
    node: Arc<Node>,
    sign: String,
    seen: Instant,
}

struct Controller {
    config: Config,
    events: Recorder,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    pods_on: Index<Pod>,
    /// Follows the cache of nodes by their changes.
    census: Arc<Mutex<Census>>,
    known: Mutex<BTreeMap<String, Known>>,
    limiter: Mutex<Limiter>,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        let name = key.name.as_str();
        self.nodes.synced().await;
        self.leases.synced().await;
        self.pods.synced().await;
        if !self.census.lock().is_complete() {
            return Ok(Reconciled::After(CATCH_UP));
        }
        let Some(node) = self.nodes.get("", name) else {
            let known = self.known.lock().remove(name);
            if let Some(known) = known {
                let message = format!("Removing Node {name} from Controller");
                self.record_event(&known.node, "RemovingNode", &message);
            }
            return Ok(Reconciled::Done);
        };
        let age = self.age_of_heartbeat(&node, name);
        let grace = match plan::condition(&node, "Ready") {
            Some(_) => GRACE,
            None => STARTUP_GRACE,
        };
        let mut node = (*node).clone();
        if age >= grace && plan::ready_status(&node) != Some("Unknown") {
            node = self.mark_unknown(&node, name).await?;
        }
        self.mark_pods_not_ready(&node).await?;
        let wait = self.update_taints(&node, name).await?;
        let next = grace.saturating_sub(age).max(Duration::from_secs(5));
        Ok(Reconciled::After(wait.map_or(next, |wait| wait.min(next))))
    }
}

impl Controller {
    fn record_event(&self, node: &Node, reason: &str, message: &str) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let message = format!("Node {name} event: {message}");
        self.events.normal(node, reason, message);
    }

    fn age_of_heartbeat(&self, node: &Arc<Node>, name: &str) -> Duration {
        let lease = self.leases.get("kube-node-lease", name);
        let renewed = lease
            .as_ref()
            .and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref())
            .map(|time| time.0.to_string());
        let reported = plan::condition(node, "Ready")
            .and_then(|condition| condition.last_heartbeat_time.as_ref())
            .map(|time| time.0.to_string());
        let sign = format!("{renewed:?} {reported:?}");
        let mut known = self.known.lock();
        if !known.contains_key(name) {
            let message = format!("Registered Node {name} in Controller");
            self.record_event(node, "RegisteredNode", &message);
        }
        let entry = known.entry(name.to_string()).or_insert_with(|| Known {
            node: node.clone(),
            sign: sign.clone(),
            seen: Instant::now(),
        });
        entry.node = node.clone();
        if entry.sign != sign {
            entry.sign = sign;
            entry.seen = Instant::now();
        }
        entry.seen.elapsed()
    }

    async fn mark_unknown(&self, node: &Node, name: &str) -> Result<Node, Error> {
        let now = Time(self.config.environment.now());
        let mut updated = node.clone();
        let conditions = plan::unknown_conditions(node, &now);
        updated.status.get_or_insert_default().conditions = Some(conditions);
        let nodes: Api<Node> = Api::all(self.config.client.clone());
        let written = nodes
            .replace_status(name, &PostParams::default(), &updated)
            .await?;
        if plan::ready_status(node) == Some("True") {
            let message = format!("Node {name} status is now: NodeNotReady");
            self.events.normal(node, "NodeNotReady", message);
        }
        Ok(written)
    }

    /// Pods of a lost node leave their endpoints. Goes by what is, not by what was just done: who
    /// leads next goes on where another one stopped.
    async fn mark_pods_not_ready(&self, node: &Node) -> Result<(), Error> {
        if plan::ready_status(node) != Some("Unknown") {
            return Ok(());
        }
        for pod in self
            .pods_on
            .get(node.metadata.name.as_deref().unwrap_or_default())
        {
            if !plan::is_unspoken_for(node, &pod) {
                continue;
            }
            let now = self.config.environment.now().to_string();
            let patch = serde_json::json!({"status": {"conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": now},
            ]}});
            let pods: Api<Pod> = Api::namespaced(
                self.config.client.clone(),
                pod.metadata.namespace.as_deref().unwrap_or_default(),
            );
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            match pods
                .patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
                .await
            {
                Ok(_) => self
                    .events
                    .warning(&*pod, "NodeNotReady", "Node is not ready"),
                Err(error) if retry::is_not_found(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes the node's taints; gives how long its turn to be emptied is away.
    async fn update_taints(&self, node: &Node, name: &str) -> Result<Option<Duration>, Error> {
        let wants_to_expel = plan::expelling(plan::ready_status(node)).is_some();
        let zone = zones::zone_of(node);
        let (everything_is_lost, pace) = {
            let census = self.census.lock();
            (census.is_everything_lost(), census.pace(&zone))
        };
        let mut wait = None;
        // When no node is ready in any zone, it is us who are cut off: nothing is evicted.
        let mut expel = plan::is_expelling(node) && !everything_is_lost;
        if wants_to_expel && !expel {
            match self.limiter.lock().take_turn(&zone, pace, Instant::now()) {
                Ok(()) => expel = true,
                Err(left) => wait = Some(left),
            }
        }
        let now = Time(self.config.environment.now());
        let wanted = plan::wanted_taints(node, expel, &now);
        if wanted == plan::taints(node) {
            return Ok(wait);
        }
        let patch = serde_json::json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": wanted},
        });
        let nodes: Api<Node> = Api::all(self.config.client.clone());
        nodes
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(wait)
    }
}
