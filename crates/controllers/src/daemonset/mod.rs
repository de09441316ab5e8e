//! DaemonSet: one pod on every node that fits.

mod fit;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::controller::Reconciled;
use client::{Change, Index, Informer, ObjectKey, Terms, WorkQueue, retry};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::lookup::{Controlled, Labelled, Selecting};
use crate::owned_pods::failures::FailuresByPlace;
use crate::owned_pods::{PodControl, claim, expectations, from_template};
use crate::watching::{self, Reconciler, enqueue, own_key, owner_key};
use crate::{Config, Error, history, meta};
use plan::{Ended, Observed, Plan};

const CONTROLLER: &str = "daemon-set-controller";
const HASH_LABEL: &str = "controller-revision-hash";
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
const TEMPLATE_GENERATION_LABEL: &str = "pod-template-generation";
const LONGEST_BACKOFF: Duration = Duration::from_secs(15 * 60);

pub async fn run(config: Config, shutdown: CancellationToken) {
    let sets = config.informers.of::<DaemonSet>();
    let pods = config.informers.of::<Pod>();
    let nodes = config.informers.of::<Node>();
    let revisions = config.informers.of::<ControllerRevision>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join5(
        enqueue(&sets, &queue, own_key),
        enqueue(&pods, &queue, owner_key("DaemonSet")),
        enqueue(&pods, &queue, {
            let sets = Selecting::of(&sets);
            move |pod: &Pod| watching::possible_owners(&sets, pod)
        }),
        enqueue(&revisions, &queue, owner_key("DaemonSet")),
        enqueue_on_node_changes(
            nodes.clone(),
            sets.index("node-selector", Terms::Rarest(node_labels)),
            queue.clone(),
        ),
    );
    let controller = Controller {
        control: PodControl::new(&config, CONTROLLER),
        failures: FailuresByPlace::new(LONGEST_BACKOFF),
        config,
        sets,
        labelled_nodes: Labelled::of(&nodes),
        owned_pods: Controlled::of(&pods),
        owned_revisions: Controlled::of(&revisions),
        pods,
        nodes,
        revisions,
    };
    watching::run("daemonset", 4, queue, feeds, controller, shutdown).await;
}

struct Controller {
    config: Config,
    sets: Informer<DaemonSet>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    revisions: Informer<ControllerRevision>,
    labelled_nodes: Labelled<Node>,
    owned_pods: Controlled<Pod>,
    owned_revisions: Controlled<ControllerRevision>,
    control: PodControl,
    /// By set and node.
    failures: FailuresByPlace,
}

impl Reconciler for Controller {
    /// 1. Make sure that the newest revision is that of the current template.
    /// 2. Unless the cache is behind what we did last time, carry out what is planned.
    /// 3. Write the status when it changed, and forget revisions beyond the limit.
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.sets.synced().await;
        self.pods.synced().await;
        self.nodes.synced().await;
        self.revisions.synced().await;
        let Some(set) = self.sets.get(&key.namespace, &key.name) else {
            self.control.expectations.forget(key);
            self.failures.forget(key);
            return Ok(Reconciled::Done);
        };
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Reconciled::Done);
        }
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let is_current = self.control.is_current(key, uid, &self.pods).await?;
        let selector = selector(&set);
        let pods = self.owned_pods.claimable(&set.metadata, &selector);
        let pods = self.control.claim(&*set, &selector, pods, |_| true).await?;
        let client = &self.config.client;
        let revisions = self.owned_revisions.claimable(&set.metadata, &selector);
        let mut revisions = claim::claim(client, &*set, &selector, revisions, |_| true).await?;
        history::sort(&mut revisions);

        let spec = set.spec.clone().unwrap_or_default();
        let status = set.status.clone().unwrap_or_default();
        let mut collisions = status.collision_count.unwrap_or(0);
        let snapshot = history::Snapshot::of(&spec.template);
        let step = history::step(&revisions, &snapshot);
        let current =
            history::ensure_revision(client, &*set, HASH_LABEL, &snapshot, step, &mut collisions)
                .await?;
        let hash = meta::label(&current.metadata, HASH_LABEL).unwrap_or_default();
        let nodes = self.nodes_of(&set, &pods);
        let now = self.config.environment.now();
        let observed = Observed {
            set: &set,
            nodes: &nodes,
            pods: &pods,
            hash,
            now,
        };
        let (mut failure, mut retry) = (None, None);
        if is_current {
            let plan = plan::plan(&observed, &|node| {
                self.failures.remaining(key, node, set.metadata.generation)
            });
            retry = plan.retry;
            failure = self.carry_out(key, &set, hash, plan).await.err();
        }
        self.update_status(&set, plan::status(&observed, collisions))
            .await?;
        if let Some(error) = failure {
            return Err(error);
        }
        let is_live = |revision: &ControllerRevision| {
            let hash = meta::label(&revision.metadata, HASH_LABEL);
            revision.metadata.name == current.metadata.name
                || pods
                    .iter()
                    .any(|pod| meta::label(&pod.metadata, HASH_LABEL) == hash)
        };
        let limit = spec.revision_history_limit.unwrap_or(10);
        history::forget(client, history::surplus(&revisions, is_live, limit)).await?;
        let waiting = (!is_current).then_some(expectations::LONGEST_WAIT);
        let min_ready_seconds = spec.min_ready_seconds.unwrap_or(0);
        let ready = pods.iter().map(|pod| &**pod);
        let available = meta::next_availability(ready, min_ready_seconds, now);
        let next = [retry, waiting, available].into_iter().flatten().min();
        Ok(next.map_or(Reconciled::Done, Reconciled::After))
    }
}

