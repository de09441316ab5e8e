//! The pages of numbers: `/stats/summary`, the metrics, `/configz`.

use std::{collections::BTreeMap, sync::Arc};

use cri::v1;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};

use super::{Body, json, metrics, text};
use crate::{
    node_context::NodeContext,
    pods::Pods,
    runtime::observe,
    stats::{self, Depth, PodSample, summary},
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
        ["metrics"] => own(node).await,
        ["metrics", "probes"] => Ok(plain(metrics::probes(&node.probe_counts))),
        ["metrics", "resource"] => resource(node, pods).await,
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
        machine_cpu_rate: node.rates.sample("", machine.cpu_total, now),
        machine: &machine,
        spaces,
        image_usage: told.image_usage,
        container_usage: told.container_usage,
        pods: &samples,
    });
    Ok(json(summary.to_string()))
}

async fn resource(node: &Arc<NodeContext>, pods: &Pods) -> Result<Response<Body>, tonic::Status> {
    let samples = samples(node, pods, Depth::Shallow).await?;
    let machine = machine().await;
    let millis = node.environment.now_micros() / 1000;
    Ok(plain(metrics::resource(&machine, &samples, millis)))
}

async fn cadvisor(node: &Arc<NodeContext>, pods: &Pods) -> Result<Response<Body>, tonic::Status> {
    let samples = samples(node, pods, Depth::Shallow).await?;
    let (machine, spaces) = tokio::join!(machine(), stats::file_systems(node));
    let cpus = (node.capacity.milli_cpu / 1000) as usize;
    let more = runtime_metrics(node).await;
    let page = metrics::cadvisor(&machine, cpus, spaces.containers, &samples, &more);
    Ok(plain(page))
}

/// What the runtime tells in cAdvisor's names; nothing where it tells nothing.
async fn runtime_metrics(node: &NodeContext) -> metrics::RuntimeMetrics {
    let (mut runtime, mut other) = (node.cri.runtime.clone(), node.cri.runtime.clone());
    let told = tokio::try_join!(
        runtime.list_metric_descriptors(v1::ListMetricDescriptorsRequest {}),
        other.list_pod_sandbox_metrics(v1::ListPodSandboxMetricsRequest {})
    );
    let Ok((descriptors, pods)) = told else {
        return metrics::RuntimeMetrics::default();
    };
    let values = pods.into_inner().pod_metrics.into_iter().flat_map(|pod| {
        let containers = pod.container_metrics.into_iter();
        let own = containers.flat_map(|container| container.metrics);
        pod.metrics.into_iter().chain(own)
    });
    metrics::RuntimeMetrics {
        descriptors: descriptors.into_inner().descriptors,
        values: values.collect(),
    }
}

async fn own(node: &NodeContext) -> Result<Response<Body>, tonic::Status> {
    let (mut runtime, mut other) = (node.cri.runtime.clone(), node.cri.runtime.clone());
    let (sandboxes, containers) = tokio::try_join!(
        runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None }),
        other.list_containers(v1::ListContainersRequest { filter: None })
    )?;
    let ready = v1::PodSandboxState::SandboxReady as i32;
    let running = sandboxes.into_inner().items;
    let running = running.iter().filter(|item| item.state == ready).count();
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for container in containers.into_inner().containers {
        let state = match v1::ContainerState::try_from(container.state) {
            Ok(v1::ContainerState::ContainerCreated) => "created",
            Ok(v1::ContainerState::ContainerRunning) => "running",
            Ok(v1::ContainerState::ContainerExited) => "exited",
            _ => "unknown",
        };
        *states.entry(state).or_insert(0) += 1;
    }
    Ok(plain(metrics::own(
        &node.node_name,
        running,
        &states,
        node.shutting_down.times(),
        &node.counters,
    )))
}

async fn samples(
    node: &Arc<NodeContext>,
    pods: &Pods,
    depth: Depth,
) -> Result<Vec<PodSample>, tonic::Status> {
    let known = pods.list();
    let mut samples = stats::collect(node, &known, |_| depth).await?;
    for sample in &mut samples {
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
