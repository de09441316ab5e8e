//! Reads the pod from the runtime.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::{RETRY_PAUSE, termination_message};
use crate::{
    measures::Histogram,
    pod::{services::PodServices, worker::Worker},
    pod_spec::uid,
    runtime::{Observed, observe},
};

/// Reads the pod if that is due and not already under way.
pub fn begin_if_due(worker: &mut Worker) {
    let Some(epoch) = worker.runtime.begin_reading() else {
        return;
    };
    let work = read(worker.services.clone(), worker.pod().clone());
    worker.tasks.spawn(work, move |worker, observed| {
        if worker.runtime.reading_ended(epoch, observed) {
            worker.settle_kills();
        }
    });
}

async fn read(services: Arc<PodServices>, pod: Arc<Pod>) -> Result<Observed, tonic::Status> {
    let uid = uid(&pod);
    let began = Instant::now();
    let observed = observe::pod(&services.cri, &uid).await;
    let took = began.elapsed();
    let measures = &services.telemetry.measures;
    measures.time(Histogram::PlegRelistDuration, &[], took);
    match observed {
        Ok(mut observed) => {
            for record in &mut observed.containers {
                termination_message::complete(&services.volumes, &pod, record).await;
            }
            Ok(observed)
        }
        Err(status) => {
            tokio::time::sleep(RETRY_PAUSE / 5).await;
            Err(status)
        }
    }
}
