//! Gives a running container the limits that it was granted. The pod's cgroup is widened first where
//! that is necessary.

use std::sync::Arc;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use tokio::time::Instant;

use crate::{
    container::config,
    pod::{measuring::cgroups_changed, resize, services::PodServices, worker::Worker},
    pod_spec::find_init_or_app,
    resources,
    runtime::RpcError,
};

/// Why a container was not resized, as the pod's condition says it.
#[derive(Debug, thiserror::Error)]
enum ResizeError {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Ended(#[from] tokio::task::JoinError),
    #[error(transparent)]
    Rpc(#[from] RpcError),
}

pub(super) fn begin(worker: &mut Worker, id: String, container: String) {
    let pod = worker.pod().clone();
    let Some(spec) = find_init_or_app(&pod, &container).cloned() else {
        return;
    };
    worker.tasks.busy_mut().resizing.insert(id.clone());
    let present = worker.resizing.memory_limit(&id);
    let resources = spec.resources.clone().unwrap_or_default();
    let work = run(worker.services.clone(), pod, id.clone(), spec, present);
    worker.tasks.spawn(work, move |worker, result| {
        ended(worker, id, resources, result);
    });
}

fn ended(
    worker: &mut Worker,
    id: String,
    resources: ResourceRequirements,
    result: Result<(), ResizeError>,
) {
    worker.tasks.busy_mut().resizing.remove(&id);
    let generation = worker.forms.desired().metadata.generation;
    match result {
        Ok(()) => worker.resizing.changed(generation, id, resources),
        Err(error) => {
            let (error, now) = (error.to_string(), worker.now());
            let message =
                resize::event_message("Pod resize error", worker.pod(), generation, &error);
            if worker.resizing.change_failed(generation, error, now) {
                let events = &worker.services.telemetry.events;
                events.warning(worker.pod(), "ResizeError", message);
            }
        }
    }
}

/// `present` is the memory limit that the container has.
async fn run(
    services: Arc<PodServices>,
    pod: Arc<Pod>,
    id: String,
    container: Container,
    present: Option<i64>,
) -> Result<(), ResizeError> {
    let wanted = resources::effective_limit(&pod, &container, "memory").and_then(resources::whole);
    if wanted.is_some_and(|wanted| present.is_none_or(|present| wanted < present)) {
        let usage = memory_usage(&services.cri, &id).await;
        if let Some(why) = resize::refuses_decrease(&container.name, wanted, present, usage) {
            return Err(ResizeError::Refused(why));
        }
    }
    let (cgroups, for_cgroup) = (services.cgroups.clone(), pod.clone());
    let began = Instant::now();
    tokio::task::spawn_blocking(move || cgroups.widen(&for_cgroup)).await?;
    cgroups_changed(&services.telemetry.measures, "update", began.elapsed());
    let settings = &services.settings;
    let machine = settings.machine(services.cgroups.limits_swap_of_containers());
    let mut limits = config::limits(&pod, &container, &machine);
    config::enforce_cpu(&mut limits, settings.configuration.cpu_quota_period());
    // Unset means unchanged here; no limit has to be said.
    if limits.cpu_quota == 0 {
        limits.cpu_quota = -1;
    }
    let request = v1::UpdateContainerResourcesRequest {
        container_id: id,
        linux: Some(limits),
        ..Default::default()
    };
    let mut runtime = services.cri.runtime.clone();
    match runtime.update_container_resources(request).await {
        Ok(_) => Ok(()),
        Err(status) => Err(RpcError(status).into()),
    }
}

async fn memory_usage(cri: &cri::Client, id: &str) -> Option<u64> {
    let request = v1::ContainerStatsRequest {
        container_id: id.to_owned(),
    };
    let response = cri.runtime.clone().container_stats(request).await;
    let memory = response.ok()?.into_inner().stats?.memory?;
    let used = memory.usage_bytes.or(memory.working_set_bytes)?;
    Some(used.value)
}
