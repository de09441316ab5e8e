//! Deployment: rolls pods from one template to the next through ReplicaSets.

mod annotations;
mod observed;
mod plan;
mod rolling;
mod scaling;
mod status;
mod template;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use client::controller::Reconciled;
use client::{Informer, ObjectKey, WorkQueue, events, retry};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::lookup::{Controlled, Selecting};
use crate::owned_pods::claim;
use crate::watching::{self, Reconciler, enqueue, own_key, owner_key};
use crate::written::Written;
use crate::{Config, Error, meta};
use annotations::REVISION;
use observed::{Action, Observed};

pub const HASH_LABEL: &str = "pod-template-hash";

const CONTROLLER: &str = "deployment-controller";
/// How soon a cache that lacks our own writes is looked at again, if no event comes before.
const CATCH_UP: Duration = Duration::from_secs(1);
/// The longest name an object can have.
const LONGEST_NAME: usize = 253;

pub async fn run(config: Config, shutdown: CancellationToken) {
    let deployments = config.informers.of::<Deployment>();
    let sets = config.informers.of::<ReplicaSet>();
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let orphans = enqueue(&sets, &queue, {
        let deployments = Selecting::of(&deployments);
        move |set: &ReplicaSet| watching::possible_owners(&deployments, set)
    });
    let feeds = futures::future::join4(
        orphans,
        enqueue(&deployments, &queue, own_key),
        enqueue(&sets, &queue, owner_key("Deployment")),
        enqueue(&pods, &queue, {
            let sets = sets.clone();
            move |pod: &Pod| deployment_of_ended_pod(&sets, pod)
        }),
    );
    let controller = Controller {
        events: events::Recorder::new(
            config.client.clone(),
            config.environment.clone(),
            CONTROLLER,
            None,
        ),
        config,
        deployments,
        owned_sets: Controlled::of(&sets),
        owned_pods: Controlled::of(&pods),
        sets,
        pods,
        written: Written::default(),
        doubtful: Mutex::default(),
    };
    watching::run("deployment", 4, queue, feeds, controller, shutdown).await;
}

struct Controller {
    config: Config,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    owned_sets: Controlled<ReplicaSet>,
    owned_pods: Controlled<Pod>,
    events: events::Recorder,
    /// Sets that we wrote: the sum of their sizes must not be planned on an older one.
    written: Written,
    /// Deployments for which a write of a set was sent and no answer came.
    doubtful: Mutex<BTreeSet<ObjectKey>>,
}

impl Reconciler for Controller {
    /// 1. Look at the Deployment, the sets it controls and how many of their pods still exist.
    /// 2. Carry out the planned actions; each of them changes a set, whose event brings us back.
    /// 3. Write the status when it changed.
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.deployments.synced().await;
        self.sets.synced().await;
        self.pods.synced().await;
        let Some(deployment) = self.deployments.get(&key.namespace, &key.name) else {
            self.written.forget(key);
            self.doubtful.lock().remove(key);
            return Ok(Reconciled::Done);
        };
        if !self.is_current(key, &deployment).await? {
            return Ok(Reconciled::After(CATCH_UP));
        }
        let selector = selector(&deployment);
        let sets = self.owned_sets.claimable(&deployment.metadata, &selector);
        let client = &self.config.client;
        let sets = claim::claim(client, &*deployment, &selector, sets, |_| true).await?;
        let old_pods_exist = self.pods_exist_outside_new_set(&deployment, &sets);
        let observed = Observed {
            deployment: &deployment,
            sets: &sets,
            old_pods_exist,
        };
        if deployment.metadata.deletion_timestamp.is_none() {
            for action in plan::plan(&observed) {
                let done = self.carry_out(key, &deployment, &sets, action).await;
                if let Err(Error::Api(error)) = &done
                    && retry::is_outcome_unknown(error)
                {
                    self.doubtful.lock().insert(key.clone());
                }
                done?;
            }
        }
        let now = self.config.environment.now();
        let status = status::status(&observed, now);
        if deployment.status.as_ref() != Some(&status) {
            let mut updated = (*deployment).clone();
            updated.status = Some(status.clone());
            self.api::<Deployment>(&key.namespace)
                .replace_status(&key.name, &PostParams::default(), &updated)
                .await?;
        }
        Ok(match status::next_look(&observed, &status, now) {
            Some(delay) => Reconciled::After(delay),
            None => Reconciled::Done,
        })
    }
}

