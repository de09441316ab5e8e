//! CronJob: starts Jobs by the clock.

mod missed;
mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;

use client::controller::Reconciled;
use client::{Informer, ObjectKey, WorkQueue, events, retry};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DeleteParams, PostParams, PropagationPolicy};
use tokio_util::sync::CancellationToken;

use crate::lookup::Controlled;
use crate::owned_pods::of_uid;
use crate::watching::{self, Reconciler, enqueue, own_key, owner_key};
use crate::written::{CATCH_UP, Written};
use crate::{Config, Error};
use plan::Observed;

const CONTROLLER: &str = "cronjob-controller";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let crons = config.informers.of::<CronJob>();
    let jobs = config.informers.of::<Job>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join(
        enqueue(&crons, &queue, own_key),
        enqueue(&jobs, &queue, owner_key("CronJob")),
    );
    let controller = Controller {
        events: events::Recorder::new(
            config.client.clone(),
            config.environment.clone(),
            CONTROLLER,
            None,
        ),
        written: Written::default(),
        config,
        crons,
        owned_jobs: Controlled::of(&jobs),
        jobs,
    };
    watching::run("cronjob", 2, queue, feeds, controller, shutdown).await;
}

struct Controller {
    config: Config,
    crons: Informer<CronJob>,
    jobs: Informer<Job>,
    owned_jobs: Controlled<Job>,
    events: events::Recorder,
    written: Written,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.crons.synced().await;
        self.jobs.synced().await;
        if !self.written.is_shown(key, &self.crons) {
            return Ok(Reconciled::After(CATCH_UP));
        }
        let Some(cron) = self.crons.get(&key.namespace, &key.name) else {
            self.written.forget(key);
            return Ok(Reconciled::Done);
        };
        let uid = cron.metadata.uid.as_deref().unwrap_or_default();
        let jobs = self.owned_jobs.by(uid);
        let missing = self.missing(&cron, &jobs).await?;
        let plan = plan::plan(&Observed {
            cron: &cron,
            jobs: &jobs,
            missing: &missing,
            now: self.config.environment.now(),
        });
        for (severity, reason, message) in plan.events {
            let about = events::reference(&*cron);
            self.events.record(about, severity, reason, message);
        }
        let mut status = plan.status;
        for job in plan.delete {
            if self.delete(&cron, &job).await? {
                plan::drop_active(&mut status, job.metadata.uid.as_deref());
            }
        }
        let mut failure = None;
        if let Some((job, due)) = plan.create {
            match self.create(&cron, &job).await {
                Ok(Some(made)) if !plan::is_active(&status, &made) => {
                    list_as_active(&mut status, &made, due);
                }
                Ok(_) => {}
                Err(error) => failure = Some(error),
            }
        }
        if cron.status.clone().unwrap_or_default() != status {
            let mut updated = (*cron).clone();
            updated.status = Some(status);
            let api: Api<CronJob> = Api::namespaced(self.config.client.clone(), &key.namespace);
            match api
                .replace_status(&key.name, &PostParams::default(), &updated)
                .await
            {
                Ok(written) => self.written.note(key, &written),
                Err(error) if retry::is_not_found(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(plan.retry.map_or(Reconciled::Done, Reconciled::After)),
        }
    }
}

impl Controller {
    /// Active Jobs that are not in the cache are asked for: it may only be late.
    async fn missing(&self, cron: &CronJob, jobs: &[Arc<Job>]) -> Result<BTreeSet<String>, Error> {
        let mut missing = BTreeSet::new();
        let status = cron.status.clone().unwrap_or_default();
        for active in status.active.iter().flatten() {
            let uid = active.uid.clone().unwrap_or_default();
            if jobs
                .iter()
                .any(|job| job.metadata.uid.as_ref() == Some(&uid))
            {
                continue;
            }
            let name = active.name.as_deref().unwrap_or_default();
            let found = self.jobs_api(cron).get_opt(name).await?;
            if found.is_none_or(|job| job.metadata.uid.as_ref() != Some(&uid)) {
                missing.insert(uid);
            }
        }
        Ok(missing)
    }

    async fn delete(&self, cron: &CronJob, job: &Job) -> Result<bool, Error> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let parameters = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            ..of_uid(job.metadata.uid.as_deref().unwrap_or_default())
        };
        match self.jobs_api(cron).delete(name, &parameters).await {
            Ok(_) => {
                let message = format!("Deleted job {name}");
                self.events.normal(cron, "SuccessfulDelete", message);
                Ok(true)
            }
            Err(error) if retry::is_not_found(&error) => Ok(true),
            Err(error) => {
                let message = format!("Deleted job: {}", client::retry::sentence(&error));
                self.events.warning(cron, "FailedDelete", message);
                Err(error.into())
            }
        }
    }

    /// The Job, also when an earlier round made it; nothing when the name is somebody else's.
    async fn create(&self, cron: &CronJob, job: &Job) -> Result<Option<Job>, Error> {
        let jobs = self.jobs_api(cron);
        let name = job.metadata.name.as_deref().unwrap_or_default();
        match jobs.create(&PostParams::default(), job).await {
            Ok(made) => {
                let message = format!("Created job {name}");
                self.events.normal(cron, "SuccessfulCreate", message);
                Ok(Some(made))
            }
            Err(error) if retry::is_namespace_terminating(&error) => Ok(None),
            Err(error) if retry::is_already_exists(&error) => {
                let uid = cron.metadata.uid.as_deref().unwrap_or_default();
                let existing = jobs.get_opt(name).await?;
                Ok(existing.filter(|job| semantics::owner::is_controlled_by(&job.metadata, uid)))
            }
            Err(error) => {
                let message = format!("Error creating job: {}", client::retry::sentence(&error));
                self.events.warning(cron, "FailedCreate", message);
                Err(error.into())
            }
        }
    }

    fn jobs_api(&self, cron: &CronJob) -> Api<Job> {
        let namespace = cron.metadata.namespace.as_deref().unwrap_or_default();
        Api::namespaced(self.config.client.clone(), namespace)
    }
}

fn list_as_active(
    status: &mut k8s_openapi::api::batch::v1::CronJobStatus,
    job: &Job,
    due: Timestamp,
) {
    if !crate::job::is_finished(job) {
        status.active.get_or_insert_default().push(ObjectReference {
            api_version: Some("batch/v1".to_owned()),
            kind: Some("Job".to_owned()),
            namespace: job.metadata.namespace.clone(),
            name: job.metadata.name.clone(),
            uid: job.metadata.uid.clone(),
            resource_version: job.metadata.resource_version.clone(),
            field_path: None,
        });
    }
    status.last_schedule_time = Some(Time(due));
}
