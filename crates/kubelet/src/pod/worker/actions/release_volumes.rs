//! Unmounts the volumes of a pod that has ended though its object stays.

use std::sync::Arc;

use environment::chain;

use super::RETRY_PAUSE;
use crate::{
    pod::{services::PodServices, worker::Worker},
    pod_spec::uid,
};

pub(super) fn begin(worker: &mut Worker) {
    // A refresh that is under way would set them up again.
    if worker.volumes.is_refreshing() {
        return;
    }
    worker.tasks.busy_mut().released = true;
    worker.volumes.release();
    let work = release(worker.services.clone(), uid(worker.pod()));
    worker.tasks.spawn(work, |worker, is_done| {
        worker.tasks.busy_mut().released = is_done;
    });
}

async fn release(services: Arc<PodServices>, uid: String) -> bool {
    match services.volumes.release(&uid).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(pod = uid, error = %chain(&error), "an ended pod's volumes could not be removed");
            tokio::time::sleep(RETRY_PAUSE).await;
            false
        }
    }
}
