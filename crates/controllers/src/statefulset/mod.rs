//! StatefulSet: pods with a name, an order and claims of their own.

mod identity;
mod plan;
mod retention;
#[cfg(test)]
mod tests;

use std::time::Duration;

use client::controller::Reconciled;
use client::{Index, Informer, ObjectKey, Terms, WorkQueue, retry};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::lookup::{Controlled, Selecting, in_namespace, namespace_of};
use crate::owned_pods::expectations::Deed;
use crate::owned_pods::failures::FailuresByPlace;
use crate::owned_pods::{PodControl, claim, expectations, of_uid};
use crate::watching::{self, Reconciler, enqueue, own_key, owner_key};
use crate::{Config, Error, history, meta};
use plan::{Action, Observed, Revision};

const CONTROLLER: &str = "statefulset-controller";
const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// How long the replacement of a pod waits at most that fails again and again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

pub async fn run(config: Config, shutdown: CancellationToken) {
    let sets = config.informers.of::<StatefulSet>();
    let pods = config.informers.of::<Pod>();
    let claims = config.informers.of::<PersistentVolumeClaim>();
    let revisions = config.informers.of::<ControllerRevision>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join5(
        enqueue(&sets, &queue, own_key),
        enqueue(&pods, &queue, owner_key("StatefulSet")),
        enqueue(&pods, &queue, {
            let sets = Selecting::of(&sets);
            move |pod: &Pod| watching::possible_owners(&sets, pod)
        }),
        enqueue(&revisions, &queue, owner_key("StatefulSet")),
        enqueue(&claims, &queue, {
            let sets = sets.index("claims", Terms::All(prefixes_of_claims));
            move |claim: &PersistentVolumeClaim| sets_of_claim(&sets, claim)
        }),
    );
    let controller = Controller {
        control: PodControl::new(&config, CONTROLLER),
        failures: FailuresByPlace::new(LONGEST_PAUSE),
        config,
        sets,
        owned_pods: Controlled::of(&pods),
        owned_revisions: Controlled::of(&revisions),
        pods,
        claims,
        revisions,
    };
    watching::run(CONTROLLER, 4, queue, feeds, controller, shutdown).await;
}

struct Controller {
    config: Config,
    sets: Informer<StatefulSet>,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    revisions: Informer<ControllerRevision>,
    owned_pods: Controlled<Pod>,
    owned_revisions: Controlled<ControllerRevision>,
    control: PodControl,
    /// By set and name of the pod.
    failures: FailuresByPlace,
}

impl Reconciler for Controller {
    /// 1. Wait until the cache shows what we did last time.
    /// 2. Make sure that the newest revision is that of the current template.
    /// 3. Carry out what is planned about pods and claims.
    /// 4. Write the status when it changed, and forget revisions beyond the limit.
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.sets.synced().await;
        self.pods.synced().await;
        self.claims.synced().await;
        self.revisions.synced().await;
        let Some(set) = self.sets.get(&key.namespace, &key.name) else {
            self.control.expectations.forget(key);
            self.failures.forget(key);
            return Ok(Reconciled::Done);
        };
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        if !self.control.is_current(key, uid, &self.pods).await? {
            return Ok(Reconciled::After(expectations::LONGEST_WAIT));
        }
        let selector = selector(&set);
        let mut pods = self.owned_pods.claimable(&set.metadata, &selector);
        pods.retain(|pod| identity::ordinal(&set, pod).is_some());
        let pods = self.control.claim(&*set, &selector, pods, |_| true).await?;
        let revisions = self.owned_revisions.claimable(&set.metadata, &selector);
        let client = &self.config.client;
        let mut revisions = claim::claim(client, &*set, &selector, revisions, |_| true).await?;
        history::sort(&mut revisions);

