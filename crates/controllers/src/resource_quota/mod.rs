//! ResourceQuota: recounts what a quota's namespace uses and writes it down. Admission counts up
//! as objects are created; this counts down as they are deleted, and corrects what went wrong in
//! between.

mod other_kinds;
mod plan;
mod pod_changes;
mod tally;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::Value;
use api::quota::Evaluator;
use api::resources::Amounts;
use client::controller::Reconciled;
use client::{Change, Informer, Metadata, Object, ObjectKey, WorkQueue, retry};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, Service,
};
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::watching::{self, Reconciler};
use crate::{Config, Error, discovery};
use other_kinds::OtherKinds;
use plan::Counts;
use pod_changes::uses_another_amount;
use tally::Tally;
use usage::Counted;

/// How often all quotas are counted again, to correct what no watch event showed.
const RECOUNT: Duration = Duration::from_secs(300);

pub async fn run(config: Config, shutdown: CancellationToken) {
    let quotas = config.informers.of::<ResourceQuota>();
    let pods = config.informers.of::<Pod>();
    let services = config.informers.of::<Service>();
    let claims = config.informers.of::<PersistentVolumeClaim>();
    let queue = WorkQueue::new();
    let seen: Arc<Mutex<BTreeMap<ObjectKey, Seen>>> = Arc::default();
    let tallies: Tallies = Arc::default();
    let follower = |evaluator| Follower {
        quotas: quotas.clone(),
        queue: queue.clone(),
        counted: Some((evaluator, tallies.clone())),
    };
    let feeds = futures::future::join4(
        follow_quotas(quotas.clone(), queue.clone(), seen.clone(), tallies.clone()),
        follower(Evaluator::Pods).follow(pods.clone(), uses_another_amount),
        follower(Evaluator::Services)
            .follow(services.clone(), |old: &Service, new| old.spec != new.spec),
        follower(Evaluator::Claims).follow(claims.clone(), |old: &PersistentVolumeClaim, new| {
            old.spec != new.spec
        }),
    );
    let controller = Controller {
        config,
        quotas,
        pods,
        services,
        claims,
        queue: queue.clone(),
        others: OtherKinds::default(),
        seen,
        tallies,
    };
    watching::run("resource-quota", 4, queue, feeds, controller, shutdown).await;
}

/// Enqueues a quota that is new or whose limits have changed. Not when its use has: that was
/// admission, and the object it counted may not be in our caches yet, so that counting again
/// would give back what has just been taken. When that was is remembered.
async fn follow_quotas(
    quotas: Informer<ResourceQuota>,
    queue: WorkQueue<ObjectKey>,
    seen: Arc<Mutex<BTreeMap<ObjectKey, Seen>>>,
    tallies: Tallies,
) {
    let mut changes = quotas.subscribe();
    loop {
        let (quota, is_new) = match changes.next().await {
            Change::Added(quota) => (quota, true),
            Change::Modified { old, new } => {
                let is_new = old.spec != new.spec;
                (new, is_new)
            }
            Change::Deleted(quota) => {
                seen.lock().remove(&ObjectKey::of(&*quota));
                tallies.lock().remove(&ObjectKey::of(&*quota));
                continue;
            }
            Change::Resynced => continue,
        };
        let key = ObjectKey::of(&*quota);
        Seen::look(&seen, &key, &quota);
        if is_new {
            queue.add(key);
        }
    }
}

/// By quota.
type Tallies = Arc<Mutex<BTreeMap<ObjectKey, Tally>>>;

/// Follows the objects of one kind that quotas count.
struct Follower {
    quotas: Informer<ResourceQuota>,
    queue: WorkQueue<ObjectKey>,
    /// For kinds that are counted by what each object uses.
    counted: Option<(Evaluator, Tallies)>,
}

