//! CRI's runtime service: each call is unpacked, handed to the part it belongs to, and its result
//! packed again.

use std::{collections::HashMap, sync::Arc};

use cri::v1::{runtime_service_server::RuntimeService, *};
use futures::stream::{self, BoxStream, StreamExt};
use tokio_stream::wrappers::{BroadcastStream, errors::BroadcastStreamRecvError};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, async_trait};

use super::{
    Error,
    container_table::ContainerTable,
    containers::Containers,
    events::Events,
    execution::Execution,
    features::Features,
    host::Host,
    metrics::{self, Metrics},
    sandbox_table::SandboxTable,
    sandboxes::Sandboxes,
    stats::Stats,
    streams::Streams,
    tasks::{finish, run_blocking},
    views::{container_item, container_state, container_status, sandbox_item, sandbox_status},
};
use crate::{
    config,
    records::{ContainerRecord, SandboxRecord},
};

type Answer<T> = Result<Response<T>, Status>;
type Streamed<T> = BoxStream<'static, Result<T, Status>>;

/// The parts that the calls are handed to; each has its own state.
pub struct RuntimeApi {
    pub host: Arc<Host>,
    pub sandbox_table: Arc<SandboxTable>,
    pub container_table: Arc<ContainerTable>,
    pub sandboxes: Arc<Sandboxes>,
    pub containers: Arc<Containers>,
    pub execution: Arc<Execution>,
    pub streams: Arc<Streams>,
    pub stats: Arc<Stats>,
    pub metrics: Arc<Metrics>,
    pub features: Features,
    pub events: Arc<Events>,
    pub shutdown: CancellationToken,
}