        let old = set.status.clone().unwrap_or_default();
        let mut collisions = old.collision_count.unwrap_or(0);
        let spec = set.spec.clone().unwrap_or_default();
        let snapshot = history::Snapshot::of(&spec.template);
        let step = history::step(&revisions, &snapshot);
        let update =
            history::ensure_revision(client, &*set, HASH_LABEL, &snapshot, step, &mut collisions)
                .await?;
        let current = revisions
            .iter()
            .find(|revision| revision.metadata.name == old.current_revision)
            .unwrap_or(&update);
        let (current, update) = (versioned(current)?, versioned(&update)?);
        let now = self.config.environment.now();
        let generation = set.metadata.generation;
        let plan = plan::plan(&Observed {
            set: &set,
            pods: &pods,
            claims: &|name| self.claims.get(&key.namespace, name),
            current: &current,
            update: &update,
            collisions,
            now,
            pause: &|pod| self.failures.remaining(key, pod, generation),
        });
        for pod in &plan.replaced {
            self.failures.replaced(key, pod, generation);
        }
        let mut failure = None;
        for action in plan.actions {
            if let Err(error) = self.carry_out(key, &set, action).await {
                failure = Some(error);
                break;
            }
        }
        if old != plan.status {
            let mut updated = (*set).clone();
            updated.status = Some(plan.status);
            let api: Api<StatefulSet> = Api::namespaced(client.clone(), &key.namespace);
            match api
                .replace_status(&key.name, &PostParams::default(), &updated)
                .await
            {
                Ok(_) => {}
                Err(error) if retry::is_not_found(&error) => {}
                Err(error) => return Err(failure.unwrap_or(error.into())),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let is_live = |revision: &ControllerRevision| {
            let name = revision.metadata.name.as_deref().unwrap_or_default();
            name == current.name
                || name == update.name
                || pods.iter().any(|pod| identity::revision(pod) == name)
        };
        let limit = spec.revision_history_limit.unwrap_or(10);
        history::forget(client, history::surplus(&revisions, is_live, limit)).await?;
        let min_ready_seconds = spec.min_ready_seconds.unwrap_or(0);
        let ready = pods.iter().map(|pod| &**pod);
        let available = meta::next_availability(ready, min_ready_seconds, now);
        let next = [available, plan.retry].into_iter().flatten().min();
        Ok(next.map_or(Reconciled::Done, Reconciled::After))
    }
}

impl Controller {
    async fn carry_out(
        &self,
        key: &ObjectKey,
        set: &StatefulSet,
        action: Action,
    ) -> Result<(), Error> {
        let client = self.config.client.clone();
        let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        match action {
            Action::Create(pod, claims) => {
                let result = self.create_claims(key, set, &pod, claims).await;
                if let Err(error) = result {
                    return self.report(set, "create", &pod, Err(error));
                }
                match pods.create(&PostParams::default(), &pod).await {
                    Ok(created) => {
                        let made = created.metadata.uid.unwrap_or_default();
                        let name = created.metadata.name.unwrap_or_default();
                        self.control.expectations.created(key, uid, &made, &name);
                        self.report(set, "create", &pod, Ok(()))
                    }
                    Err(error) if retry::is_namespace_terminating(&error) => Ok(()),
                    // Our cache is late, or the name is taken: either way, later.
                    Err(error) if retry::is_already_exists(&error) => Err(error.into()),
                    Err(error) => {
                        if retry::is_outcome_unknown(&error) {
                            let name = pod.metadata.name.as_deref().unwrap_or_default();
                            let doubts = &self.control.expectations;
                            doubts.doubt(key, uid, name, Deed::Create);
                        }
                        self.report(set, "create", &pod, Err(error.into()))
                    }
                }
            }
            Action::CreateClaims(pod, claims) => self.create_claims(key, set, &pod, claims).await,
            Action::Delete(pod) => {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                let pod_uid = pod.metadata.uid.as_deref().unwrap_or_default();
                self.control.expectations.deleted(key, uid, pod_uid, name);
                match pods.delete(name, &of_uid(pod_uid)).await {
                    Ok(_) => self.report(set, "delete", &pod, Ok(())),
                    Err(error) => {
                        self.control.expectations.not_deleted(key, pod_uid);
                        if retry::is_not_found(&error) || retry::is_conflict(&error) {
                            return Ok(());
                        }
                        if retry::is_outcome_unknown(&error) {
                            let deed = Deed::Delete(pod_uid.to_owned());
                            self.control.expectations.doubt(key, uid, name, deed);
                        }
                        self.report(set, "delete", &pod, Err(error.into()))
                    }
                }
            }
            Action::Repair(pod) => {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                let result = pods.replace(name, &PostParams::default(), &pod).await;
                self.report(set, "update", &pod, result.map(drop).map_err(Error::from))
            }
            Action::SetOwners(claim, owners) => {
                let mut updated = (*claim).clone();
                updated.metadata.owner_references = Some(owners);
                let api: Api<PersistentVolumeClaim> = Api::namespaced(client, &key.namespace);
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                api.replace(name, &PostParams::default(), &updated).await?;
                Ok(())
            }
        }
    }

