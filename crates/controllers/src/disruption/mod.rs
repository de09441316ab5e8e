//! PodDisruptionBudget: keeps the number of allowed disruptions current, and clears announcements
//! of disruptions that did not happen. Evictions themselves are the API server's.

mod plan;
mod scale;
mod stale;

use std::sync::Arc;

use client::controller::Outcome;
use client::{Informer, Object, ObjectKey, WorkQueue, events, retry};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error, meta};
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
            let budgets = budgets.clone();
            move |pod: &Pod| budgets_of(&budgets, pod)
        }),
        // Another wanted number changes every share of it.
        futures::future::join4(
            enqueue(
                &scales.deployments,
                &queue,
                in_namespace::<Deployment>(&budgets),
            ),
            enqueue(&scales.replica_sets, &queue, in_namespace(&budgets)),
            enqueue(&scales.stateful_sets, &queue, in_namespace(&budgets)),
            enqueue(
                &scales.replication_controllers,
                &queue,
                in_namespace(&budgets),
            ),
        ),
    );
    let controller = Arc::new(Controller {
        events: events::Recorder::new(
            config.client.clone(),
            config.environment.clone(),
            "controllermanager",
            None,
        ),
        config,
        budgets,
        pods,
        scales,
    });
    let reconcile = move |key: ObjectKey| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    };
    let running = watching::run(CONTROLLER, 2, queue, feeds, reconcile, shutdown);
    futures::future::join(running, stale).await;
}

struct Controller {
    config: Config,
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<Pod>,
    scales: Scales,
    events: events::Recorder,
}

impl Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Outcome, Error> {
        self.budgets.synced().await;
        self.pods.synced().await;
        self.scales.synced().await;
        let Some(budget) = self.budgets.get(&key.namespace, &key.name) else {
            return Ok(Outcome::Done);
        };
        let mut pods = self.pods.list_in(&key.namespace);
        pods.retain(|pod| concerns(&budget, pod));
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
                    let status = plan::failure(&budget, &error.to_string(), now);
                    self.write_status(&budget, status).await?;
                    return Ok(Outcome::Done);
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
        Ok(plan.retry.map_or(Outcome::Done, Outcome::After))
    }

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

/// An empty selector selects all pods of the namespace, none at all selects none.
fn concerns(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let none = std::collections::BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
    selector.is_some_and(|selector| meta::selects_or_all(selector, labels))
}

fn budgets_of(budgets: &Informer<PodDisruptionBudget>, pod: &Pod) -> Vec<ObjectKey> {
    budgets
        .list_in(pod.metadata.namespace.as_deref().unwrap_or_default())
        .into_iter()
        .filter(|budget| concerns(budget, pod))
        .map(|budget| ObjectKey::of(&*budget))
        .collect()
}

fn in_namespace<K: Object>(
    budgets: &Informer<PodDisruptionBudget>,
) -> impl Fn(&K) -> Vec<ObjectKey> + Send + 'static {
    let budgets = budgets.clone();
    move |object| {
        budgets
            .list_in(object.meta().namespace.as_deref().unwrap_or_default())
            .into_iter()
            .filter(|budget| plan::needs_scale(budget))
            .map(|budget| ObjectKey::of(&*budget))
            .collect()
    }
}