#[async_trait]
impl RuntimeService for RuntimeApi {
    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        Ok(Response::new(VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "coracle".into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(&self, request: Request<StatusRequest>) -> Answer<StatusResponse> {
        let verbose = request.into_inner().verbose;
        Ok(Response::new(self.features.status(verbose).await))
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> Answer<RuntimeConfigResponse> {
        Ok(Response::new(RuntimeConfigResponse {
            linux: Some(LinuxRuntimeConfiguration {
                cgroup_driver: match self.host.config().cgroup_driver {
                    config::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
                    config::CgroupDriver::Systemd => CgroupDriver::Systemd,
                }
                .into(),
            }),
        }))
    }

    async fn update_runtime_config(
        &self,
        _: Request<UpdateRuntimeConfigRequest>,
    ) -> Answer<UpdateRuntimeConfigResponse> {
        Ok(Response::new(Default::default()))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Answer<RunPodSandboxResponse> {
        let request = request.into_inner();
        let config = request
            .config
            .ok_or_else(|| Error::Invalid("no sandbox config given".into()))?;
        let sandboxes = self.sandboxes.clone();
        let id =
            finish(async move { sandboxes.run(config, request.runtime_handler).await }).await?;
        Ok(Response::new(RunPodSandboxResponse { pod_sandbox_id: id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        if let Ok(id) = self.sandbox_table.id(&request.into_inner().pod_sandbox_id) {
            let sandboxes = self.sandboxes.clone();
            finish(async move { sandboxes.stop(&id).await }).await?;
        }
        Ok(Response::new(Default::default()))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        if let Ok(id) = self.sandbox_table.id(&request.into_inner().pod_sandbox_id) {
            let sandboxes = self.sandboxes.clone();
            finish(async move { sandboxes.remove(&id).await }).await?;
        }
        Ok(Response::new(Default::default()))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let request = request.into_inner();
        let record = self.sandbox(&request.pod_sandbox_id)?;
        let mut info = HashMap::new();
        if request.verbose {
            info.insert(
                "info".to_owned(),
                serde_json::json!({"pid": record.pid, "netns": record.netns}).to_string(),
            );
        }
        Ok(Response::new(PodSandboxStatusResponse {
            status: Some(sandbox_status(&record)),
            info,
            containers_statuses: self
                .container_table
                .of_sandbox(&record.id)
                .iter()
                .map(container_status)
                .collect(),
            timestamp: self.host.now_nanos(),
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let records = self.sandbox_table.matching(&filter);
        Ok(Response::new(ListPodSandboxResponse {
            items: records.iter().map(sandbox_item).collect(),
        }))
    }

    type StreamPodSandboxesStream = Streamed<StreamPodSandboxesResponse>;

    async fn stream_pod_sandboxes(
        &self,
        request: Request<StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let records = self.sandbox_table.matching(&filter);
        let pod_sandboxes = records.iter().map(sandbox_item).collect();
        once(StreamPodSandboxesResponse { pod_sandboxes })
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        let request = request.into_inner();
        let config = request
            .config
            .ok_or_else(|| Error::Invalid("no container config given".into()))?;
        let containers = self.containers.clone();
        let made = async move {
            containers
                .create(&request.pod_sandbox_id, config, request.sandbox_config)
                .await
        };
        Ok(Response::new(CreateContainerResponse {
            container_id: finish(made).await?,
        }))
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        let id = self
            .container_table
            .id(&request.into_inner().container_id)?;
        let containers = self.containers.clone();
        finish(async move { containers.start(&id).await }).await?;
        Ok(Response::new(Default::default()))
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Answer<StopContainerResponse> {
        let request = request.into_inner();
        if let Ok(id) = self.container_table.id(&request.container_id) {
            let containers = self.containers.clone();
            finish(async move { containers.stop(&id, request.timeout).await }).await?;
        }
        Ok(Response::new(Default::default()))
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        if let Ok(id) = self.container_table.id(&request.into_inner().container_id) {
            let containers = self.containers.clone();
            finish(async move { containers.remove(&id).await }).await?;
        }
        Ok(Response::new(Default::default()))
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let records = self.container_table.matching(&filter);
        Ok(Response::new(ListContainersResponse {
            containers: records.iter().map(container_item).collect(),
        }))
    }

    type StreamContainersStream = Streamed<StreamContainersResponse>;

    async fn stream_containers(
        &self,
        request: Request<StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let records = self.container_table.matching(&filter);
        once(StreamContainersResponse {
            containers: records.iter().map(container_item).collect(),
        })
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        let request = request.into_inner();
        let record = self.container(&request.container_id)?;
        let mut info = HashMap::new();
        if request.verbose {
            let text = serde_json::json!({"pid": record.pid, "sandboxID": record.sandbox, "cgroup": record.cgroup});
            info.insert("info".to_owned(), text.to_string());
        }
        Ok(Response::new(ContainerStatusResponse {
            status: Some(container_status(&record)),
            info,
        }))
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Answer<UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let id = self.container_table.id(&request.container_id)?;
        if let Some(limits) = request.linux {
            let execution = self.execution.clone();
            run_blocking(move || execution.update_resources(&id, limits)).await?;
        }
        Ok(Response::new(Default::default()))
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        let record = self.container(&request.into_inner().container_id)?;
        if container_state(&record) != ContainerState::ContainerRunning {
            return Err(Error::Precondition("container is not running".into()).into());
        }
        let shim = self.sandbox_table.running_shim(&record.sandbox)?;
        shim.reopen_log(&record.id)
            .await
            .map_err(Error::shim("failed to reopen the log"))?;
        Ok(Response::new(Default::default()))
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        let request = request.into_inner();
        let id = self.container_table.id(&request.container_id)?;
        Ok(Response::new(
            self.execution
                .exec_sync(&id, &request.cmd, request.timeout)
                .await?,
        ))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Answer<ExecResponse> {
        let url = self.streams.prepare_exec(request.into_inner())?;
        Ok(Response::new(ExecResponse { url }))
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Answer<AttachResponse> {
        let url = self.streams.prepare_attach(request.into_inner())?;
        Ok(Response::new(AttachResponse { url }))
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> Answer<PortForwardResponse> {
        let url = self.streams.prepare_port_forward(request.into_inner())?;
        Ok(Response::new(PortForwardResponse { url }))
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> Answer<ContainerStatsResponse> {
        let record = self.container(&request.into_inner().container_id)?;
        let stats = self.stats.clone();
        let stats = run_blocking(move || Ok(stats.of_container(&record))).await?;
        Ok(Response::new(ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        let stats = self
            .stats_of_containers(request.into_inner().filter)
            .await?;
        Ok(Response::new(ListContainerStatsResponse { stats }))
    }

    type StreamContainerStatsStream = Streamed<StreamContainerStatsResponse>;

    async fn stream_container_stats(
        &self,
        request: Request<StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        let container_stats = self
            .stats_of_containers(request.into_inner().filter)
            .await?;
        once(StreamContainerStatsResponse { container_stats })
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<PodSandboxStatsRequest>,
    ) -> Answer<PodSandboxStatsResponse> {
        let record = self.sandbox(&request.into_inner().pod_sandbox_id)?;
        let stats = self.stats.clone();
        let stats = run_blocking(move || Ok(stats.of_sandbox(&record))).await?;
        Ok(Response::new(PodSandboxStatsResponse {
            stats: Some(stats),
        }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<ListPodSandboxStatsRequest>,
    ) -> Answer<ListPodSandboxStatsResponse> {
        let stats = self.stats_of_sandboxes(request.into_inner().filter).await?;
        Ok(Response::new(ListPodSandboxStatsResponse { stats }))
    }

    type StreamPodSandboxStatsStream = Streamed<StreamPodSandboxStatsResponse>;

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        let pod_sandbox_stats = self.stats_of_sandboxes(request.into_inner().filter).await?;
        once(StreamPodSandboxStatsResponse { pod_sandbox_stats })
    }

    async fn checkpoint_container(
        &self,
        _: Request<CheckpointContainerRequest>,
    ) -> Answer<CheckpointContainerResponse> {
        Err(Error::Unimplemented("checkpoints are not implemented by this runtime").into())
    }

    type GetContainerEventsStream = Streamed<ContainerEventResponse>;

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        let shutdown = self.shutdown.clone();
        let events = BroadcastStream::new(self.events.subscribe()).map(|event| {
            event.map_err(|BroadcastStreamRecvError::Lagged(missed)| {
                Status::resource_exhausted(format!("{missed} events were missed: list again"))
            })
        });
        // An open stream must not keep a stopping server waiting.
        Ok(Response::new(
            events.take_until(shutdown.cancelled_owned()).boxed(),
        ))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<ListMetricDescriptorsRequest>,
    ) -> Answer<ListMetricDescriptorsResponse> {
        Ok(Response::new(ListMetricDescriptorsResponse {
            descriptors: metrics::descriptors(),
        }))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<ListPodSandboxMetricsRequest>,
    ) -> Answer<ListPodSandboxMetricsResponse> {
        let pod_metrics = self.metrics_of_sandboxes().await?;
        Ok(Response::new(ListPodSandboxMetricsResponse { pod_metrics }))
    }

    type StreamPodSandboxMetricsStream = Streamed<StreamPodSandboxMetricsResponse>;

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        let pod_sandbox_metrics = self.metrics_of_sandboxes().await?;
        once(StreamPodSandboxMetricsResponse {
            pod_sandbox_metrics,
        })
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Answer<UpdatePodSandboxResourcesResponse> {
        // The kubelet owns the pod's cgroup, so there is nothing to change here.
        self.sandbox_table
            .id(&request.into_inner().pod_sandbox_id)?;
        Ok(Response::new(Default::default()))
    }
}

impl RuntimeApi {
    fn sandbox(&self, id: &str) -> Result<SandboxRecord, Error> {
        self.sandbox_table.record(&self.sandbox_table.id(id)?)
    }

    fn container(&self, id: &str) -> Result<ContainerRecord, Error> {
        self.container_table.record(&self.container_table.id(id)?)
    }

    async fn stats_of_containers(
        &self,
        filter: Option<ContainerStatsFilter>,
    ) -> Result<Vec<ContainerStats>, Error> {
        let filter = filter.unwrap_or_default();
        let running = ContainerStateValue {
            state: ContainerState::ContainerRunning.into(),
        };
        let records = self.container_table.matching(&ContainerFilter {
            id: filter.id,
            state: Some(running),
            pod_sandbox_id: filter.pod_sandbox_id,
            label_selector: filter.label_selector,
        });
        let stats = self.stats.clone();
        run_blocking(move || {
            let measured = records.iter().map(|record| stats.of_container(record));
            Ok(measured.collect())
        })
        .await
    }

    async fn metrics_of_sandboxes(&self) -> Result<Vec<PodSandboxMetrics>, Error> {
        let records = self.sandbox_table.ready();
        let metrics = self.metrics.clone();
        run_blocking(move || {
            let measured = records.iter().map(|record| metrics.of_sandbox(record));
            Ok(measured.collect())
        })
        .await
    }

    async fn stats_of_sandboxes(
        &self,
        filter: Option<PodSandboxStatsFilter>,
    ) -> Result<Vec<PodSandboxStats>, Error> {
        let filter = filter.unwrap_or_default();
        let ready = PodSandboxStateValue {
            state: PodSandboxState::SandboxReady.into(),
        };
        let records = self.sandbox_table.matching(&PodSandboxFilter {
            id: filter.id,
            state: Some(ready),
            label_selector: filter.label_selector,
        });
        let stats = self.stats.clone();
        run_blocking(move || {
            let measured = records.iter().map(|record| stats.of_sandbox(record));
            Ok(measured.collect())
        })
        .await
    }
}

fn once<T: Send + 'static>(message: T) -> Answer<Streamed<T>> {
    Ok(Response::new(stream::iter([Ok(message)]).boxed()))
}
