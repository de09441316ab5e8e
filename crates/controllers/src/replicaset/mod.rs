//! ReplicaSet and ReplicationController: as many pods as asked for, no more, no fewer.

mod plan;
mod replacements;
mod replicated;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::controller::Reconciled;
use client::{Informer, ObjectKey, WorkQueue, retry};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::lookup::{Controlled, Selecting};
use crate::owned_pods::{PodControl, expectations, from_template};
use crate::watching::{self, Reconciler, enqueue, own_key, owner_key};
use crate::{Config, Error, meta};
use plan::{Observed, Plan};
use replacements::Replacements;
use replicated::Replicated;

/// Runs the controller of one of the two kinds until `shutdown`.
pub async fn run<K: Replicated>(config: Config, shutdown: CancellationToken) {
    let sets = config.informers.of::<K>();
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let orphans = enqueue(&pods, &queue, {
        let sets = Selecting::of(&sets);
        move |pod: &Pod| watching::possible_owners(&sets, pod)
    });
    let feeds = futures::future::join3(
        enqueue(&sets, &queue, own_key),
        enqueue(&pods, &queue, owner_key(K::KIND)),
        orphans,
    );
    let controller = Controller {
        control: PodControl::new(&config, K::CONTROLLER),
        replacements: Replacements::default(),
        config,
        owned_sets: Controlled::of(&sets),
        owned_pods: Controlled::of(&pods),
        sets,
        pods,
    };
    watching::run(K::CONTROLLER, 4, queue, feeds, controller, shutdown).await;
}

struct Controller<K> {
    config: Config,
    sets: Informer<K>,
    pods: Informer<Pod>,
    owned_sets: Controlled<K>,
    owned_pods: Controlled<Pod>,
    control: PodControl,
    replacements: Replacements,
}

impl<K: Replicated> Reconciler for Controller<K> {
    /// 1. Wait until the cache shows what we did last time.
    /// 2. Claim the pods that are ours and carry out what is planned about them.
    /// 3. Write the status when it changed.
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.sets.synced().await;
        self.pods.synced().await;
        let Some(set) = self.sets.get(&key.namespace, &key.name) else {
            self.control.expectations.forget(key);
            self.replacements.forget(key);
            return Ok(Reconciled::Done);
        };
        let uid = set.meta().uid.as_deref().unwrap_or_default();
        if !self.control.is_current(key, uid, &self.pods).await? {
            return Ok(Reconciled::After(expectations::LONGEST_WAIT));
        }
        let pods = self.owned_pods.claimable(set.meta(), &set.selector());
        let owned = self
            .control
            .claim(&*set, &set.selector(), pods, semantics::pod::is_active)
            .await?;
        let now = self.config.environment.now();
        let observed = Observed::new(&*set, &owned);
        let mut replacing = None;
        let failure = match set.meta().deletion_timestamp {
            Some(_) => None,
            None => {
                let siblings = || self.siblings_by_node(&set);
                let mut plan = plan::plan(&observed, siblings, now);
                replacing = self.hold_back(key, &set, &owned, &mut plan);
                self.carry_out(key, &set, plan).await
            }
        };
        self.update_status(&set, &observed, failure.as_ref())
            .await?;
        match failure {
            Some(failure) => Err(failure.error),
            None => {
                let next = [observed.next_availability(now), replacing];
                let next = next.into_iter().flatten().min();
                Ok(next.map_or(Reconciled::Done, Reconciled::After))
            }
        }
    }
}

impl<K: Replicated> Controller<K> {
    /// Takes those pods from the plan whose creation has to wait because others before them failed.
    /// Returns when they may be created.
    fn hold_back(
        &self,
        key: &ObjectKey,
        set: &K,
        owned: &[Arc<Pod>],
        plan: &mut Plan,
    ) -> Option<Duration> {
        let generation = set.meta().generation;
        let allowance = self.replacements.allow(key, generation, owned, plan.create);
        plan.create = allowance.create;
        let later = allowance.later?;
        if let Some(failed) = allowance.announce {
            let name = failed.metadata.name.as_deref().unwrap_or_default();
            let status = failed.status.as_ref();
            let reason = status.and_then(|status| status.reason.as_deref());
            let message = format!(
                "Pod {name} failed ({}), as pods before it did: its replacement is created in {} s",
                reason.unwrap_or("no reason given"),
                later.as_secs_f64().ceil()
            );
            let events = &self.control.events;
            events.warning(set, "ReplacementBackOff", message);
        }
        Some(later)
    }

    async fn carry_out(&self, key: &ObjectKey, set: &K, plan: Plan) -> Option<Failure> {
        if plan.create > 0 {
            let Some(template) = set.template() else {
                let message = format!("the {} has no pod template", K::KIND);
                return Some(Failure::create(Error::Object(message)));
            };
            let pods = vec![from_template(set, template); plan.create];
            let (_, failure) = self.control.create_all(key, set, pods).await;
            return failure.map(Failure::create);
        }
        let (_, failure) = self.control.delete_all(key, set, &plan.delete).await;
        failure.map(|error| Failure {
            reason: "FailedDelete",
            error,
        })
    }

    async fn update_status(
        &self,
        set: &K,
        observed: &Observed,
        failure: Option<&Failure>,
    ) -> Result<(), Error> {
        let now = self.config.environment.now();
        let old = set.status();
        let failure = failure.map(|failure| (failure.reason, failure.error.to_string()));
        let generation = set.meta().generation;
        let status = plan::status(&old, generation, observed, failure, now);
        let mut updated = set.clone();
        updated.set_status(status);
        if updated.status() == old {
            return Ok(());
        }
        let namespace = set.meta().namespace.as_deref().unwrap_or_default();
        let sets: Api<K> = Api::namespaced(self.config.client.clone(), namespace);
        let name = set.meta().name.as_deref().unwrap_or_default();
        match sets
            .replace_status(name, &PostParams::default(), &updated)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if retry::is_not_found(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// How many active pods of this set, and of the other sets of its owner, each node has.
    fn siblings_by_node(&self, set: &K) -> BTreeMap<String, usize> {
        let siblings = match semantics::owner::controller_of(set.meta()) {
            Some(owner) => self.owned_sets.by(&owner.uid),
            None => Vec::new(),
        };
        let siblings = siblings.iter().filter_map(|other| other.meta().uid.clone());
        let related: BTreeSet<String> = siblings.chain(set.meta().uid.clone()).collect();
        let mut counts = BTreeMap::new();
        for pod in related.iter().flat_map(|uid| self.owned_pods.by(uid)) {
            let node = meta::node_name(&pod);
            if semantics::pod::is_active(&pod) && !node.is_empty() {
                *counts.entry(node.to_owned()).or_default() += 1;
            }
        }
        counts
    }
}

/// What went wrong, and the reason its condition gives.
struct Failure {
    reason: &'static str,
    error: Error,
}

impl Failure {
    fn create(error: Error) -> Failure {
        Failure {
            reason: "FailedCreate",
            error,
        }
    }
}
