//! Node lifecycle: a node whose Lease is no longer renewed becomes NotReady/Unknown, is tainted,
//! and its pods stop being ready; when it comes back its kubelet says so and the taint goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::controller::Outcome;
use client::{Informer, ObjectKey, WorkQueue, retry};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error};

/// v1.36's default node-monitor-grace-period.
const GRACE: Duration = Duration::from_secs(50);
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let nodes = config.informers.of::<Node>();
    let leases = config.informers.within::<Lease>(client::Scope {
        namespace: Some("kube-node-lease".to_string()),
        ..client::Scope::default()
    });
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join(
        enqueue(&nodes, &queue, own_key),
        enqueue(&leases, &queue, |lease: &Lease| {
            vec![ObjectKey::new(
                "",
                lease.metadata.name.clone().unwrap_or_default(),
            )]
        }),
    );
    let controller = Arc::new(Controller {
        config,
        nodes,
        leases,
        pods,
        heartbeats: Mutex::default(),
    });
    let reconcile = move |key: ObjectKey| {
        let controller = controller.clone();
        async move { controller.reconcile(&key.name).await }
    };
    watching::run("node-lifecycle", 2, queue, feeds, reconcile, shutdown).await;
}

struct Controller {
    config: Config,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    /// The last sign of life of each node and when *we* saw it: clocks of nodes are not compared
    /// with ours.
    heartbeats: Mutex<BTreeMap<String, (String, Instant)>>,
}

impl Controller {
    async fn reconcile(&self, name: &str) -> Result<Outcome, Error> {
        self.nodes.synced().await;
        self.leases.synced().await;
        self.pods.synced().await;
        let Some(node) = self.nodes.get("", name) else {
            self.heartbeats.lock().remove(name);
            return Ok(Outcome::Done);
        };
        let age = self.age_of_heartbeat(&node, name);
        if age >= GRACE && ready_status(&node) != "Unknown" {
            self.mark_unknown(&node, name).await?;
            self.mark_pods_not_ready(name).await?;
        }
        self.update_taints(&node, name).await?;
        Ok(Outcome::After(
            GRACE.saturating_sub(age).max(Duration::from_secs(5)),
        ))
    }

    fn age_of_heartbeat(&self, node: &Node, name: &str) -> Duration {
        let lease = self.leases.get("kube-node-lease", name);
        let renewed = lease
            .as_ref()
            .and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref())
            .map(|time| time.0.to_string());
        let reported = ready_condition(node)
            .and_then(|condition| condition.last_heartbeat_time.as_ref())
            .map(|time| time.0.to_string());
        let sign = format!("{renewed:?} {reported:?}");
        let mut heartbeats = self.heartbeats.lock();
        let entry = heartbeats
            .entry(name.to_string())
            .or_insert_with(|| (sign.clone(), Instant::now()));
        if entry.0 != sign {
            *entry = (sign, Instant::now());
        }
        entry.1.elapsed()
    }

    async fn mark_unknown(&self, node: &Node, name: &str) -> Result<(), Error> {
        let now = self.config.environment.now();
        let mut updated = node.clone();
        let conditions = updated
            .status
            .get_or_insert_default()
            .conditions
            .get_or_insert_default();
        if !conditions
            .iter()
            .any(|condition| condition.type_ == "Ready")
        {
            conditions.push(NodeCondition {
                type_: "Ready".to_string(),
                ..NodeCondition::default()
            });
        }
        for condition in conditions.iter_mut() {
            if condition.status != "Unknown" {
                condition.status = "Unknown".to_string();
                condition.reason = Some("NodeStatusUnknown".to_string());
                condition.message = Some("Kubelet stopped posting node status.".to_string());
                condition.last_transition_time = Some(Time(now));
            }
        }
        let nodes: Api<Node> = Api::all(self.config.client.clone());
        nodes
            .replace_status(name, &PostParams::default(), &updated)
            .await?;
        Ok(())
    }

    /// Pods of a lost node leave their endpoints.
    async fn mark_pods_not_ready(&self, node: &str) -> Result<(), Error> {
        for pod in self.pods.list() {
            let on_node = pod
                .spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.as_deref() == Some(node));
            if !on_node || !crate::meta::is_ready(&pod) {
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
                Err(error) if !retry::is_not_found(&error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    async fn update_taints(&self, node: &Node, name: &str) -> Result<(), Error> {
        let current = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.clone())
            .unwrap_or_default();
        let wanted = wanted_taints(&current, ready_status(node));
        if wanted == current {
            return Ok(());
        }
        let patch = serde_json::json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": wanted},
        });
        let nodes: Api<Node> = Api::all(self.config.client.clone());
        nodes
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }
}

/// Foreign taints stay; ours follow the Ready condition.
fn wanted_taints(current: &[Taint], ready: &str) -> Vec<Taint> {
    let ours = match ready {
        "True" => None,
        "Unknown" => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    let mut taints: Vec<Taint> = current
        .iter()
        .filter(|taint| {
            ![NOT_READY, UNREACHABLE].contains(&taint.key.as_str())
                || Some(taint.key.as_str()) == ours
        })
        .cloned()
        .collect();
    for effect in ["NoSchedule", "NoExecute"] {
        if let Some(key) = ours
            && !taints
                .iter()
                .any(|taint| taint.key == key && taint.effect == effect)
        {
            taints.push(Taint {
                key: key.to_string(),
                effect: effect.to_string(),
                ..Taint::default()
            });
        }
    }
    taints
}

fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    node.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == "Ready")
}

/// `True`, `False` or `Unknown`; a node that has not said anything yet counts as not ready.
fn ready_status(node: &Node) -> &str {
    ready_condition(node).map_or("False", |condition| condition.status.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_follow_readiness_and_foreign_ones_stay() {
        let foreign = Taint {
            key: "dedicated".into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        };
        let keys = |taints: &[Taint]| -> Vec<String> {
            taints
                .iter()
                .map(|t| format!("{}:{}", t.key, t.effect))
                .collect()
        };
        let lost = wanted_taints(std::slice::from_ref(&foreign), "Unknown");
        assert_eq!(
            keys(&lost),
            [
                "dedicated:NoSchedule",
                "node.kubernetes.io/unreachable:NoSchedule",
                "node.kubernetes.io/unreachable:NoExecute"
            ]
        );
        assert_eq!(
            keys(&wanted_taints(&lost, "True")),
            ["dedicated:NoSchedule"]
        );
    }
}
