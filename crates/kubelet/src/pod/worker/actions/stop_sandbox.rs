//! Stops a sandbox: its network ends, and with it everything that runs in it.

use std::sync::Arc;

use cri::v1;
use trace::Hop;

use super::RETRY_PAUSE;
use crate::{
    pod::{services::PodServices, worker::Worker},
    pod_spec::uid,
};

pub(super) fn begin(worker: &mut Worker, id: String) {
    worker.tasks.busy_mut().stopping.insert(id.clone());
    let work = stop(worker.services.clone(), uid(worker.pod()), id.clone());
    worker
        .tasks
        .spawn(work, move |worker, is_done| ended(worker, &id, is_done));
}

async fn stop(services: Arc<PodServices>, uid: String, id: String) -> bool {
    let spans = &services.telemetry.spans;
    let began = spans.now();
    let request = v1::StopPodSandboxRequest { pod_sandbox_id: id };
    let stopped = services.cri.runtime.clone().stop_pod_sandbox(request).await;
    match stopped {
        Err(status) if status.code() != tonic::Code::NotFound => {
            tracing::warn!(%status, "a sandbox could not be stopped");
            tokio::time::sleep(RETRY_PAUSE).await;
            false
        }
        _ => {
            spans.record(&uid, Hop::After, "StopPodSandbox", began, began);
            true
        }
    }
}

fn ended(worker: &mut Worker, id: &str, is_done: bool) {
    worker.tasks.busy_mut().stopping.remove(id);
    if let Some(observed) = worker.runtime.own_change().filter(|_| is_done) {
        for sandbox in &mut observed.sandboxes {
            sandbox.ready &= sandbox.id != id;
        }
    }
}
