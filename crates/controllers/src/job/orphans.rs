//! Pods that still have the tracking finalizer although no Job will count them: their Job is gone
//! or finished. Without this they could never be deleted.

use std::sync::Arc;

use client::controller::Reconciled;
use client::{Informer, ObjectKey, WorkQueue};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;

use super::{CONTROLLER, is_finished, pod};
use crate::lookup::{Controlled, Selecting};
use crate::owned_pods::PodControl;
use crate::watching::{self, enqueue};
use crate::{Config, Error};

pub async fn run(config: Config, shutdown: CancellationToken) {
    let jobs = config.informers.of::<Job>();
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join(
        enqueue(&pods, &queue, |pod: &Pod| match pod::is_tracked(pod) {
            true => vec![ObjectKey::of(pod)],
            false => Vec::new(),
        }),
        enqueue(&jobs, &queue, {
            let pods = Controlled::of(&pods);
            move |job: &Job| tracked_pods_of(&pods, job)
        }),
    );
    let control = Arc::new(PodControl::new(&config, CONTROLLER));
    let selecting = Selecting::of(&jobs);
    let reconcile = move |key: ObjectKey| {
        let (jobs, pods, control) = (jobs.clone(), pods.clone(), control.clone());
        let selecting = selecting.clone();
        async move {
            jobs.synced().await;
            pods.synced().await;
            if let Some(pod) = pods.get(&key.namespace, &key.name)
                && pod::is_tracked(&pod)
                && is_orphan(&jobs, &selecting, &pod)
            {
                control.remove_finalizer(&pod, pod::TRACKING).await?;
            }
            Ok::<_, Error>(Reconciled::Done)
        }
    };
    watching::run("job-orphans", 1, queue, feeds, reconcile, shutdown).await;
}

/// Whether no unfinished Job counts this pod or is about to adopt it.
fn is_orphan(jobs: &Informer<Job>, selecting: &Selecting<Job>, pod: &Pod) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    match semantics::owner::controller_of(&pod.metadata) {
        Some(owner) if owner.kind != "Job" => true,
        Some(owner) => jobs
            .get(namespace, &owner.name)
            .is_none_or(|job| job.metadata.uid.as_ref() != Some(&owner.uid) || is_finished(&job)),
        None => {
            let jobs = selecting.of_labels(namespace, pod.metadata.labels.as_ref());
            !jobs
                .iter()
                .any(|job| job.metadata.deletion_timestamp.is_none() && !is_finished(job))
        }
    }
}

/// Pods may have been seen to go before their Job was, so they are looked at again with it.
fn tracked_pods_of(pods: &Controlled<Pod>, job: &Job) -> Vec<ObjectKey> {
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    pods.by(uid)
        .into_iter()
        .filter(|pod| pod::is_tracked(pod))
        .map(|pod| ObjectKey::of(&*pod))
        .collect()
}
