//! Once nothing that runs differs from what was granted, the pod's own cgroup follows and the resize is
//! over.

use environment::chain;

use crate::{
    cgroups,
    pod::{resize, worker::Worker},
    pod_spec::uid,
};

/// Why the pod's cgroup has not the new limits.
#[derive(Debug, thiserror::Error)]
enum SettleError {
    #[error(transparent)]
    Cgroup(#[from] cgroups::Error),
    #[error(transparent)]
    Ended(#[from] tokio::task::JoinError),
}

pub fn begin_if_due(worker: &mut Worker) {
    let Some(observed) = worker.runtime.observed() else {
        return;
    };
    let busy = worker.tasks.busy();
    let is_busy = !busy.starting.is_empty()
        || !busy.resizing.is_empty()
        || !busy.killing.is_empty()
        || !worker.starts.replacing().is_empty();
    if worker.is_ending() || is_busy || !worker.resizing.can_settle(worker.pod(), observed) {
        return;
    }
    worker.resizing.settle_begins();
    let (cgroups, pod) = (worker.services.cgroups.clone(), worker.pod().clone());
    let work = async move {
        let done = tokio::task::spawn_blocking(move || cgroups.create(&pod));
        Ok(done.await??)
    };
    worker.tasks.spawn(work, ended);
}

fn ended(worker: &mut Worker, result: Result<(), SettleError>) {
    let progress = worker.resizing.settled().unwrap_or_default();
    let pod = worker.pod();
    match result {
        Ok(()) => {
            let generation = progress.generation;
            let message = resize::event_message("Pod resize completed", pod, generation, "");
            let events = &worker.services.telemetry.events;
            events.normal(pod, "ResizeCompleted", message);
        }
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(pod = uid(pod), %error, "a pod's cgroup was not resized");
        }
    }
}
