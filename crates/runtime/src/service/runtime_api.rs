//! CRI's runtime service: each call unpacked, done by the part it belongs to, packed again.

use std::{collections::HashMap, future::Future};

use cri::v1::{runtime_service_server::RuntimeService, *};
use futures::stream::{self, BoxStream, StreamExt};
use tokio_stream::wrappers::{BroadcastStream, errors::BroadcastStreamRecvError};
use tonic::{Request, Response, Status, async_trait};

use super::{
    Error,
    events::{
        container_item, container_state, container_status, sandbox_item, sandbox_state,
        sandbox_status,
    },
    metrics,
    state::{Runtime, blocking},
};
use crate::{
    config,
    records::{ContainerRecord, SandboxRecord},
};

type Answer<T> = Result<Response<T>, Status>;
type Streamed<T> = BoxStream<'static, Result<T, Status>>;

#[async_trait]
impl RuntimeService for Runtime {
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
        Ok(Response::new(self.status_response(verbose).await))
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> Answer<RuntimeConfigResponse> {
        Ok(Response::new(RuntimeConfigResponse {
            linux: Some(LinuxRuntimeConfiguration {
                cgroup_driver: match self.0.config.cgroup_driver {
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
        let runtime = self.clone();
        let id = finish(async move { runtime.run_sandbox(config, request.runtime_handler).await })
            .await?;
        Ok(Response::new(RunPodSandboxResponse { pod_sandbox_id: id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        if let Ok(id) = self.sandbox_id(&request.into_inner().pod_sandbox_id) {
            let runtime = self.clone();
            finish(async move { runtime.stop_sandbox(&id).await }).await?;
        }
        Ok(Response::new(Default::default()))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        if let Ok(id) = self.sandbox_id(&request.into_inner().pod_sandbox_id) {
            let runtime = self.clone();
            finish(async move { runtime.remove_sandbox(&id).await }).await?;
        }
        Ok(Response::new(Default::default()))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let request = request.into_inner();
        let record = self.sandbox_record(&self.sandbox_id(&request.pod_sandbox_id)?)?;
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
                .containers_of(&record.id)
                .iter()
                .map(container_status)
                .collect(),
            timestamp: self.now_nanos(),
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let records = self.sandboxes(request.into_inner().filter.unwrap_or_default());
        Ok(Response::new(ListPodSandboxResponse {
            items: records.iter().map(sandbox_item).collect(),
        }))
    }

    type StreamPodSandboxesStream = Streamed<StreamPodSandboxesResponse>;

    async fn stream_pod_sandboxes(
        &self,
        request: Request<StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        let records = self.sandboxes(request.into_inner().filter.unwrap_or_default());
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
        let runtime = self.clone();
        let made = async move {
            runtime
                .create_container(&request.pod_sandbox_id, config, request.sandbox_config)
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
        let id = self.container_id(&request.into_inner().container_id)?;
        let runtime = self.clone();
        finish(async move { runtime.start_container(&id).await }).await?;
        Ok(Response::new(Default::default()))
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Answer<StopContainerResponse> {
        let request = request.into_inner();
        if let Ok(id) = self.container_id(&request.container_id) {
            let runtime = self.clone();
            finish(async move { runtime.stop_container(&id, request.timeout).await }).await?;
        }
        Ok(Response::new(Default::default()))
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        if let Ok(id) = self.container_id(&request.into_inner().container_id) {
            let runtime = self.clone();
            finish(async move { runtime.remove_container(&id).await }).await?;
        }
        Ok(Response::new(Default::default()))
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let records = self.containers(request.into_inner().filter.unwrap_or_default());
        Ok(Response::new(ListContainersResponse {
            containers: records.iter().map(container_item).collect(),
        }))
    }

    type StreamContainersStream = Streamed<StreamContainersResponse>;

    async fn stream_containers(
        &self,
        request: Request<StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        let records = self.containers(request.into_inner().filter.unwrap_or_default());
        once(StreamContainersResponse {
            containers: records.iter().map(container_item).collect(),
        })
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        let request = request.into_inner();
        let record = self.container_record(&self.container_id(&request.container_id)?)?;
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
        let id = self.container_id(&request.container_id)?;
        if let Some(limits) = request.linux {
            let runtime = self.clone();
            blocking(move || runtime.update_resources(&id, limits)).await?;
        }
        Ok(Response::new(Default::default()))
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        let record =
            self.container_record(&self.container_id(&request.into_inner().container_id)?)?;
        if container_state(&record) != ContainerState::ContainerRunning {
            return Err(Error::Precondition("container is not running".into()).into());
        }
        let shim = self.shim_for(&record)?;
        shim.reopen_log(&record.id)
            .await
            .map_err(Error::shim("failed to reopen the log"))?;
        Ok(Response::new(Default::default()))
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        let request = request.into_inner();
        let id = self.container_id(&request.container_id)?;
        Ok(Response::new(
            Runtime::exec_sync(self, &id, &request.cmd, request.timeout).await?,
        ))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Answer<ExecResponse> {
        let url = self.prepare_exec(request.into_inner())?;
        Ok(Response::new(ExecResponse { url }))
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Answer<AttachResponse> {
        let url = self.prepare_attach(request.into_inner())?;
        Ok(Response::new(AttachResponse { url }))
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> Answer<PortForwardResponse> {
        let url = self.prepare_port_forward(request.into_inner())?;
        Ok(Response::new(PortForwardResponse { url }))
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> Answer<ContainerStatsResponse> {
        let record =
            self.container_record(&self.container_id(&request.into_inner().container_id)?)?;
        let runtime = self.clone();
        let stats = blocking(move || Ok(runtime.container_stats(&record))).await?;
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
        let record =
            self.sandbox_record(&self.sandbox_id(&request.into_inner().pod_sandbox_id)?)?;
        let runtime = self.clone();
        let stats = blocking(move || Ok(runtime.sandbox_stats(&record))).await?;
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
        let shutdown = self.0.shutdown.clone();
        let events = BroadcastStream::new(self.0.events.subscribe()).map(|event| {
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
        // The pod's cgroup is the kubelet's; there is nothing of ours to change.
        self.sandbox_id(&request.into_inner().pod_sandbox_id)?;
        Ok(Response::new(Default::default()))
    }
}

impl Runtime {
    fn sandboxes(&self, filter: PodSandboxFilter) -> Vec<SandboxRecord> {
        let state = self.0.state.lock();
        state
            .sandboxes
            .values()
            .map(|entry| &entry.record)
            .filter(|record| record.id.starts_with(&filter.id))
            .filter(|record| {
                filter
                    .state
                    .as_ref()
                    .is_none_or(|state| state.state() == sandbox_state(record))
            })
            .filter(|record| selects(&filter.label_selector, &record.config.labels))
            .cloned()
            .collect()
    }

    fn containers(&self, filter: ContainerFilter) -> Vec<ContainerRecord> {
        let state = self.0.state.lock();
        state
            .containers
            .values()
            .map(|entry| &entry.record)
            .filter(|record| record.id.starts_with(&filter.id))
            .filter(|record| record.sandbox.starts_with(&filter.pod_sandbox_id))
            .filter(|record| {
                filter
                    .state
                    .as_ref()
                    .is_none_or(|state| state.state() == container_state(record))
            })
            .filter(|record| selects(&filter.label_selector, &record.config.labels))
            .cloned()
            .collect()
    }

    async fn stats_of_containers(
        &self,
        filter: Option<ContainerStatsFilter>,
    ) -> Result<Vec<ContainerStats>, Error> {
        let filter = filter.unwrap_or_default();
        let running = ContainerStateValue {
            state: ContainerState::ContainerRunning.into(),
        };
        let records = self.containers(ContainerFilter {
            id: filter.id,
            state: Some(running),
            pod_sandbox_id: filter.pod_sandbox_id,
            label_selector: filter.label_selector,
        });
        let runtime = self.clone();
        blocking(move || {
            Ok(records
                .iter()
                .map(|record| runtime.container_stats(record))
                .collect())
        })
        .await
    }

    async fn metrics_of_sandboxes(&self) -> Result<Vec<PodSandboxMetrics>, Error> {
        let ready = PodSandboxStateValue {
            state: PodSandboxState::SandboxReady.into(),
        };
        let records = self.sandboxes(PodSandboxFilter {
            state: Some(ready),
            ..PodSandboxFilter::default()
        });
        let runtime = self.clone();
        blocking(move || {
            Ok(records
                .iter()
                .map(|record| runtime.sandbox_metrics(record))
                .collect())
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
        let records = self.sandboxes(PodSandboxFilter {
            id: filter.id,
            state: Some(ready),
            label_selector: filter.label_selector,
        });
        let runtime = self.clone();
        blocking(move || {
            Ok(records
                .iter()
                .map(|record| runtime.sandbox_stats(record))
                .collect())
        })
        .await
    }
}

/// Work that is carried through even when the caller has given up waiting.
async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(work)
        .await
        .unwrap_or_else(|error| Err(Error::Interrupted(error.to_string())))
}

fn once<T: Send + 'static>(message: T) -> Answer<Streamed<T>> {
    Ok(Response::new(stream::iter([Ok(message)]).boxed()))
}

fn selects(selector: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(name, value)| labels.get(name) == Some(value))
}
