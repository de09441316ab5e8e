//! Creates the pod's sandbox: first its cgroup and its log directory, then the sandbox itself.

use std::sync::Arc;

use cri::v1;
use environment::chain;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;
use trace::Hop;

use super::sandbox_config::{self, RuntimeClassError, runtime_handler};
use crate::{
    cgroups,
    container::{
        dns,
        hosts::{self, NameTooLong},
        users,
    },
    pod::{
        measuring::{SandboxStart, cgroups_changed},
        services::PodServices,
        worker::Worker,
    },
    pod_spec::uid,
    runtime::{RpcError, Sandbox, observe},
};

/// The step as the timeline names it.
const STEP: &str = "RunPodSandbox";

/// Why there is no sandbox; the chain is the message of the event.
#[derive(Debug, thiserror::Error)]
enum CreateError {
    #[error("unable to ensure pod container exists")]
    Prepare(#[source] PrepareError),
    #[error("Failed to create pod sandbox")]
    Sandbox(#[source] SandboxError),
}

impl CreateError {
    fn reason(&self) -> &'static str {
        match self {
            CreateError::Prepare(_) => "FailedCreatePodContainer",
            CreateError::Sandbox(_) => "FailedCreatePodSandBox",
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error(transparent)]
    Cgroup(#[from] cgroups::Error),
    #[error(transparent)]
    File(#[from] std::io::Error),
    #[error(transparent)]
    Ended(#[from] tokio::task::JoinError),
}

#[derive(Debug, thiserror::Error)]
enum SandboxError {
    #[error(transparent)]
    Name(#[from] NameTooLong),
    #[error("failed to get sandbox runtime")]
    RuntimeClass(#[from] RuntimeClassError),
    #[error(transparent)]
    Rpc(#[from] RpcError),
}

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

fn ended(worker: &mut Worker, result: Result<Sandbox, CreateError>) {
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
        Err(error) => {
            let message = chain(&error).to_string();
            let events = &worker.services.telemetry.events;
            events.warning(worker.pod(), error.reason(), &message);
            let retry = worker.sandbox.failed(worker.now());
            worker.attempts.failed(STEP, &message, Some(retry));
            worker.runtime.read_again();
        }
    }
}

async fn create(
    services: Arc<PodServices>,
    pod: Arc<Pod>,
    attempt: u32,
    wanted: i64,
) -> Result<Sandbox, CreateError> {
    let (settings, telemetry) = (&services.settings, &services.telemetry);
    let start = telemetry.spans.now();
    let resolv_conf = prepare(&services, &pod).await;
    let resolv_conf = resolv_conf.map_err(CreateError::Prepare)?;
    let domain = &settings.cluster_domain;
    let formed = dns::config(&pod, &settings.cluster_dns, domain, &resolv_conf);
    for warning in formed.warnings {
        telemetry.events.warning(&pod, "DNSConfigForming", warning);
    }
    let sandbox = run(&services, &pod, attempt, &resolv_conf).await;
    let sandbox = sandbox.map_err(CreateError::Sandbox)?;
    telemetry
        .spans
        .record(&uid(&pod), Hop::Node, STEP, wanted, start);
    Ok(sandbox)
}

async fn run(
    services: &PodServices,
    pod: &Pod,
    attempt: u32,
    resolv_conf: &str,
) -> Result<Sandbox, SandboxError> {
    hosts::kernel_name(pod, &services.settings.cluster_domain)?;
    let runtime_handler = runtime_handler(&services.client, pod).await?;
    let request = v1::RunPodSandboxRequest {
        config: Some(sandbox_config::of(services, pod, attempt, resolv_conf)),
        runtime_handler: runtime_handler.clone(),
    };
    let measured = SandboxStart::begin(&services.telemetry.measures, pod, &runtime_handler);
    let response = services.cri.runtime.clone().run_pod_sandbox(request).await;
    measured.end(response.is_ok());
    let id = response.map_err(RpcError)?.into_inner().pod_sandbox_id;
    let found = observe::sandbox(&services.cri, id).await;
    let gone = || RpcError(tonic::Status::not_found("the new sandbox is gone"));
    Ok(found.map_err(RpcError)?.ok_or_else(gone)?)
}

/// Makes the pod's cgroup, its log directory and its users. Returns the machine's resolv.conf, empty on
/// a machine without a resolver.
async fn prepare(services: &PodServices, pod: &Arc<Pod>) -> Result<String, PrepareError> {
    let (cgroups, pod) = (services.cgroups.clone(), pod.clone());
    let log_dir = services.settings.pod_log_dir(&pod);
    let pods_root = services.volumes.pods_root().to_owned();
    let resolver = services.settings.configuration.resolv_conf.clone();
    let measures = services.telemetry.measures.clone();
    let prepared = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        cgroups.create(&pod)?;
        cgroups_changed(&measures, "create", began.elapsed());
        std::fs::create_dir_all(&log_dir)?;
        users::ensure(&pods_root, &pod)?;
        Ok(std::fs::read_to_string(resolver).unwrap_or_default())
    });
    prepared.await?
}
