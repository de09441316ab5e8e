//! ReplicaSet: as many pods as asked for, no more, no fewer.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::controller::Outcome;
use client::{Informer, ObjectKey, WorkQueue, events, retry};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue, own_key, owner_key};
use crate::{Config, Error, meta};
use plan::{Observed, Plan};

pub async fn run(config: Config, shutdown: CancellationToken) {
    let sets = config.informers.of::<ReplicaSet>();
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let orphans = enqueue(&pods, &queue, {
        let sets = sets.clone();
        move |pod: &Pod| sets_that_might_adopt(&sets, pod)
    });
    let feeds = futures::future::join3(
        enqueue(&sets, &queue, own_key),
        enqueue(&pods, &queue, owner_key("ReplicaSet")),
        orphans,
    );
    let controller = Arc::new(Controller {
        events: events::Recorder::new(
            config.client.clone(),
            config.environment.clone(),
            "replicaset-controller",
            None,
        ),
        expectations: Mutex::default(),
        config,
        sets,
        pods,
    });
    let reconcile = move |key: ObjectKey| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    };
    watching::run("replicaset", 4, queue, feeds, reconcile, shutdown).await;
}

struct Controller {
    config: Config,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    events: events::Recorder,
    /// Per set: what was created and deleted but has not come back through the watch yet. Acting
    /// on a cache that lacks our own writes would create or delete twice.
    expectations: Mutex<BTreeMap<ObjectKey, Expectation>>,
}

struct Expectation {
    created: BTreeSet<String>,
    deleted: BTreeSet<String>,
    since: Instant,
}

impl Default for Expectation {
    fn default() -> Expectation {
        Expectation {
            created: BTreeSet::new(),
            deleted: BTreeSet::new(),
            since: Instant::now(),
        }
    }
}

/// A pod that was created and removed between two looks never comes back through the watch; its
/// expectation must not hold up the set for ever.
const EXPECTATION_LIMIT: Duration = Duration::from_secs(30);