    async fn create_claims(
        &self,
        key: &ObjectKey,
        set: &StatefulSet,
        pod: &Pod,
        claims: Vec<PersistentVolumeClaim>,
    ) -> Result<(), Error> {
        let client = self.config.client.clone();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client, &key.namespace);
        let (pod_name, set_name) = (
            pod.metadata.name.as_deref().unwrap_or_default(),
            set.metadata.name.as_deref().unwrap_or_default(),
        );
        for mut claim in claims {
            let name = claim.metadata.name.clone().unwrap_or_default();
            if let Some(existing) = self.claims.get(&key.namespace, &name)
                && existing.metadata.deletion_timestamp.is_some()
            {
                return Err(Error::Object(format!("pvc {name} is being deleted")));
            }
            // A claim that goes with the set belongs to it from the beginning.
            if let Some(owners) = retention::corrected_owners(set, pod, &claim) {
                claim.metadata.owner_references = Some(owners);
            }
            match api.create(&PostParams::default(), &claim).await {
                Ok(_) => {
                    let message = format!(
                        "Create Claim {name} Pod {pod_name} in StatefulSet {set_name} success"
                    );
                    self.control.events.normal(set, "SuccessfulCreate", message);
                }
                Err(error) if retry::is_already_exists(&error) => {}
                Err(error) => {
                    let cause = client::retry::sentence(&error);
                    let message = format!(
                        "Create Claim {name} for Pod {pod_name} in StatefulSet {set_name} failed \
                         error: {cause}"
                    );
                    self.control.events.warning(set, "FailedCreate", message);
                    return Err(Error::Object(format!(
                        "failed to create PVC {name}: {cause}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Posts the Event about an action and passes its result on.
    fn report(
        &self,
        set: &StatefulSet,
        verb: &str,
        pod: &Pod,
        result: Result<(), Error>,
    ) -> Result<(), Error> {
        let (pod, name) = (
            pod.metadata.name.as_deref().unwrap_or_default(),
            set.metadata.name.as_deref().unwrap_or_default(),
        );
        let title = match verb {
            "create" => "Create",
            "delete" => "Delete",
            _ => "Update",
        };
        match &result {
            Ok(()) => {
                let message = format!("{title} Pod {pod} in StatefulSet {name} successful");
                let reason = format!("Successful{title}");
                self.control.events.normal(set, &reason, message);
            }
            Err(error) => {
                let message =
                    format!("{title} Pod {pod} in StatefulSet {name} failed error: {error}");
                let reason = format!("Failed{title}");
                self.control.events.warning(set, &reason, message);
            }
        }
        result
    }
}

fn versioned(revision: &ControllerRevision) -> Result<Revision, Error> {
    let name = revision.metadata.name.clone().unwrap_or_default();
    let template = history::template_of(revision)
        .ok_or_else(|| Error::Object(format!("revision {name} holds no template")))?;
    Ok(Revision { name, template })
}

fn selector(set: &StatefulSet) -> LabelSelector {
    let spec = set.spec.as_ref();
    spec.map(|spec| spec.selector.clone()).unwrap_or_default()
}

/// The sets whose pods may wait for a claim that changed.
fn sets_of_claim(sets: &Index<StatefulSet>, claim: &PersistentVolumeClaim) -> Vec<ObjectKey> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    // The last part is the pod's ordinal.
    let Some((prefix, _)) = name.rsplit_once('-') else {
        return Vec::new();
    };
    let sets = sets.get(&in_namespace(namespace_of(&claim.metadata), prefix));
    sets.iter().map(|set| ObjectKey::of(&**set)).collect()
}

/// The prefixes of the names of a set's claims.
fn prefixes_of_claims(set: &StatefulSet) -> Vec<String> {
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let templates = identity::claim_templates(set).iter();
    templates
        .map(|template| {
            let template = template.metadata.name.as_deref().unwrap_or_default();
            in_namespace(
                namespace_of(&set.metadata),
                &format!("{template}-{set_name}"),
            )
        })
        .collect()
}