impl Controller {
    /// Whether our cache of sets shows all that we wrote. Where an answer was lost, or the cache
    /// stays behind, the server is asked what there is to be shown.
    async fn is_current(&self, key: &ObjectKey, deployment: &Deployment) -> Result<bool, Error> {
        if self.doubtful.lock().contains(key) || self.written.is_overdue(key) {
            let all = ListParams::default();
            let sets = self.api::<ReplicaSet>(&key.namespace).list(&all).await?;
            let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
            self.written.forget(key);
            for set in &sets.items {
                if semantics::owner::is_controlled_by(&set.metadata, uid) {
                    self.written.note(key, set);
                }
            }
            self.doubtful.lock().remove(key);
        }
        Ok(self.written.is_shown(key, &self.sets))
    }

    async fn carry_out(
        &self,
        key: &ObjectKey,
        deployment: &Deployment,
        observed: &[Arc<ReplicaSet>],
        action: Action,
    ) -> Result<(), Error> {
        let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
        let sets = self.api::<ReplicaSet>(namespace);
        match action {
            Action::Create { replicas, revision } => {
                self.create_set(key, deployment, replicas, revision).await
            }
            Action::Scale { set, from, to } => {
                // A size that was planned on an older copy must not take effect.
                let planned_on = observed
                    .iter()
                    .find(|one| one.metadata.name.as_ref() == Some(&set))
                    .and_then(|one| one.metadata.resource_version.clone());
                let patch = serde_json::json!({
                    "metadata": {
                        "annotations": annotations::sizes(deployment),
                        "resourceVersion": planned_on,
                    },
                    "spec": {"replicas": to},
                });
                let scaled = sets
                    .patch(&set, &PatchParams::default(), &Patch::Merge(patch))
                    .await?;
                self.written.note(key, &scaled);
                if to == from {
                    return Ok(());
                }
                let direction = if to > from { "up" } else { "down" };
                self.events.normal(
                    deployment,
                    "ScalingReplicaSet",
                    format!("Scaled {direction} replica set {set} from {from} to {to}"),
                );
                Ok(())
            }
            Action::Refresh {
                set,
                annotations,
                min_ready_seconds,
            } => {
                let patch = serde_json::json!({
                    "metadata": {"annotations": annotations},
                    "spec": {"minReadySeconds": min_ready_seconds},
                });
                sets.patch(&set, &PatchParams::default(), &Patch::Merge(patch))
                    .await?;
                Ok(())
            }
            Action::RecordRevision { revision } => {
                let mut updated = deployment.clone();
                let annotations = updated.metadata.annotations.get_or_insert_default();
                annotations.insert(REVISION.to_string(), revision.to_string());
                let name = deployment.metadata.name.as_deref().unwrap_or_default();
                self.api::<Deployment>(namespace)
                    .replace(name, &PostParams::default(), &updated)
                    .await?;
                Ok(())
            }
            Action::Forget { set } => match sets.delete(&set, &DeleteParams::background()).await {
                Err(error) if !retry::is_not_found(&error) => Err(error.into()),
                _ => Ok(()),
            },
        }
    }