impl Controller {
    /// The nodes that the set may be meant for, and those that its pods are on or on their way to.
    /// Nodes without the labels that it asks for are looked at only for pods that are there.
    fn nodes_of(&self, set: &DaemonSet, pods: &[Arc<Pod>]) -> Vec<Arc<Node>> {
        let wanted = node_selector(set);
        if wanted.is_empty() {
            return self.nodes.list();
        }
        let nodes = self.labelled_nodes.having("", &wanted);
        let mut by_name: BTreeMap<String, Arc<Node>> = nodes
            .into_iter()
            .map(|node| (node.metadata.name.clone().unwrap_or_default(), node))
            .collect();
        for name in pods.iter().filter_map(|pod| fit::target(pod)) {
            if !by_name.contains_key(name)
                && let Some(node) = self.nodes.get("", name)
            {
                by_name.insert(name.to_owned(), node);
            }
        }
        by_name.into_values().collect()
    }

    async fn carry_out(
        &self,
        key: &ObjectKey,
        set: &DaemonSet,
        hash: &str,
        plan: Plan,
    ) -> Result<(), Error> {
        for (pod, ended) in &plan.ended {
            let node = fit::target(pod).unwrap_or_default();
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let pod = format!("{}/{name}", key.namespace);
            let events = &self.control.events;
            match ended {
                Ended::Failed => {
                    self.failures.replaced(key, node, set.metadata.generation);
                    let message = format!(
                        "Found failed daemon pod {pod} on node {node}, will try to kill it"
                    );
                    events.warning(set, "FailedDaemonPod", message);
                }
                Ended::Succeeded => {
                    let message = format!(
                        "Found succeeded daemon pod {pod} on node {node}, will try to delete it"
                    );
                    events.normal(set, "SucceededDaemonPod", message);
                }
            }
        }
        let create = plan.create.iter().map(|node| new_pod(set, hash, node));
        let (_, create) = self.control.create_all(key, set, create.collect()).await;
        let (_, delete) = self.control.delete_all(key, set, &plan.delete).await;
        create.or(delete).map_or(Ok(()), Err)
    }

    async fn update_status(
        &self,
        set: &DaemonSet,
        status: k8s_openapi::api::apps::v1::DaemonSetStatus,
    ) -> Result<(), Error> {
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut updated = set.clone();
        updated.status = Some(status);
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<DaemonSet> = Api::namespaced(self.config.client.clone(), namespace);
        let name = set.metadata.name.as_deref().unwrap_or_default();
        match api
            .replace_status(name, &PostParams::default(), &updated)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if retry::is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn new_pod(set: &DaemonSet, hash: &str, node: &str) -> Pod {
    let template = set.spec.clone().unwrap_or_default().template;
    let mut pod = from_template(set, &template);
    let spec = pod.spec.get_or_insert_default();
    fit::add_tolerations(spec);
    fit::pin(spec, node);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), hash.to_owned());
    if let Some(generation) = meta::annotation(&set.metadata, TEMPLATE_GENERATION) {
        labels.insert(TEMPLATE_GENERATION_LABEL.to_owned(), generation.to_owned());
    }
    pod
}

fn selector(set: &DaemonSet) -> LabelSelector {
    let spec = set.spec.as_ref();
    spec.map(|spec| spec.selector.clone()).unwrap_or_default()
}

/// The labels that a set's template wants nodes to have.
fn node_selector(set: &DaemonSet) -> BTreeMap<String, String> {
    let template = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let selector = template.and_then(|template| template.node_selector.clone());
    selector.unwrap_or_default()
}

/// A set is found by any one of the labels that it wants nodes to have, or always if it wants none.
fn node_labels(set: &DaemonSet) -> Vec<Vec<String>> {
    let selector = node_selector(set);
    if selector.is_empty() {
        return vec![vec![String::new()]];
    }
    let labels = selector.iter();
    labels
        .map(|(key, value)| vec![format!("{key}={value}")])
        .collect()
}

/// The sets that may be meant for a node look again when it comes, goes, or changes in what pods
/// are placed by. Not on heartbeats.
async fn enqueue_on_node_changes(
    nodes: Informer<Node>,
    sets: Index<DaemonSet>,
    queue: WorkQueue<ObjectKey>,
) {
    let mut changes = nodes.subscribe();
    loop {
        let touched = match changes.next().await {
            Change::Added(node) | Change::Deleted(node) => vec![node],
            Change::Modified { old, new } => {
                let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
                if old.metadata.labels == new.metadata.labels && taints(&old) == taints(&new) {
                    continue;
                }
                vec![old, new]
            }
            Change::Resynced => continue,
        };
        let mut terms = vec![String::new()];
        for node in &touched {
            let labels = node.metadata.labels.iter().flatten();
            terms.extend(labels.map(|(key, value)| format!("{key}={value}")));
        }
        for set in sets.get_any(&terms) {
            queue.add(ObjectKey::of(&*set));
        }
    }
}
