//! Creates and starts a container and runs its postStart hook.

use std::sync::Arc;

use client::events::Severity;
use cri::v1;
use environment::chain;
use k8s_openapi::api::core::v1::ResourceRequirements;
use trace::Hop;

use super::{
    container_config::{self, Start},
    kill_container::{self, Kill},
    pod_ips, sandbox_config, termination_message,
};
use crate::{
    hooks,
    image::Image,
    measures::Counter,
    pod::{
        measuring::container_kind,
        services::PodServices,
        status::Waiting,
        worker::{Worker, own_grace_period},
    },
    pod_spec::{self, uid},
    runtime::{ContainerRecord, observe},
};

/// Why a container did not start.
#[derive(Clone, Debug)]
struct StartFailure {
    /// The waiting reason of its status.
    reason: &'static str,
    message: String,
    /// The container as the runtime has it, if it was created.
    record: Option<ContainerRecord>,
}

pub(super) fn begin(worker: &mut Worker, container: String, image: Image, restart_count: i32) {
    let pod = worker.pod().clone();
    let Some(spec) = pod_spec::find(&pod, &container) else {
        return;
    };
    let Some(observed) = worker.runtime.observed() else {
        return;
    };
    let Some(sandbox) = observed.ready_sandbox().cloned() else {
        return;
    };
    let now = worker.now();
    // A container that a probe ended restarts with the back-off of the run before it.
    let by_probe = worker.probing.decided(&container);
    let latest = observed.latest(&container).filter(|record| record.ended());
    let cause = match latest {
        Some(record) if by_probe.as_ref() == Some(&record.id) => observed.before(record),
        latest => latest,
    };
    if let Some(record) = cause {
        let longest = worker
            .services
            .settings
            .configuration
            .longest_restart_pause();
        let ended = record.finished_at / 1000;
        worker
            .starts
            .restarts_after(&container, ended, now, longest);
    }
    let target_id = pod_spec::target(&pod, &container)
        .and_then(|target| observed.latest(target))
        .map(|record| record.id.clone());
    let resources = spec.resources.clone().unwrap_or_default();
    let start = Start {
        pod,
        container: spec,
        image,
        restart_count,
        sandbox,
        mounted: worker.volumes.mounted().clone(),
        held: worker.watches.held(),
        target_id,
        wanted: now,
        stop: worker.tasks.ending(),
    };
    worker.tasks.busy_mut().starting.insert(container.clone());
    worker
        .attempts
        .begins(format!("StartContainer {container}"));
    let work = run(worker.services.clone(), start);
    worker.tasks.spawn(work, move |worker, result| {
        ended(worker, container, resources, result);
    });
}

/// `resources`: those with which it was to start.
fn ended(
    worker: &mut Worker,
    container: String,
    resources: ResourceRequirements,
    result: Result<ContainerRecord, StartFailure>,
) {
    worker.tasks.busy_mut().starting.remove(&container);
    worker.starts.replaced(&container);
    worker.images.used(&container);
    let record = match result {
        Ok(record) => {
            for step in ["CreateContainer", "StartContainer", "PostStart"] {
                worker.attempts.succeeded(&format!("{step} {container}"));
            }
            worker.starts.started(&container);
            worker.resizing.started_with(record.id.clone(), resources);
            Some(record)
        }
        Err(failure) => {
            let waiting = Waiting {
                reason: failure.reason.to_owned(),
                message: failure.message.clone(),
            };
            let until = worker.starts.failed(&container, waiting, worker.now());
            let retry = failure.record.is_none().then_some(until);
            let cause = (failure.reason, failure.message.as_str());
            worker.attempts.start_failed(&container, cause, retry);
            worker.runtime.read_again();
            failure.record
        }
    };
    if let (Some(observed), Some(record)) = (worker.runtime.own_change(), record) {
        // It may have ended since, and that may be known already.
        let mut known = observed.containers.iter();
        if !known.any(|known| known.id == record.id && known.ended()) {
            observed.put_container(record);
        }
    }
}