    async fn create_set(
        &self,
        key: &ObjectKey,
        deployment: &Deployment,
        replicas: i32,
        revision: i64,
    ) -> Result<(), Error> {
        let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
        let set = new_set(deployment, replicas, revision);
        let name = set.metadata.name.clone().unwrap_or_default();
        match self
            .api::<ReplicaSet>(namespace)
            .create(&PostParams::default(), &set)
            .await
        {
            Ok(created) => {
                self.written.note(key, &created);
                self.events.normal(
                    deployment,
                    "ScalingReplicaSet",
                    format!("Scaled up replica set {name} from 0 to {replicas}"),
                );
                Ok(())
            }
            Err(error) if retry::is_namespace_terminating(&error) => Ok(()),
            Err(error) if retry::is_already_exists(&error) => {
                self.note_collision(key, deployment, &name).await
            }
            Err(error) => {
                let cause = client::retry::sentence(&error);
                let message = format!("Failed to create new replica set {name:?}: {cause}");
                self.events
                    .warning(deployment, "ReplicaSetCreateError", &message);
                let now = self.config.environment.now();
                let status = status::of_failed_creation(deployment, &message, now);
                if deployment.status.as_ref() != Some(&status) {
                    let mut updated = deployment.clone();
                    updated.status = Some(status);
                    self.api::<Deployment>(namespace)
                        .replace_status(&key.name, &PostParams::default(), &updated)
                        .await?;
                }
                Err(error.into())
            }
        }
    }

    /// A set of that name exists. If it is ours with the same template the cache was late;
    /// otherwise two templates have one hash, and the next try uses another one.
    async fn note_collision(
        &self,
        key: &ObjectKey,
        deployment: &Deployment,
        name: &str,
    ) -> Result<(), Error> {
        let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
        let existing = self.api::<ReplicaSet>(namespace).get(name).await?;
        let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
        if semantics::owner::is_controlled_by(&existing.metadata, uid)
            && template::same(deployment, &existing)
        {
            self.written.note(key, &existing);
            return Ok(());
        }
        let mut updated = deployment.clone();
        let status = updated.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
        let deployment_name = deployment.metadata.name.as_deref().unwrap_or_default();
        self.api::<Deployment>(namespace)
            .replace_status(deployment_name, &PostParams::default(), &updated)
            .await?;
        Ok(())
    }

    /// For the Recreate strategy: pods of former templates that have not ended yet.
    fn pods_exist_outside_new_set(
        &self,
        deployment: &Deployment,
        sets: &[Arc<ReplicaSet>],
    ) -> bool {
        let mut old = sets
            .iter()
            .filter(|set| !template::same(deployment, set))
            .filter_map(|set| set.metadata.uid.as_deref());
        old.any(|uid| {
            let pods = self.owned_pods.by(uid);
            pods.iter().any(|pod| !semantics::pod::is_terminal(pod))
        })
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.config.client.clone(), namespace)
    }
}

fn new_set(deployment: &Deployment, replicas: i32, revision: i64) -> ReplicaSet {
    let spec = deployment.spec.clone().unwrap_or_default();
    let hash = template::hash(deployment);
    let mut pod_template = spec.template;
    let template_meta = pod_template.metadata.get_or_insert_default();
    let labels = template_meta.labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_string(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector;
    selector
        .match_labels
        .get_or_insert_default()
        .insert(HASH_LABEL.to_string(), hash.clone());
    let mut name = deployment.metadata.name.clone().unwrap_or_default();
    name.truncate(LONGEST_NAME - 1 - hash.len());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations::of_new_set(deployment, revision)),
            owner_references: Some(vec![meta::owner_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: Some(replicas),
            selector,
            template: Some(pod_template),
        }),
        status: None,
    }
}

fn selector(deployment: &Deployment) -> LabelSelector {
    let spec = deployment.spec.as_ref();
    spec.map(|spec| spec.selector.clone()).unwrap_or_default()
}

/// The Recreate strategy waits for old pods to end, so their end must wake their Deployment.
fn deployment_of_ended_pod(sets: &Informer<ReplicaSet>, pod: &Pod) -> Vec<ObjectKey> {
    let ending = pod.metadata.deletion_timestamp.is_some() || semantics::pod::is_terminal(pod);
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    semantics::owner::controller_of(&pod.metadata)
        .filter(|owner| ending && owner.kind == "ReplicaSet")
        .and_then(|owner| sets.get(&namespace, &owner.name))
        .and_then(|set| Some(semantics::owner::controller_of(&set.metadata)?.name.clone()))
        .map(|name| ObjectKey::new(namespace, name))
        .into_iter()
        .collect()
}
