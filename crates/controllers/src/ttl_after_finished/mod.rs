//! Removes Jobs some time after they have ended (`ttlSecondsAfterFinished`).

mod plan;

use client::controller::Reconciled;
use client::{ObjectKey, WorkQueue, retry};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{DeleteParams, PropagationPolicy};
use tokio_util::sync::CancellationToken;

use crate::owned_pods::of_uid;
use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error};
use plan::Expiry;

const CONTROLLER: &str = "ttl-after-finished-controller";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let jobs = config.informers.of::<Job>();
    let queue = WorkQueue::new();
    let feeds = enqueue(&jobs, &queue, |job: &Job| match plan::has_ttl(job) {
        true => own_key(job),
        false => Vec::new(),
    });
    let reconcile = move |key: ObjectKey| {
        let (config, jobs) = (config.clone(), jobs.clone());
        async move {
            jobs.synced().await;
            match jobs.get(&key.namespace, &key.name) {
                Some(job) => reconcile(&config, &key, &job).await,
                None => Ok(Reconciled::Done),
            }
        }
    };
    watching::run(CONTROLLER, 1, queue, feeds, reconcile, shutdown).await;
}

async fn reconcile(config: &Config, key: &ObjectKey, job: &Job) -> Result<Reconciled, Error> {
    let now = config.environment.now();
    match plan::expiry(job, now) {
        Expiry::Never => return Ok(Reconciled::Done),
        Expiry::In(wait) => return Ok(Reconciled::After(wait)),
        Expiry::Due => {}
    }
    // Our copy may be old, and the time to live may have been changed since.
    let api: Api<Job> = Api::namespaced(config.client.clone(), &key.namespace);
    let Some(fresh) = api.get_opt(&key.name).await? else {
        return Ok(Reconciled::Done);
    };
    match plan::expiry(&fresh, now) {
        Expiry::Never => return Ok(Reconciled::Done),
        Expiry::In(wait) => return Ok(Reconciled::After(wait)),
        Expiry::Due => {}
    }
    let parameters = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..of_uid(fresh.metadata.uid.as_deref().unwrap_or_default())
    };
    match api.delete(&key.name, &parameters).await {
        Ok(_) => Ok(Reconciled::Done),
        Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => {
            Ok(Reconciled::Done)
        }
        Err(error) => Err(error.into()),
    }
}
