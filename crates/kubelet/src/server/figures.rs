//! The pages of numbers: `/stats/summary`, the metrics, `/configz`.

use std::sync::Arc;

use cri::v1;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

use super::{Body, cadvisor, json, metrics, own, resources, text};
use crate::{
    node_context::NodeContext,
    pods::Pods,
    runtime::observe,
    stats::{self, Cpu, Depth, Memory, PodSample, summary},
};

pub async fn answer(
    node: &Arc<NodeContext>,
    pods: &Pods,
    path: &[&str],
    query: &str,
) -> Response<Body> {
    let result = match path {
        ["stats", "summary"] => {
            summarize(node, pods, query.contains("only_cpu_and_memory=true")).await
        }
        ["configz"] => Ok(json(
            serde_json::json!({"kubeletconfig": node.configuration}).to_string(),
        )),
        ["metrics"] => itself(node, pods).await,
        ["metrics", "probes"] => Ok(plain(metrics::probes(&node.probe_counts))),
        ["metrics", "resource"] => Ok(resource(node, pods).await),
        ["metrics", "cadvisor"] => cadvisor(node, pods).await,
        _ => return text(StatusCode::NOT_FOUND, "404 page not found"),
    };
    result.unwrap_or_else(|status| {
        text(
            StatusCode::INTERNAL_SERVER_ERROR,
            crate::images::rpc_error(&status),
        )
    })
}

async fn summarize(
    node: &Arc<NodeContext>,
    pods: &Pods,
    shallow: bool,
) -> Result<Response<Body>, tonic::Status> {
    let depth = if shallow { Depth::Shallow } else { Depth::Deep };
    let samples = samples(node, pods, depth).await?;
    let told = node.runtime_places.ask(&node.cri).await;
    let (machine, spaces) = tokio::join!(machine(), stats::file_systems(node));
    let now = node.environment.now_micros();
    let summary = summary::build(&summary::Input {
        node_name: &node.node_name,
        now: node.environment.now(),
        machine_cpu_rate: machine
            .cpu_total
            .and_then(|total| node.rates.sample("", total, now)),
        machine: &machine,
        spaces,
        image_usage: told.image_usage,
        container_usage: told.container_usage,
        pods: &samples,
        all_pods: all_pods(node, &machine).await,
        kubelet: own_process().await,
    });
    Ok(json(summary.to_string()))
}

/// The cgroup of all pods.
async fn all_pods(node: &NodeContext, machine: &stats::Machine) -> Option<summary::Group> {
    let cgroups = node.cgroups.clone();
    let read = tokio::task::spawn_blocking(move || (cgroups.cpu_total(), cgroups.working_set()));
    let (cpu, memory) = read.await.ok()?;
    let now = node.environment.now_micros();
    let (total, working_set) = (cpu?, u64::try_from(memory?).ok()?);
    let reserved = node.configuration.reserved_milli("memory") / 1000;
    let theirs = u64::try_from(node.capacity.memory - reserved).ok()?;
    Some(summary::Group {
        started_at: machine.boot_time?.saturating_mul(1_000_000_000),
        cpu: Cpu {
            total,
            rate: node.rates.sample("kubepods", total, now),
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

async fn resource(node: &Arc<NodeContext>, pods: &Pods) -> Response<Body> {
    let machine = machine().await;
    let millis = node.environment.now_micros() / 1000;
    plain(match samples(node, pods, Depth::Shallow).await {
        Ok(samples) => resources::page(&machine, &samples, millis),
        Err(status) => {
            tracing::warn!(%status, "the pods' use of resources could not be read");
            resources::failed()
        }
    })
}

async fn cadvisor(node: &Arc<NodeContext>, pods: &Pods) -> Result<Response<Body>, tonic::Status> {
    let samples = samples(node, pods, Depth::Shallow).await?;
    let (machine, spaces) = tokio::join!(machine(), stats::file_systems(node));
    let cpus = (node.capacity.milli_cpu / 1000) as usize;
    let more = runtime_metrics(node).await;
    let page = cadvisor::page(&machine, cpus, spaces.containers, &samples, &more);
    Ok(plain(page))
}

/// What the runtime tells in cAdvisor's names; nothing where it tells nothing.
async fn runtime_metrics(node: &NodeContext) -> cadvisor::RuntimeMetrics {
    let (mut runtime, mut other) = (node.cri.runtime.clone(), node.cri.runtime.clone());
    let told = tokio::try_join!(
        runtime.list_metric_descriptors(v1::ListMetricDescriptorsRequest {}),
        other.list_pod_sandbox_metrics(v1::ListPodSandboxMetricsRequest {})
    );
    let Ok((descriptors, pods)) = told else {
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

async fn itself(node: &NodeContext, pods: &Pods) -> Result<Response<Body>, tonic::Status> {
    let (mut runtime, mut other) = (node.cri.runtime.clone(), node.cri.runtime.clone());
    let (sandboxes, containers) = tokio::try_join!(
        runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None }),
        other.list_containers(v1::ListContainersRequest { filter: None })
    )?;
    let ready = v1::PodSandboxState::SandboxReady as i32;
    let running = sandboxes.into_inner().items;
    let running = running.iter().filter(|item| item.state == ready).count();
    let claims = node.volumes.claims.list();
    let read = tokio::task::spawn_blocking(move || {
        let spaces = claims.into_iter().filter_map(|(claim, path)| {
            let space = stats::space(&path)?;
            Some((claim, space))
        });
        (stats::read_process(), spaces.collect())
    });
    let (process, claims) = read.await.unwrap_or_default();
    let providers = node.pulls.providers.as_ref();
    let mut gauges = own::Gauges {
        node_name: &node.node_name,
        running_pods: running,
        shutdown: node.shutting_down.times(),
        cgroup_version: node.cgroups.version(),
        last_seen: pods.came_around() as f64 / 1e6,
        provider_config: providers.map(|providers| providers.hash.as_str()),
        process,
        claims,
        ..own::Gauges::default()
    };
    gauges.count_pods(&pods.list(), &pods.active());
    for container in containers.into_inner().containers {
        let state = match v1::ContainerState::try_from(container.state) {
            Ok(v1::ContainerState::ContainerCreated) => "created",
            Ok(v1::ContainerState::ContainerRunning) => "running",
            Ok(v1::ContainerState::ContainerExited) => "exited",
            _ => "unknown",
        };
        *gauges.containers.entry(state).or_insert(0) += 1;
    }
    Ok(plain(own::page(&gauges, &node.measures)))
}

async fn samples(
    node: &Arc<NodeContext>,
    pods: &Pods,
    depth: Depth,
) -> Result<Vec<PodSample>, tonic::Status> {
    let known = pods.list();
    let mut samples = stats::collect(node, &known, |_| depth).await?;
    for sample in &mut samples {
        let mut known = known.iter();
        let pod = known.find(|pod| pod.metadata.uid.as_deref() == Some(&sample.uid));
        sample.cgroup = pod.map_or_else(String::new, |pod| node.cgroups.pod_path(pod));
        // When they started, and from what, is not among the statistics.
        let observed = observe::pod(&node.cri, &sample.uid).await?;
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
