//! Creates the pod's sandbox: first its cgroup and its log directory, then the sandbox itself.

use std::sync::Arc;

use cri::v1;
use environment::chain;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;
use trace::Hop;

use super::sandbox_config::{self, runtime_handler};
use crate::{
    container::{dns, hosts, users},
    pod::{
        measuring::{SandboxStart, cgroups_changed},
        services::PodServices,
        worker::Worker,
    },
    pod_spec::uid,
    runtime::{Sandbox, observe, rpc_error},
};

/// The step as the timeline names it.
const STEP: &str = "RunPodSandbox";

pub(super) fn begin(worker: &mut Worker, attempt: u32) {
    worker.tasks.busy_mut().sandbox = true;
    worker.attempts.begins(STEP);
    let (services, pod, now) = (worker.services.clone(), worker.pod().clone(), worker.now());
    if attempt > 0 {
        services.telemetry.events.normal(
            &pod,
            "SandboxChanged",
            "Pod sandbox changed, it will be killed and re-created.",
        );
    }
    let work = create(services, pod, attempt, now);
    worker.tasks.spawn(work, ended);
}

fn ended(worker: &mut Worker, result: Result<Sandbox, String>) {
    worker.tasks.busy_mut().sandbox = false;
    let observed = worker.runtime.own_change();
    match result {
        Ok(sandbox) => {
            if let Some(observed) = observed {
                observed.put_sandbox(sandbox);
            }
            worker.sandbox.created();
            worker.attempts.succeeded(STEP);
        }
        Err(message) => {
            let retry = worker.sandbox.failed(worker.now());
            worker.attempts.failed(STEP, &message, Some(retry));
            worker.runtime.read_again();
        }
    }
}

/// The error is the message of the event.
async fn create(
    services: Arc<PodServices>,
    pod: Arc<Pod>,
    attempt: u32,
    wanted: i64,
) -> Result<Sandbox, String> {
    let (settings, telemetry) = (&services.settings, &services.telemetry);
    let start = telemetry.spans.now();
    let resolv_conf = match prepare(&services, &pod).await {
        Ok(resolv_conf) => resolv_conf,
        Err(error) => {
            let message = format!("unable to ensure pod container exists: {error}");
            telemetry
                .events
                .warning(&pod, "FailedCreatePodContainer", &message);
            return Err(message);
        }
    };
    let domain = &settings.cluster_domain;
    let formed = dns::config(&pod, &settings.cluster_dns, domain, &resolv_conf);
    for warning in formed.warnings {
        telemetry.events.warning(&pod, "DNSConfigForming", warning);
    }
    let failed = |why: &str| {
        let message = format!("Failed to create pod sandbox: {why}");
        telemetry
            .events
            .warning(&pod, "FailedCreatePodSandBox", &message);
        message
    };
    if let Err(why) = hosts::kernel_name(&pod, domain) {
        return Err(failed(&why.to_string()));
    }
    let runtime_handler = runtime_handler(&services.client, &pod)
        .await
        .map_err(|error| failed(&format!("failed to get sandbox runtime: {}", chain(&error))))?;
    let request = v1::RunPodSandboxRequest {
        config: Some(sandbox_config::of(&services, &pod, attempt, &resolv_conf)),
        runtime_handler: runtime_handler.clone(),
    };
    let measured = SandboxStart::begin(&telemetry.measures, &pod, &runtime_handler);
    let run = async {
        let response = services.cri.runtime.clone().run_pod_sandbox(request).await;
        measured.end(response.is_ok());
        let id = response?.into_inner().pod_sandbox_id;
        let found = observe::sandbox(&services.cri, id).await?;
        found.ok_or_else(|| tonic::Status::not_found("the new sandbox is gone"))
    };
    let sandbox = run.await.map_err(|status| failed(&rpc_error(&status)))?;
    telemetry
        .spans
        .record(&uid(&pod), Hop::Node, STEP, wanted, start);
    Ok(sandbox)
}

/// Makes the pod's cgroup, its log directory and its users. Returns the machine's resolv.conf, empty on
/// a machine without a resolver.
async fn prepare(services: &PodServices, pod: &Arc<Pod>) -> Result<String, String> {
    let (cgroups, pod) = (services.cgroups.clone(), pod.clone());
    let log_dir = services.settings.pod_log_dir(&pod);
    let pods_root = services.volumes.pods_root().to_owned();
    let resolver = services.settings.configuration.resolv_conf.clone();
    let measures = services.telemetry.measures.clone();
    let prepared = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        cgroups
            .create(&pod)
            .map_err(|error| chain(&error).to_string())?;
        cgroups_changed(&measures, "create", began.elapsed());
        std::fs::create_dir_all(&log_dir).map_err(|error| error.to_string())?;
        users::ensure(&pods_root, &pod).map_err(|error| error.to_string())?;
        Ok(std::fs::read_to_string(resolver).unwrap_or_default())
    });
    match prepared.await {
        Ok(result) => result,
        Err(error) => Err(error.to_string()),
    }
}