impl Follower {
    /// Enqueues a namespace's quotas when something in it is gone or has changed what it uses, and
    /// marks what has to be counted again. What is new is only marked: admission has counted it.
    async fn follow<K: Object>(self, objects: Informer<K>, differs: impl Fn(&K, &K) -> bool) {
        let mut changes = objects.subscribe();
        loop {
            let (object, uses_less_or_more) = match changes.next().await {
                Change::Deleted(object) => (object, true),
                Change::Modified { old, new } if differs(&old, &new) => (new, true),
                Change::Added(object) => (object, false),
                _ => continue,
            };
            let key = ObjectKey::of(&*object);
            for quota in self.quotas.list_in(&key.namespace) {
                let quota = ObjectKey::of(&*quota);
                if let Some((evaluator, tallies)) = &self.counted
                    && let Some(tally) = tallies.lock().get_mut(&quota)
                {
                    tally.mark(*evaluator, &key.name);
                }
                if uses_less_or_more {
                    self.queue.add(quota);
                }
            }
        }
    }
}

/// The objects of a kind, watched and followed while this is kept.
#[derive(Clone)]
struct WatchedKind {
    objects: Informer<Metadata>,
    _following: Arc<AbortOnDropHandle<()>>,
}

/// What we have seen of a quota.
struct Seen {
    version: Option<String>,
    /// When it was first seen in this version.
    since: Instant,
    /// Since when lower counts have been waiting to be written.
    waiting: Option<Instant>,
}

impl Seen {
    /// For how long the quota has been as it is, and for how long lower counts have been waiting.
    fn look(
        all: &Mutex<BTreeMap<ObjectKey, Seen>>,
        key: &ObjectKey,
        quota: &ResourceQuota,
    ) -> (Duration, Duration) {
        let mut all = all.lock();
        let version = &quota.metadata.resource_version;
        let seen = all.entry(key.clone()).or_insert_with(|| Seen {
            version: version.clone(),
            since: Instant::now(),
            waiting: None,
        });
        if seen.version != *version {
            seen.version = version.clone();
            seen.since = Instant::now();
        }
        let waited = seen.waiting.map(|waiting| waiting.elapsed());
        (seen.since.elapsed(), waited.unwrap_or_default())
    }
}

struct Controller {
    config: Config,
    quotas: Informer<ResourceQuota>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    claims: Informer<PersistentVolumeClaim>,
    queue: WorkQueue<ObjectKey>,
    /// Kinds that some quota counts and no other part watches.
    others: OtherKinds<WatchedKind>,
    seen: Arc<Mutex<BTreeMap<ObjectKey, Seen>>>,
    tallies: Tallies,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.pods.synced().await;
        self.services.synced().await;
        self.claims.synced().await;
        let Some(quota) = self.quotas.get(&key.namespace, &key.name) else {
            self.tallies.lock().remove(key);
            self.others.release_others(key, &BTreeSet::new());
            return Ok(Reconciled::Done);
        };
        let (still, waited) = Seen::look(&self.seen, key, &quota);
        let document = value(&*quota)?;
        let mut used = self.count(key, &quota, &document)?;
        let counted = usage::counted(&document);
        let mut others = BTreeSet::new();
        for one in &counted {
            let Counted::Others { names, resource } = one else {
                continue;
            };
            others.insert(resource.as_str());
            if let Some(objects) = self.other(resource, key).await? {
                let count = objects.count_in(&key.namespace);
                used.extend(usage::of_number(&document, names, count));
            }
        }
        self.others.release_others(key, &others);
        let status = quota.status.clone().unwrap_or_default();
        let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone());
        let hard = hard.unwrap_or_default();
        let plan = plan::plan(
            &hard,
            &status.used.clone().unwrap_or_default(),
            used,
            still,
            waited,
        );
        self.write(&quota, status, hard, plan.used).await?;
        if let Some(seen) = self.seen.lock().get_mut(key) {
            seen.waiting = match plan.again {
                Some(_) => seen.waiting.or(Some(Instant::now())),
                None => None,
            };
        }
        Ok(Reconciled::After(plan.again.unwrap_or(RECOUNT)))
    }
}