async fn run(
    services: Arc<PodServices>,
    mut start: Start,
) -> Result<ContainerRecord, StartFailure> {
    start.mounted.images = std::mem::take(&mut start.image.volumes);
    let (cri, telemetry) = (&services.cri, &services.telemetry);
    let spans = &telemetry.spans;
    let (pod, container) = (&start.pod, &start.container);
    let report = |severity, reason: &str, message: &str| {
        telemetry
            .events
            .container(pod, &container.name, severity, reason, message);
    };
    let kind = container_kind(pod, &container.name);
    let measures = &telemetry.measures;
    measures.count(Counter::StartedContainers, &[kind]);
    let fail = |reason: &'static str, message: String, record| {
        measures.count(Counter::StartedContainersErrors, &[kind, reason]);
        report(Severity::Warning, "Failed", &format!("Error: {message}"));
        StartFailure {
            reason,
            message,
            record,
        }
    };
    let began = spans.now();
    let pod_ips = pod_ips(&services.settings.host_ip, pod, &start.sandbox);
    let container_config = container_config::of(&services, &start, &pod_ips)
        .await
        .map_err(|error| {
            let message = chain(&error).to_string();
            fail("CreateContainerConfigError", message, None)
        })?;
    let resolv_conf = &services.settings.configuration.resolv_conf;
    let resolv_conf = tokio::fs::read_to_string(resolv_conf).await;
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: start.sandbox.id.clone(),
        config: Some(container_config),
        sandbox_config: Some(sandbox_config::of(
            &services,
            pod,
            start.sandbox.attempt,
            &resolv_conf.unwrap_or_default(),
        )),
    };
    let created = cri.runtime.clone().create_container(request).await;
    let created = created
        .map_err(|status| fail("CreateContainerError", status.message().to_owned(), None))?;
    let id = created.into_inner().container_id;
    let name = format!("CreateContainer {}", container.name);
    let uid = uid(pod);
    spans.record(&uid, Hop::Node, name, start.wanted, began);
    report(Severity::Normal, "Created", "Container created");

    let began = spans.now();
    let request = v1::StartContainerRequest {
        container_id: id.clone(),
    };
    let started = cri.runtime.clone().start_container(request).await;
    let record = || async {
        let record = observe::container(cri, id.clone(), start.sandbox.id.clone()).await;
        record.ok().flatten()
    };
    if let Err(status) = started {
        let record = record().await;
        let message = status.message().to_owned();
        return Err(fail("RunContainerError", message, record));
    }
    let name = format!("StartContainer {}", container.name);
    spans.record(&uid, Hop::Node, name, began, began);
    report(Severity::Normal, "Started", "Container started");

    let hook = container
        .lifecycle
        .as_ref()
        .and_then(|lifecycle| lifecycle.post_start.as_ref());
    if let Some(hook) = hook {
        let ip = pod_ips.first().cloned().unwrap_or_default();
        let run = hooks::run(cri, telemetry, hook, pod, container, &id, &ip);
        let result = tokio::select! {
            result = run => result,
            () = start.stop.cancelled() => Ok(()),
        };
        if let Err(error) = result {
            tracing::info!(pod = uid, container = container.name, %error, "a postStart hook failed");
            let message = "PostStartHook failed";
            report(Severity::Warning, "FailedPostStartHook", message);
            let kill = Kill {
                pod: pod.clone(),
                id: id.clone(),
                sandbox_id: start.sandbox.id.clone(),
                container: container.name.clone(),
                message: "FailedPostStartHook".to_owned(),
                grace: own_grace_period(pod, None),
                pod_ip: ip,
                turn: None,
            };
            let record = kill_container::run(services.clone(), kill).await;
            return Err(StartFailure {
                reason: "PostStartHookError",
                message: error.to_string(),
                record,
            });
        }
    }
    match record().await {
        Some(mut record) => {
            termination_message::complete(&services.volumes, pod, &mut record).await;
            Ok(record)
        }
        None => {
            let message = "the container is gone right after its start".to_owned();
            Err(fail("RunContainerError", message, None))
        }
    }
}