impl Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Outcome, Error> {
        self.sets.synced().await;
        self.pods.synced().await;
        let Some(set) = self.sets.get(&key.namespace, &key.name) else {
            self.expectations.lock().remove(key);
            return Ok(Outcome::Done);
        };
        let pods = self.pods.list_in(&key.namespace);
        if !self.expectations_are_met(key, &set, &pods) {
            return Ok(Outcome::After(EXPECTATION_LIMIT));
        }
        let uid = set.metadata.uid.clone().unwrap_or_default();
        let deleting = set.metadata.deletion_timestamp.is_some();
        let mut owned: Vec<Arc<Pod>> = Vec::new();
        for pod in pods {
            let ours = meta::is_controlled_by(&pod.metadata, &uid);
            if ours || !deleting && self.adopt(&set, &pod).await? {
                owned.push(pod);
            }
        }
        let observed = Observed::new(&set, &owned);
        let mut failure = None;
        if !deleting {
            failure = self.carry_out(key, &set, plan::plan(&observed)).await.err();
        }
        self.update_status(&set, &observed, failure.as_ref())
            .await?;
        match failure {
            Some(error) => Err(error),
            None => Ok(
                match observed.next_availability(self.config.environment.now()) {
                    Some(delay) => Outcome::After(delay),
                    None => Outcome::Done,
                },
            ),
        }
    }

    fn expectations_are_met(&self, key: &ObjectKey, set: &ReplicaSet, pods: &[Arc<Pod>]) -> bool {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let mut expectations = self.expectations.lock();
        let Some(expected) = expectations.get_mut(key) else {
            return true;
        };
        for pod in pods {
            let pod_uid = pod.metadata.uid.as_deref().unwrap_or_default();
            if meta::is_controlled_by(&pod.metadata, uid) {
                expected.created.remove(pod_uid);
            }
        }
        // A deletion is seen when the pod is gone or marked.
        expected.deleted.retain(|uid| {
            pods.iter().any(|pod| {
                pod.metadata.uid.as_deref() == Some(uid.as_str())
                    && pod.metadata.deletion_timestamp.is_none()
            })
        });
        let met = expected.created.is_empty() && expected.deleted.is_empty()
            || expected.since.elapsed() >= EXPECTATION_LIMIT;
        if met {
            expectations.remove(key);
        }
        met
    }

    /// Takes over a matching pod that nobody controls.
    async fn adopt(&self, set: &ReplicaSet, pod: &Pod) -> Result<bool, Error> {
        let matching = set.spec.as_ref().is_some_and(|spec| {
            meta::selects(
                &spec.selector,
                pod.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()),
            )
        });
        if !matching || !meta::is_active(pod) || meta::controller_of(&pod.metadata).is_some() {
            return Ok(false);
        }
        let pods: Api<Pod> = self.pods_api(set);
        let patch = serde_json::json!({"metadata": {
            "uid": pod.metadata.uid,
            "ownerReferences": [meta::owner_reference(set)],
        }});
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match pods
            .patch(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn carry_out(&self, key: &ObjectKey, set: &ReplicaSet, plan: Plan) -> Result<(), Error> {
        let pods = self.pods_api(set);
        for _ in 0..plan.create {
            let pod = pod_from_template(set)?;
            match pods.create(&PostParams::default(), &pod).await {
                Ok(pod) => {
                    self.expectations
                        .lock()
                        .entry(key.clone())
                        .or_default()
                        .created
                        .insert(pod.metadata.uid.clone().unwrap_or_default());
                    let name = pod.metadata.name.unwrap_or_default();
                    self.events
                        .normal(set, "SuccessfulCreate", format!("Created pod: {name}"));
                }
                Err(error) if retry::is_namespace_terminating(&error) => return Ok(()),
                Err(error) => {
                    self.events
                        .warning(set, "FailedCreate", format!("Error creating: {error}"));
                    return Err(error.into());
                }
            }
        }
        for (name, uid) in plan.delete {
            let parameters = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some(uid.clone()),
                    resource_version: None,
                }),
                ..DeleteParams::background()
            };
            // Recorded first: the watch may be quicker than the answer.
            self.expectations
                .lock()
                .entry(key.clone())
                .or_default()
                .deleted
                .insert(uid.clone());
            match pods.delete(&name, &parameters).await {
                Ok(_) => {
                    self.events
                        .normal(set, "SuccessfulDelete", format!("Deleted pod: {name}"))
                }
                Err(error) => {
                    if let Some(expected) = self.expectations.lock().get_mut(key) {
                        expected.deleted.remove(&uid);
                    }
                    if !retry::is_not_found(&error) && !retry::is_conflict(&error) {
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(())
    }

    async fn update_status(
        &self,
        set: &ReplicaSet,
        observed: &Observed,
        failure: Option<&Error>,
    ) -> Result<(), Error> {
        let now = self.config.environment.now();
        let status = plan::status(set, observed, failure.map(ToString::to_string), now);
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let sets: Api<ReplicaSet> = Api::namespaced(
            self.config.client.clone(),
            set.metadata.namespace.as_deref().unwrap_or_default(),
        );
        let mut updated = set.clone();
        updated.status = Some(status);
        let name = set.metadata.name.as_deref().unwrap_or_default();
        match sets
            .replace_status(name, &PostParams::default(), &updated)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if retry::is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn pods_api(&self, set: &ReplicaSet) -> Api<Pod> {
        Api::namespaced(
            self.config.client.clone(),
            set.metadata.namespace.as_deref().unwrap_or_default(),
        )
    }
}

fn pod_from_template(set: &ReplicaSet) -> Result<Pod, Error> {
    let template = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.clone())
        .ok_or_else(|| Error::Object("the ReplicaSet has no pod template".to_string()))?;
    let meta = template.metadata.unwrap_or_default();
    Ok(Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!(
                "{}-",
                set.metadata.name.as_deref().unwrap_or_default()
            )),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![meta::owner_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    })
}

/// A pod without a controller may belong to any set whose selector matches it.
fn sets_that_might_adopt(sets: &Informer<ReplicaSet>, pod: &Pod) -> Vec<ObjectKey> {
    if meta::controller_of(&pod.metadata).is_some() {
        return Vec::new();
    }
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    sets.list_in(pod.metadata.namespace.as_deref().unwrap_or_default())
        .into_iter()
        .filter(|set| {
            set.spec
                .as_ref()
                .is_some_and(|spec| meta::selects(&spec.selector, &labels))
        })
        .map(|set| ObjectKey::of(&*set))
        .collect()
}
