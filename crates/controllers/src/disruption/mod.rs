//! PodDisruptionBudget: keeps the number of allowed disruptions current, and clears announcements
//! of disruptions that did not happen. Evictions themselves are the API server's.

mod plan;
mod scale;
mod stale;

use std::collections::BTreeSet;
use std::sync::Arc;

use client::controller::Reconciled;
use client::{Informer, ObjectKey, WorkQueue, events, retry};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::lookup::{Labelled, Selecting, Selects, namespace_of};
use crate::watching::{self, Reconciler, enqueue, own_key};
use crate::{Config, Error};
use plan::Observed;
use scale::Scales;

const CONTROLLER: &str = "disruption-controller";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let budgets = config.informers.of::<PodDisruptionBudget>();
    let pods = config.informers.of::<Pod>();
    let scales = Scales::new(config.client.clone(), &config.informers);
    let stale = stale::run(config.clone(), shutdown.clone());
    let queue = WorkQueue::new();
    let feeds = futures::future::join3(
        enqueue(&budgets, &queue, own_key),
        enqueue(&pods, &queue, {
            let budgets = Selecting::of(&budgets);
            move |pod: &Pod| {
                keys(&budgets.of_labels(namespace_of(&pod.metadata), pod.metadata.labels.as_ref()))
            }
        }),
        // Another wanted number changes every share of it.
        futures::future::join4(
            enqueue(&scales.deployments, &queue, of_pods_of(&budgets, &pods)),
            enqueue(&scales.replica_sets, &queue, of_pods_of(&budgets, &pods)),
            enqueue(&scales.stateful_sets, &queue, of_pods_of(&budgets, &pods)),
            enqueue(
                &scales.replication_controllers,
                &queue,
                of_pods_of(&budgets, &pods),
            ),
        ),
    );
    let controller = Controller {
        events: events::Recorder::new(
            config.client.clone(),
            config.environment.clone(),
            "controllermanager",
            None,
        ),
        config,
        budgets,
        labelled_pods: Labelled::of(&pods),
        pods,
        scales,
    };
    let running = watching::run(CONTROLLER, 2, queue, feeds, controller, shutdown);
    futures::future::join(running, stale).await;
}

struct Controller {
    config: Config,
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<Pod>,
    labelled_pods: Labelled<Pod>,
    scales: Scales,
    events: events::Recorder,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.budgets.synced().await;
        self.pods.synced().await;
        self.scales.synced().await;
        let Some(budget) = self.budgets.get(&key.namespace, &key.name) else {
            return Ok(Reconciled::Done);
        };
        // No selector at all selects no pod, an empty one all of the namespace.
        let pods = match budget.selects() {
            Some(selector) => self.labelled_pods.selected_by(&key.namespace, &selector),
            None => Vec::new(),
        };
        if pods.is_empty() {
            self.events
                .normal(&*budget, "NoPods", "No matching pods found");
        }
        let mut scale = 0;
        if plan::needs_scale(&budget) {
            match self.scales.of_pods(&pods).await {
                Ok((sum, unmanaged)) => {
                    scale = sum;
                    if !unmanaged.is_empty() {
                        self.warn_of_unmanaged(&budget);
                    }
                }
                Err(error) => {
                    let message =
                        format!("Failed to calculate the number of expected pods: {error}");
                    let reason = "CalculateExpectedPodCountFailed";
                    self.events.warning(&*budget, reason, message);
                    let now = self.config.environment.now();
                    let status =
                        plan::failure(&budget, &environment::chain(&error).to_string(), now);
                    self.write_status(&budget, status).await?;
                    return Ok(Reconciled::Done);
                }
            }
        }
        let plan = plan::plan(&Observed {
            budget: &budget,
            pods: &pods,
            scale,
            now: self.config.environment.now(),
        });
        for pod in &plan.not_deleted {
            let message = format!(
                "Pod was expected by PDB {}/{} to be deleted but it wasn't",
                key.namespace, key.namespace
            );
            self.events.warning(&**pod, "NotDeleted", message);
        }
        self.write_status(&budget, plan.status).await?;
        Ok(plan.retry.map_or(Reconciled::Done, Reconciled::After))
    }
}

impl Controller {
    fn warn_of_unmanaged(&self, budget: &PodDisruptionBudget) {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let selector = selector.and_then(|selector| serde_json::to_string(selector).ok());
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. \
             As a result, the status of the PDB cannot be calculated correctly, which may result \
             in undefined behavior. To account for these pods please set \".spec.minAvailable\" \
             field of the PDB to an integer value.",
            selector.unwrap_or_default()
        );
        self.events.warning(budget, "UnmanagedPods", message);
    }

    async fn write_status(
        &self,
        budget: &PodDisruptionBudget,
        status: PodDisruptionBudgetStatus,
    ) -> Result<(), Error> {
        if budget.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.config.client.clone(), namespace);
        let mut updated = budget.clone();
        updated.status = Some(status);
        let name = budget.metadata.name.as_deref().unwrap_or_default();
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

fn keys(budgets: &[Arc<PodDisruptionBudget>]) -> Vec<ObjectKey> {
    budgets
        .iter()
        .map(|budget| ObjectKey::of(&**budget))
        .collect()
}

/// The budgets of the pods of a workload whose wanted number may have changed. A workload that has
/// sets of pods below it (a Deployment) is found through the pods of those sets, since both carry
/// the labels that its selector demands.
fn of_pods_of<K: Selects>(
    budgets: &Informer<PodDisruptionBudget>,
    pods: &Informer<Pod>,
) -> impl Fn(&K) -> Vec<ObjectKey> + Send + 'static {
    let (budgets, pods) = (Selecting::of(budgets), Labelled::of(pods));
    move |workload| {
        let namespace = namespace_of(workload.meta());
        let Some(selector) = workload.selects() else {
            return Vec::new();
        };
        let mut found = BTreeSet::new();
        for pod in pods.selected_by(namespace, &selector) {
            let budgets = budgets.of_labels(namespace, pod.metadata.labels.as_ref());
            let scaled = budgets.iter().filter(|budget| plan::needs_scale(budget));
            found.extend(scaled.map(|budget| ObjectKey::of(&**budget)));
        }
        found.into_iter().collect()
    }
}
