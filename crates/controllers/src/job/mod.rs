//! Job: pods that run to completion, counted exactly once.

mod backoff;
mod failure_policy;
mod indexes;
mod orphans;
mod plan;
mod pod;
#[cfg(test)]
mod tests;
mod tracking;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::controller::Reconciled;
use client::{Informer, ObjectKey, WorkQueue, retry};
use futures::future::join_all;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::lookup::{Controlled, Selecting};
use crate::owned_pods::{PodControl, claim};
use crate::watching::{self, Reconciler, enqueue, own_key, owner_key};
use crate::written::{CATCH_UP, Written};
use crate::{Config, Error};
use backoff::Backoff;
use plan::Plan;
use tracking::{Counts, Suspension};
use view::View;

pub use view::{condition, is_finished};

const CONTROLLER: &str = "job-controller";
/// Jobs are ours unless `spec.managedBy` names another controller.
const MANAGER: &str = "kubernetes.io/job-controller";
/// A safety net for a watch that stays silent; its events come first.
const CACHE_PATIENCE: Duration = Duration::from_secs(30);

pub async fn run(config: Config, shutdown: CancellationToken) {
    let orphans = orphans::run(config.clone(), shutdown.clone());
    let jobs = config.informers.of::<Job>();
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join3(
        enqueue(&jobs, &queue, own_key),
        enqueue(&pods, &queue, owner_key("Job")),
        enqueue(&pods, &queue, {
            let jobs = Selecting::of(&jobs);
            move |pod: &Pod| watching::possible_owners(&jobs, pod)
        }),
    );
    let controller = Controller {
        control: PodControl::new(&config, CONTROLLER),
        written: Written::default(),
        memory: Mutex::default(),
        config,
        jobs,
        owned_pods: Controlled::of(&pods),
        pods,
    };
    let running = watching::run("job", 4, queue, feeds, controller, shutdown);
    futures::future::join(running, orphans).await;
}

struct Controller {
    config: Config,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    owned_pods: Controlled<Pod>,
    control: PodControl,
    written: Written,
    memory: Mutex<BTreeMap<ObjectKey, Memory>>,
}

/// What is remembered about a Job between rounds; lost in a crash without harm.
#[derive(Clone, Default)]
struct Memory {
    backoff: Backoff,
    /// UIDs of pods that we released, though the cache does not show it yet.
    released: BTreeSet<String>,
}

impl Reconciler for Controller {
    /// 1. Unless the cache is behind what we wrote: look at the Job and its pods.
    /// 2. Carry out what is planned about them.
    /// 3. List newly ended pods in the status, let them go, move them into the totals; the last
    ///    condition comes when all are counted.
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.jobs.synced().await;
        self.pods.synced().await;
        if !self.written.is_shown(key, &self.jobs) {
            return Ok(Reconciled::After(CATCH_UP));
        }
        let Some(job) = self.jobs.get(&key.namespace, &key.name) else {
            self.forget(key);
            return Ok(Reconciled::Done);
        };
        let manager = job
            .spec
            .as_ref()
            .and_then(|spec| spec.managed_by.as_deref());
        if manager.is_some_and(|manager| manager != MANAGER) {
            return Ok(Reconciled::Done);
        }
        if is_finished(&job) {
            self.forget(key);
            return Ok(Reconciled::Done);
        }
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let is_current = self.control.is_current(key, uid, &self.pods).await?;
        let client = &self.config.client;
        let finalizers = [pod::TRACKING];
        let selector = selector(&job);
        if selector == LabelSelector::default() {
            // It would never recognise its own pods and make new ones for ever.
            return Ok(Reconciled::Done);
        }
        let all = self.owned_pods.claimable(&job.metadata, &selector);
        let pods = claim::claim_with(client, &*job, &selector, all, |_| true, &finalizers).await?;
        let memory = self.remember(key, &pods);

        let now = self.config.environment.now();
        let view = View::new(&job, &pods, &memory.released);
        let backoff = memory
            .backoff
            .after(&view.newly_succeeded(), &view.newly_failed());
        let acts = is_current && job.metadata.deletion_timestamp.is_none();
        let plan = plan::plan(&view, backoff, acts, now);
        let (counts, failure) = self.carry_out(key, &view, &plan).await;
        let deleted_all = counts.active == 0 && is_current;
        let verdict = match &plan.verdict {
            Some(verdict) => Some(verdict.clone()).filter(|_| deleted_all),
            None => tracking::is_complete(&view, counts.active).then(|| {
                let message = "Reached expected number of succeeded pods";
                plan::condition("SuccessCriteriaMet", "CompletionsReached", message, now)
            }),
        };
        let suspension =
            Suspension::due(&view).filter(|_| acts && plan.verdict.is_none() && verdict.is_none());
        let retry = plan.retry;
        self.count(key, &view, &plan, counts, verdict, suspension, backoff)
            .await?;
        if let Some(error) = failure {
            return Err(error);
        }
        let waiting = (!is_current).then_some(CACHE_PATIENCE);
        let next = [retry, waiting].into_iter().flatten().min();
        Ok(next.map_or(Reconciled::Done, Reconciled::After))
    }
}

