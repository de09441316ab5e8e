//! Kills a container: preStop hook, SIGTERM, and SIGKILL at the end of its grace period.

use std::{sync::Arc, time::Duration};

use client::events::Severity;
use cri::v1;
use k8s_openapi::api::core::v1::Pod;
use trace::Hop;

use super::{RETRY_PAUSE, pod_ips, termination_message};
use crate::{
    hooks,
    pod::{
        plan::KillReason,
        restarts::restarts_failed,
        services::PodServices,
        worker::{Worker, turns::Turn},
    },
    pod_spec::{find_init_or_app, uid},
    runtime::{ContainerRecord, ContainerState, observe},
};

/// However short the grace period is, a container gets these seconds to end by itself.
const MINIMUM_GRACE: i64 = 2;
/// The exit code of a container whose end is unknown.
const UNKNOWN_EXIT: i32 = 255;

/// The input of one container kill.
pub(super) struct Kill {
    pub pod: Arc<Pod>,
    pub id: String,
    pub sandbox_id: String,
    pub container: String,
    /// The message of the Killing event.
    pub message: String,
    /// The grace period in seconds.
    pub grace: i64,
    pub pod_ip: String,
    /// The turn that a sidecar waits for before it is stopped.
    pub turn: Option<Turn>,
}

pub(super) fn begin(worker: &mut Worker, id: String, container: String, reason: KillReason) {
    let pod = worker.pod().clone();
    let Some(observed) = worker.runtime.observed() else {
        return;
    };
    let Some(record) = observed.containers.iter().find(|record| record.id == id) else {
        return;
    };
    let spec = find_init_or_app(&pod, &container);
    let probe = match reason {
        KillReason::LivenessProbe => spec.and_then(|spec| spec.liveness_probe.as_ref()),
        KillReason::StartupProbe => spec.and_then(|spec| spec.startup_probe.as_ref()),
        _ => None,
    };
    let probe_grace = probe.and_then(|probe| probe.termination_grace_period_seconds);
    let turn = (reason == KillReason::PodEnds).then(|| worker.turns.of(&pod, &container));
    let turn = turn.flatten();
    if turn.is_some() {
        worker.turns.publish(observed, worker.tasks.busy());
    }
    let host_ip = &worker.services.settings.host_ip;
    let pod_ip = observed
        .sandbox()
        .and_then(|sandbox| pod_ips(host_ip, &pod, sandbox).into_iter().next())
        .unwrap_or_default();
    let kill = Kill {
        message: message(&pod, &container, reason),
        id: id.clone(),
        sandbox_id: record.sandbox_id.clone(),
        container: container.clone(),
        grace: match reason {
            KillReason::RestartAll => 0,
            _ => worker.grace_period(probe_grace),
        },
        pod_ip,
        turn,
        pod,
    };
    let is_replaced = matches!(reason, KillReason::DefinitionChanged | KillReason::Resize);
    if is_replaced || reason == KillReason::StateUnknown {
        worker.starts.replace(&container, is_replaced);
    }
    let (grace, for_result) = (kill.grace, id.clone());
    let work = run(worker.services.clone(), kill);
    worker
        .tasks
        .spawn_kill(id, grace, work, move |worker, record| {
            ended(worker, &for_result, record);
        });
}

fn ended(worker: &mut Worker, id: &str, record: Option<ContainerRecord>) {
    worker.tasks.kill_ended(id);
    match record {
        Some(record) if worker.runtime.observed().is_some() => {
            if let Some(observed) = worker.runtime.own_change() {
                observed.put_container(record);
            }
        }
        _ => {
            worker.runtime.own_change();
            worker.runtime.read_again();
        }
    }
    worker.settle_kills();
}

/// The message of the Killing event, as upstream words it.
fn message(pod: &Pod, container: &str, reason: KillReason) -> String {
    let cause = match reason {
        KillReason::PodEnds | KillReason::SandboxGone => {
            return format!("Stopping container {container}");
        }
        KillReason::RestartAll => return "killing".to_owned(),
        KillReason::StateUnknown => {
            return "Container is in \"unknown\" state, try killing it before restart".to_owned();
        }
        KillReason::LivenessProbe => "failed liveness probe",
        KillReason::StartupProbe => "failed startup probe",
        KillReason::DefinitionChanged => "definition changed",
        KillReason::Resize => "resize requires restart",
    };
    // It still runs: its restart policy counts, not its rules about exit codes.
    let restarts = match reason {
        KillReason::DefinitionChanged => true,
        KillReason::Resize => false,
        _ => find_init_or_app(pod, container).is_some_and(|spec| restarts_failed(pod, spec)),
    };
    match restarts {
        true => format!("Container {container} {cause}, will be restarted"),
        false => format!("Container {container} {cause}"),
    }
}

/// Returns what is left of the container in the runtime.
pub(super) async fn run(services: Arc<PodServices>, mut kill: Kill) -> Option<ContainerRecord> {
    let pod = &kill.pod;
    let (cri, telemetry) = (&services.cri, &services.telemetry);
    let spans = &telemetry.spans;
    let report = |severity, reason: &str, message: &str| {
        telemetry
            .events
            .container(pod, &kill.container, severity, reason, message);
    };
    report(Severity::Normal, "Killing", &kill.message);
    let began = spans.now();
    let spec = find_init_or_app(pod, &kill.container);
    let hook = spec
        .and_then(|spec| spec.lifecycle.as_ref())
        .and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    let mut grace = kill.grace;
    if let (Some(hook), Some(spec)) = (hook, spec)
        && grace > 0
    {
        let limit = Duration::from_secs(grace as u64);
        let run = hooks::run(cri, telemetry, hook, pod, spec, &kill.id, &kill.pod_ip);
        match tokio::time::timeout(limit, run).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::info!(container = kill.container, %error, "a preStop hook failed");
                report(Severity::Warning, "FailedPreStopHook", "PreStopHook failed");
            }
            Err(_) => tracing::info!(container = kill.container, "a preStop hook took too long"),
        }
        grace -= (spans.now() - began) / 1_000_000;
        let name = format!("preStop {}", kill.container);
        spans.record(&uid(pod), Hop::After, name, began, began);
    }
    if let Some(turn) = &mut kill.turn
        && grace > 0
    {
        let began = spans.now();
        let _ = tokio::time::timeout(Duration::from_secs(grace as u64), turn.wait()).await;
        grace -= (spans.now() - began) / 1_000_000;
    }
    let began = spans.now();
    let grace = grace.max(MINIMUM_GRACE);
    let request = v1::StopContainerRequest {
        container_id: kill.id.clone(),
        timeout: grace,
    };
    let request = cri::with_time(request, Duration::from_secs(grace.cast_unsigned()));
    let is_stopped = match cri.runtime.clone().stop_container(request).await {
        Err(status) if status.code() != tonic::Code::NotFound => {
            tracing::warn!(container = kill.container, %status, "a container could not be stopped");
            tokio::time::sleep(RETRY_PAUSE).await;
            false
        }
        _ => {
            let name = format!("StopContainer {}", kill.container);
            spans.record(&uid(pod), Hop::After, name, began, began);
            true
        }
    };
    let mut record = observe::container(cri, kill.id, kill.sandbox_id)
        .await
        .ok()
        .flatten()?;
    if is_stopped && record.state == ContainerState::Unknown {
        // The runtime reports that it no longer runs, though it does not know how it ended.
        record.state = ContainerState::Exited;
        record.exit_code = UNKNOWN_EXIT;
    }
    termination_message::complete(&services.volumes, pod, &mut record).await;
    Some(record)
}
