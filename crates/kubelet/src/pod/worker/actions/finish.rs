//! The last action: the final status is written, everything of the pod is removed from the node, then
//! its object is deleted. Each part is tried until it is done.

use std::sync::Arc;

use environment::chain;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use serde_json::Value;
use tokio::time::Instant;
use trace::Hop;

use super::RETRY_PAUSE;
use crate::{
    pod::{
        lifecycle::Lifecycle, measuring::cgroups_changed, services::PodServices, status_writer,
        worker::Worker,
    },
    pod_spec::uid,
    runtime,
};

/// The last status of a pod, and the status as the API has it.
type LastStatus = (PodStatus, Value);

pub(super) fn begin(worker: &mut Worker) {
    worker.tasks.busy_mut().finishing = true;
    let sandboxes = worker
        .runtime
        .observed()
        .into_iter()
        .flat_map(|observed| observed.sandboxes.iter().rev())
        .map(|sandbox| sandbox.id.clone())
        .collect();
    let last = match worker.lifecycle {
        Lifecycle::Deleted => None,
        _ => Some((worker.compute_status(), worker.reporting.written().clone())),
    };
    let work = run(
        worker.services.clone(),
        worker.pod().clone(),
        sandboxes,
        last,
    );
    worker.tasks.spawn(work, |worker, ()| {
        worker.lifecycle.advance(Lifecycle::Finished);
    });
}

/// Without a last status the API has the pod no longer.
async fn run(
    services: Arc<PodServices>,
    pod: Arc<Pod>,
    sandboxes: Vec<String>,
    last: Option<LastStatus>,
) {
    let api_has_it = last.is_some();
    let write = async {
        if let Some(last) = last {
            write_last_status(&services, &pod, last).await;
        }
    };
    tokio::join!(remove_from_node(&services, &pod, sandboxes), write);
    if api_has_it {
        delete(&services, &pod).await;
    }
}

async fn remove_from_node(services: &PodServices, pod: &Pod, sandboxes: Vec<String>) {
    let uid = uid(pod);
    for id in sandboxes {
        while !runtime::remove_sandbox(&services.cri, id.clone()).await {}
    }
    while let Err(error) = services.volumes.tear_down(&uid).await {
        tracing::warn!(pod = uid, error = %chain(&error), "a pod's volumes could not be removed");
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    let began = Instant::now();
    services.cgroups.remove(&uid).await;
    cgroups_changed(&services.telemetry.measures, "destroy", began.elapsed());
    let _ = tokio::fs::remove_dir_all(services.settings.pod_log_dir(pod)).await;
}

async fn write_last_status(services: &PodServices, pod: &Pod, (status, before): LastStatus) {
    let uid = uid(pod);
    let patch = status_writer::patch(&uid, &before, &status_writer::to_value(&status));
    loop {
        match status_writer::write(&services.client, pod, patch.clone()).await {
            Ok(_) | Err(status_writer::Error::Gone) => break,
            Err(error) => {
                tracing::warn!(pod = uid, error = %chain(&error), "the last status was not written");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

async fn delete(services: &PodServices, pod: &Pod) {
    let (spans, uid) = (&services.telemetry.spans, uid(pod));
    let began = spans.now();
    let api: Api<Pod> = Api::namespaced(
        services.client.clone(),
        pod.metadata.namespace.as_deref().unwrap_or_default(),
    );
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    loop {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match api.delete(name, &parameters).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => break,
            Err(error) => {
                tracing::warn!(pod = uid, error = %chain(&error), "a pod could not be deleted");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
    spans.record(&uid, Hop::After, "delete", began, began);
}