impl Controller {
    /// Returns the pods there are then.
    async fn carry_out(
        &self,
        key: &ObjectKey,
        view: &View<'_>,
        plan: &Plan,
    ) -> (Counts, Option<Error>) {
        let job = view.job;
        let active = view.active();
        let ready = active
            .iter()
            .filter(|pod| semantics::pod::is_ready(pod))
            .count();
        let mut counts = Counts {
            active: active.len() as i32,
            ready: ready as i32,
            terminating: view.terminating().count() as i32,
        };
        let deletions = plan.delete.iter().map(|pod| async move {
            if !(plan.mark_deleted && view.is_held(pod)) {
                return self.control.delete(key, job, pod).await.map(|()| true);
            }
            // That it is stopped is not to be counted. Should it turn out to have succeeded, that
            // is, or its index would run and complete once more: we keep hold of it until it ends.
            let control = &self.control;
            control.delete_marked(key, job, pod, pod::LEAVING).await
        });
        let mut failure = None;
        for (result, pod) in join_all(deletions).await.into_iter().zip(&plan.delete) {
            match result {
                // Its event brings us back.
                Ok(false) => {}
                Ok(true) => {
                    counts.active -= 1;
                    counts.terminating += 1;
                    counts.ready -= i32::from(semantics::pod::is_ready(pod));
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let (made, refused) = self.control.create_all(key, job, plan.create.clone()).await;
        counts.active += made as i32;
        (counts, failure.or(refused))
    }

    #[expect(clippy::too_many_arguments, reason = "one step of one workflow")]
    async fn count(
        &self,
        key: &ObjectKey,
        view: &View<'_>,
        plan: &Plan,
        counts: Counts,
        verdict: Option<JobCondition>,
        suspension: Option<Suspension>,
        backoff: Backoff,
    ) -> Result<(), Error> {
        let now = self.config.environment.now();
        let tracking = tracking::track(view, counts, verdict, &plan.delayed, suspension, now);
        let mut job = view.job.clone();
        if job.status.as_ref() != Some(&tracking.status) {
            job.status = Some(tracking.status.clone());
            let Some(answer) = self.write_status(key, &job).await? else {
                return Ok(());
            };
            job = answer;
            match suspension {
                Some(Suspension::Suspended) => {
                    let events = &self.control.events;
                    events.normal(view.job, "Suspended", "Job suspended");
                }
                Some(Suspension::Resumed) => {
                    let events = &self.control.events;
                    events.normal(view.job, "Resumed", "Job resumed");
                }
                None => {}
            }
        }
        if let Some(memory) = self.memory.lock().get_mut(key) {
            memory.backoff = backoff;
        }
        let releases = tracking.release.iter().map(|pod| async move {
            self.control.remove_finalizer(pod, pod::TRACKING).await?;
            self.note_released(key, [pod.as_ref()]);
            Ok::<_, Error>(pod.metadata.uid.clone().unwrap_or_default())
        });
        let (mut released, mut failure) = (BTreeSet::new(), None);
        for result in join_all(releases).await {
            match result {
                Ok(uid) => {
                    released.insert(uid);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let before = job.status.clone().unwrap_or_default();
        let status = tracking.finish(before.clone(), &released);
        if status != before {
            job.status = Some(status);
            if let Some(job) = self.write_status(key, &job).await? {
                self.announce_end(&job);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn announce_end(&self, job: &Job) {
        let status = job.status.clone().unwrap_or_default();
        let events = &self.control.events;
        if condition(&status, "Complete").is_some() {
            let wanted = job.spec.as_ref().and_then(|spec| spec.completions);
            if wanted.is_some_and(|wanted| status.succeeded.unwrap_or(0) > wanted) {
                let message = "Too many succeeded pods running after completion count reached";
                events.warning(job, "TooManySucceededPods", message);
            }
            events.normal(job, "Completed", "Job completed");
        } else if let Some(failed) = condition(&status, "Failed") {
            let reason = failed.reason.as_deref().unwrap_or_default();
            let message = failed.message.as_deref().unwrap_or_default();
            events.warning(job, reason, message);
        }
    }

    /// The stored object; nothing when the Job is gone.
    async fn write_status(&self, key: &ObjectKey, job: &Job) -> Result<Option<Job>, Error> {
        let api: Api<Job> = Api::namespaced(self.config.client.clone(), &key.namespace);
        match api
            .replace_status(&key.name, &PostParams::default(), job)
            .await
        {
            Ok(written) => {
                self.written.note(key, &written);
                Ok(Some(written))
            }
            Err(error) if retry::is_not_found(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What is remembered about the Job, without what the cache shows by now.
    fn remember(&self, key: &ObjectKey, pods: &[Arc<Pod>]) -> Memory {
        let mut all = self.memory.lock();
        let memory = all.entry(key.clone()).or_default();
        memory.released.retain(|uid| {
            pods.iter()
                .any(|pod| pod.metadata.uid.as_ref() == Some(uid) && pod::is_tracked(pod))
        });
        memory.clone()
    }

    fn note_released<'a>(&self, key: &ObjectKey, pods: impl IntoIterator<Item = &'a Pod>) {
        let uids = pods.into_iter().filter_map(|pod| pod.metadata.uid.clone());
        let mut all = self.memory.lock();
        all.entry(key.clone()).or_default().released.extend(uids);
    }

    fn forget(&self, key: &ObjectKey) {
        self.control.expectations.forget(key);
        self.written.forget(key);
        self.memory.lock().remove(key);
    }
}

fn selector(job: &Job) -> LabelSelector {
    let spec = job.spec.as_ref();
    spec.and_then(|spec| spec.selector.clone())
        .unwrap_or_default()
}
