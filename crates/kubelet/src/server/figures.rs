//! The pages of numbers: `/stats/summary`, the metrics, `/configz`.

use cri::v1;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

use super::{Backend, Body, cadvisor, json, metrics, own, resources, text};
use crate::{
    runtime::observe,
    stats::{self, Cpu, Depth, Memory, PodSample, summary},
};

pub async fn answer(backend: &Backend, path: &[&str], query: &str) -> Response<Body> {
    let result = match path {
        ["stats", "summary"] => {
            summarize(backend, query.contains("only_cpu_and_memory=true")).await
        }
        ["configz"] => Ok(json(
            serde_json::json!({"kubeletconfig": backend.settings.configuration}).to_string(),
        )),
        ["metrics"] => itself(backend).await,
        ["metrics", "probes"] => Ok(plain(metrics::probes(&backend.probe_counts))),
        ["metrics", "resource"] => Ok(resource(backend).await),
        ["metrics", "cadvisor"] => cadvisor(backend).await,
        _ => return text(StatusCode::NOT_FOUND, "404 page not found"),
    };
    result.unwrap_or_else(|status| {
        text(
            StatusCode::INTERNAL_SERVER_ERROR,
            crate::runtime::rpc_error(&status),
        )
    })
}

async fn summarize(backend: &Backend, shallow: bool) -> Result<Response<Body>, tonic::Status> {
    let depth = if shallow { Depth::Shallow } else { Depth::Deep };
    let samples = samples(backend, depth).await?;
    let disk = backend.sampler.ask_runtime().await;
    let (machine, spaces) = tokio::join!(machine(), backend.sampler.file_systems());
    let now = backend.environment.now_micros();
    let summary = summary::build(&summary::Input {
        node_name: &backend.settings.node_name,
        now: backend.environment.now(),
        machine_cpu_rate: machine
            .cpu_total
            .and_then(|total| backend.sampler.cpu_rate("", total, now)),
        machine: &machine,
        spaces,
        image_usage: disk.image_usage,
        container_usage: disk.container_usage,
        pods: &samples,
        all_pods: all_pods(backend, &machine).await,
        kubelet: own_process().await,
    });
    Ok(json(summary.to_string()))
}

/// The cgroup of all pods.
async fn all_pods(backend: &Backend, machine: &stats::Machine) -> Option<summary::Group> {
    let cgroups = backend.cgroups.clone();
    let read = tokio::task::spawn_blocking(move || (cgroups.cpu_total(), cgroups.working_set()));
    let (cpu, memory) = read.await.ok()?;
    let now = backend.environment.now_micros();
    let (total, working_set) = (cpu?, u64::try_from(memory?).ok()?);
    let reserved = backend.settings.configuration.reserved_milli("memory") / 1000;
    let theirs = u64::try_from(backend.settings.capacity.memory - reserved).ok()?;
    Some(summary::Group {
        started_at: machine.boot_time?.saturating_mul(1_000_000_000),
        cpu: Cpu {
            total,
            rate: backend.sampler.cpu_rate("kubepods", total, now),
            stall: None,
        },
        memory: Memory {
            working_set: Some(working_set),
            usage: Some(working_set),
            available: Some(theirs.saturating_sub(working_set)),
            ..Memory::default()
        },
    })
}

/// This process, of which the kubelet is a part.
async fn own_process() -> Option<summary::Group> {
    let process = tokio::task::spawn_blocking(stats::read_process)
        .await
        .ok()?;
    Some(summary::Group {
        started_at: (process.started? * 1e9) as i64,
        cpu: Cpu {
            total: (process.cpu_seconds? * 1e9) as u64,
            ..Cpu::default()
        },
        memory: Memory {
            working_set: process.resident,
            usage: process.resident,
            rss: process.resident,
            ..Memory::default()
        },
    })
}

async fn resource(backend: &Backend) -> Response<Body> {
    let machine = machine().await;
    let millis = backend.environment.now_micros() / 1000;
    plain(match samples(backend, Depth::Shallow).await {
        Ok(samples) => resources::page(&machine, &samples, millis),
        Err(status) => {
            tracing::warn!(%status, "the pods' use of resources could not be read");
            resources::failed()
        }
    })
}