impl Controller {
    /// What the pods, Services and claims of the namespace use. Only those are looked at that have
    /// changed since the last time; all of them when the quota's spec has, or after a while.
    fn count(
        &self,
        key: &ObjectKey,
        quota: &ResourceQuota,
        document: &Value,
    ) -> Result<Amounts, Error> {
        let mut tallies = self.tallies.lock();
        let known = tallies
            .remove(key)
            .filter(|known| known.is_current(quota.spec.as_ref(), RECOUNT));
        let (mut tally, marked) = match known {
            Some(mut known) => {
                let marked = known.take_marked();
                (known, marked)
            }
            None => {
                let zeros = usage::zeros(document);
                let namespace = &key.namespace;
                let mut all = Vec::new();
                for counted in usage::counted(document) {
                    match counted {
                        Counted::Pods => {
                            all.extend(names_in(&self.pods, namespace, Evaluator::Pods))
                        }
                        Counted::Services => {
                            all.extend(names_in(&self.services, namespace, Evaluator::Services));
                        }
                        Counted::Claims => {
                            all.extend(names_in(&self.claims, namespace, Evaluator::Claims));
                        }
                        Counted::Others { .. } => {}
                    }
                }
                (Tally::new(quota.spec.clone(), zeros), all)
            }
        };
        let now = self.config.environment.now();
        for (evaluator, name) in marked {
            let object = match evaluator {
                Evaluator::Pods => one(&self.pods, key, &name)?,
                Evaluator::Services => one(&self.services, key, &name)?,
                Evaluator::Claims => one(&self.claims, key, &name)?,
                _ => None,
            };
            let usage = object.map(|object| usage::of_object(document, evaluator, &object, now));
            tally.set(evaluator, &name, usage.unwrap_or_default());
        }
        let total = tally.total();
        tallies.insert(key.clone(), tally);
        Ok(total)
    }

    /// The objects of a kind, watched from its first use by a quota on; `None` if nothing of that name
    /// is served.
    async fn other(
        &self,
        resource: &str,
        quota: &ObjectKey,
    ) -> Result<Option<Informer<Metadata>>, Error> {
        if let Some(known) = self.others.get(resource, quota) {
            known.objects.synced().await;
            return Ok(Some(known.objects));
        }
        let discovered = discovery::discover(&self.config.client).await?;
        let served = discovered.kinds.into_iter().find(|served| {
            served.preferred
                && served.namespaced
                && served.qualified() == resource
                && served.allows(&["list", "watch"])
        });
        let Some(served) = served else {
            return Ok(None);
        };
        let watched = self.others.get_or_make(resource, quota, || {
            let objects = self.config.informers.metadata_at(&served.path());
            let follower = Follower {
                quotas: self.quotas.clone(),
                queue: self.queue.clone(),
                counted: None,
            };
            let following = follower.follow(objects.clone(), |_: &Metadata, _: &Metadata| false);
            WatchedKind {
                objects,
                _following: Arc::new(AbortOnDropHandle::new(tokio::spawn(following))),
            }
        });
        watched.objects.synced().await;
        Ok(Some(watched.objects))
    }

    async fn write(
        &self,
        quota: &ResourceQuota,
        before: ResourceQuotaStatus,
        hard: Counts,
        counts: Counts,
    ) -> Result<(), Error> {
        let status = ResourceQuotaStatus {
            hard: Some(hard).filter(|hard| !hard.is_empty()),
            used: Some(counts).filter(|counts| !counts.is_empty()),
        };
        if status == before {
            return Ok(());
        }
        let mut updated = quota.clone();
        updated.status = Some(status);
        let namespace = quota.metadata.namespace.as_deref().unwrap_or_default();
        let name = quota.metadata.name.as_deref().unwrap_or_default();
        let api: Api<ResourceQuota> = Api::namespaced(self.config.client.clone(), namespace);
        match api
            .replace_status(name, &PostParams::default(), &updated)
            .await
        {
            Err(error) if !retry::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn names_in<K: Object>(
    objects: &Informer<K>,
    namespace: &str,
    evaluator: Evaluator,
) -> Vec<tally::Counted> {
    let objects = objects.list_in(namespace);
    let names = objects.iter().filter_map(|one| one.meta().name.clone());
    names.map(|name| (evaluator, name)).collect()
}

/// The object of that name in the quota's namespace.
fn one<K: Object + Serialize>(
    objects: &Informer<K>,
    quota: &ObjectKey,
    name: &str,
) -> Result<Option<Value>, Error> {
    let object = objects.get(&quota.namespace, name);
    object.map(|object| value(&*object)).transpose()
}

fn value<K: Serialize>(object: &K) -> Result<Value, Error> {
    let bytes = serde_json::to_vec(object)?;
    Ok(Value::from_json(&bytes)?)
}