async fn cadvisor(backend: &Backend) -> Result<Response<Body>, tonic::Status> {
    let samples = samples(backend, Depth::Shallow).await?;
    let (machine, spaces) = tokio::join!(machine(), backend.sampler.file_systems());
    let cpus = (backend.settings.capacity.milli_cpu / 1000) as usize;
    let more = runtime_metrics(backend).await;
    let page = cadvisor::page(&machine, cpus, spaces.containers, &samples, &more);
    Ok(plain(page))
}

/// The metrics that the runtime reports with cAdvisor's names; empty if it reports none.
async fn runtime_metrics(backend: &Backend) -> cadvisor::RuntimeMetrics {
    let (mut runtime, mut other) = (backend.cri.runtime.clone(), backend.cri.runtime.clone());
    let answers = tokio::try_join!(
        runtime.list_metric_descriptors(v1::ListMetricDescriptorsRequest {}),
        other.list_pod_sandbox_metrics(v1::ListPodSandboxMetricsRequest {})
    );
    let Ok((descriptors, pods)) = answers else {
        return cadvisor::RuntimeMetrics::default();
    };
    let values = pods.into_inner().pod_metrics.into_iter().flat_map(|pod| {
        let containers = pod.container_metrics.into_iter();
        let own = containers.flat_map(|container| container.metrics);
        pod.metrics.into_iter().chain(own)
    });
    cadvisor::RuntimeMetrics {
        descriptors: descriptors.into_inner().descriptors,
        values: values.collect(),
    }
}

async fn itself(backend: &Backend) -> Result<Response<Body>, tonic::Status> {
    let (mut runtime, mut other) = (backend.cri.runtime.clone(), backend.cri.runtime.clone());
    let (sandboxes, containers) = tokio::try_join!(
        runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None }),
        other.list_containers(v1::ListContainersRequest { filter: None })
    )?;
    let ready = v1::PodSandboxState::SandboxReady as i32;
    let running = sandboxes.into_inner().items;
    let running = running.iter().filter(|item| item.state == ready).count();
    let claims = backend.volumes.claims();
    let read = tokio::task::spawn_blocking(move || {
        let spaces = claims.into_iter().filter_map(|(claim, path)| {
            let space = files::disk_space::space(&path)?;
            Some((claim, space))
        });
        (stats::read_process(), spaces.collect())
    });
    let (process, claims) = read.await.unwrap_or_default();
    let mut gauges = own::Gauges {
        node_name: &backend.settings.node_name,
        running_pods: running,
        shutdown: backend.shutdown.times(),
        cgroup_version: backend.cgroups.version(),
        last_seen: backend.pods.came_around() as f64 / 1e6,
        provider_config: backend.images.provider_config_hash(),
        process,
        claims,
        ..own::Gauges::default()
    };
    gauges.count_pods(&backend.pods.list(), &backend.pods.active());
    for container in containers.into_inner().containers {
        let state = match v1::ContainerState::try_from(container.state) {
            Ok(v1::ContainerState::ContainerCreated) => "created",
            Ok(v1::ContainerState::ContainerRunning) => "running",
            Ok(v1::ContainerState::ContainerExited) => "exited",
            _ => "unknown",
        };
        *gauges.containers.entry(state).or_insert(0) += 1;
    }
    Ok(plain(own::page(&gauges, &backend.telemetry.measures)))
}

async fn samples(backend: &Backend, depth: Depth) -> Result<Vec<PodSample>, tonic::Status> {
    let known = backend.pods.list();
    let mut samples = backend.sampler.collect(&known, |_| depth).await?;
    for sample in &mut samples {
        let mut known = known.iter();
        let pod = known.find(|pod| pod.metadata.uid.as_deref() == Some(&sample.uid));
        sample.cgroup = pod.map_or_else(String::new, |pod| backend.cgroups.pod_path(pod));
        // When they started, and from what, is not among the statistics.
        let observed = observe::pod(&backend.cri, &sample.uid).await?;
        sample.started_at = observed.sandbox().map_or(0, |sandbox| sandbox.created_at);
        for container in &mut sample.containers {
            if let Some(record) = observed.latest(&container.name) {
                container.started_at = record.started_at;
                container.image = record.image.clone();
            }
        }
    }
    Ok(samples)
}

async fn machine() -> stats::Machine {
    let read = tokio::task::spawn_blocking(stats::read_machine);
    read.await.unwrap_or_default()
}

fn plain(page: String) -> Response<Body> {
    let mut response = text(StatusCode::OK, page);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
