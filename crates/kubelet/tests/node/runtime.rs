//! A runtime that only pretends: it keeps sandboxes and containers in memory, writes down what it
//! was asked, and lets a test end a container or fail a pull.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
};

use cri::v1::{
    self, image_service_server as image_service, runtime_service_server as runtime_service,
};
use futures::{Stream, StreamExt};
use tokio::sync::broadcast;
use tokio_stream::wrappers::{BroadcastStream, UnixListenerStream};
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub struct Runtime {
    pub state: Arc<Mutex<State>>,
    events: broadcast::Sender<v1::ContainerEventResponse>,
}

#[derive(Default)]
pub struct State {
    pub sandboxes: BTreeMap<String, (v1::PodSandboxConfig, v1::PodSandboxStatus)>,
    pub containers: BTreeMap<String, (v1::ContainerConfig, v1::ContainerStatus, String)>,
    pub images: BTreeSet<String>,
    /// What an image takes on the disk, where a test wants it to take something.
    pub image_files: BTreeMap<String, PathBuf>,
    /// Calls that changed something, in order.
    pub calls: Vec<String>,
    /// Calls that fail, and with which words.
    pub failing: BTreeMap<&'static str, String>,
    /// How often calls have failed that were to.
    pub failed: BTreeMap<String, usize>,
    /// How often a log was to be reopened.
    pub reopened: usize,
    /// Whatever is executed fails.
    pub probes_fail: bool,
    /// The machine's clock, where a test sets it.
    pub clock: Option<environment::Environment>,
    next: i64,
}

impl Runtime {
    pub fn new() -> Runtime {
        let runtime = Runtime {
            state: Arc::default(),
            events: broadcast::channel(64).0,
        };
        runtime.state().images.insert("busybox:latest".to_owned());
        runtime
    }

    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("state lock")
    }

    pub fn serve(&self, socket: &Path) -> tokio::task::JoinHandle<()> {
        let listener = tokio::net::UnixListener::bind(socket).expect("the socket is bound");
        let runtime = runtime_service::RuntimeServiceServer::new(self.clone());
        let images = image_service::ImageServiceServer::new(self.clone());
        tokio::spawn(async move {
            tonic::transport::Server::builder()
                .add_service(runtime)
                .add_service(images)
                .serve_with_incoming(UnixListenerStream::new(listener))
                .await
                .expect("served");
        })
    }

    /// An error if calls of this name are to fail.
    fn fails(&self, name: &str) -> Result<(), Status> {
        let mut state = self.state();
        let Some(message) = state.failing.get(name).cloned() else {
            return Ok(());
        };
        *state.failed.entry(name.to_owned()).or_default() += 1;
        Err(Status::unavailable(message))
    }

    /// How many calls were made that begin so.
    pub fn count(&self, beginning: &str) -> usize {
        let calls = self.state().calls.clone();
        let same = calls.iter().filter(|call| call.starts_with(beginning));
        same.count()
    }

    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// The configurations of all containers ever made with this name.
    pub fn configs(&self, name: &str) -> Vec<v1::ContainerConfig> {
        let state = self.state();
        let all = state.containers.values();
        all.filter(|(config, _, _)| metadata_name(config) == name)
            .map(|(config, _, _)| config.clone())
            .collect()
    }

    /// Ends the running container of this name, as if its process had.
    pub fn end(&self, name: &str, exit_code: i32) {
        let mut state = self.state();
        let now = state.tick();
        let found = state
            .containers
            .iter_mut()
            .find(|(_, (config, status, _))| {
                metadata_name(config) == name
                    && status.state == v1::ContainerState::ContainerRunning as i32
            });
        let (id, (_, status, sandbox)) = found.expect("a running container of that name");
        status.state = v1::ContainerState::ContainerExited as i32;
        status.exit_code = exit_code;
        status.finished_at = now;
        let (id, sandbox) = (id.clone(), sandbox.clone());
        let sandbox_status = state
            .sandboxes
            .get(&sandbox)
            .map(|(_, status)| status.clone());
        drop(state);
        let _ = self.events.send(v1::ContainerEventResponse {
            container_id: id,
            container_event_type: v1::ContainerEventType::ContainerStoppedEvent as i32,
            created_at: now,
            pod_sandbox_status: sandbox_status,
            containers_statuses: Vec::new(),
        });
    }
}

impl State {
    fn tick(&mut self) -> i64 {
        self.next += 1;
        let system = environment::Environment::system;
        self.clock.get_or_insert_with(system).now_micros() * 1000 + self.next
    }

    fn stop(&mut self, id: &str, exit_code: i32) {
        let now = self.tick();
        if let Some((_, status, _)) = self.containers.get_mut(id)
            && status.state == v1::ContainerState::ContainerRunning as i32
        {
            status.state = v1::ContainerState::ContainerExited as i32;
            status.exit_code = exit_code;
            status.finished_at = now;
        }
    }
}

fn metadata_name(config: &v1::ContainerConfig) -> String {
    config.metadata.clone().unwrap_or_default().name
}

fn matches(labels: &HashMap<String, String>, selector: &HashMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

type Streaming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send + 'a>>;

/// Calls the kubelet does not make, in the form `async_trait` gives a method.
macro_rules! not_here {
    ($($name:ident($request:ident) -> $response:ty;)*) => {
        $(fn $name<'a, 'b>(&'a self, _: Request<v1::$request>) -> Answer<'b, $response>
        where
            'a: 'b,
            Self: 'b,
        {
            Box::pin(async { Err(Status::unimplemented(stringify!($name))) })
        })*
    };
}

#[tonic::async_trait]
impl runtime_service::RuntimeService for Runtime {
    async fn version(
        &self,
        _: Request<v1::VersionRequest>,
    ) -> Result<Response<v1::VersionResponse>, Status> {
        Ok(Response::new(v1::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "scripted".to_owned(),
            runtime_version: "1".to_owned(),
            runtime_api_version: "v1".to_owned(),
        }))
    }

    async fn status(
        &self,
        _: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        let conditions = ["RuntimeReady", "NetworkReady"].map(|type_| v1::RuntimeCondition {
            r#type: type_.to_owned(),
            status: true,
            ..Default::default()
        });
        Ok(Response::new(v1::StatusResponse {
            status: Some(v1::RuntimeStatus {
                conditions: conditions.into(),
            }),
            ..Default::default()
        }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> Result<Response<v1::RunPodSandboxResponse>, Status> {
        let config = request.into_inner().config.unwrap_or_default();
        let metadata = config.metadata.clone().unwrap_or_default();
        let mut state = self.state();
        if let Some(message) = state.failing.get("RunPodSandbox") {
            return Err(Status::unknown(message.clone()));
        }
        let created_at = state.tick();
        let id = format!("sandbox-{}", state.next);
        state.calls.push(format!("RunPodSandbox {}", metadata.name));
        let status = v1::PodSandboxStatus {
            id: id.clone(),
            metadata: config.metadata.clone(),
            state: v1::PodSandboxState::SandboxReady as i32,
            created_at,
            network: Some(v1::PodSandboxNetworkStatus {
                ip: "127.0.0.1".to_owned(),
                additional_ips: Vec::new(),
            }),
            labels: config.labels.clone(),
            ..Default::default()
        };
        state.sandboxes.insert(id.clone(), (config, status));
        Ok(Response::new(v1::RunPodSandboxResponse {
            pod_sandbox_id: id,
        }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Result<Response<v1::StopPodSandboxResponse>, Status> {
        let id = request.into_inner().pod_sandbox_id;
        let mut state = self.state();
        if let Some((config, status)) = state.sandboxes.get_mut(&id) {
            status.state = v1::PodSandboxState::SandboxNotready as i32;
            let name = config.metadata.clone().unwrap_or_default().name;
            state.calls.push(format!("StopPodSandbox {name}"));
        }
        Ok(Response::new(v1::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Result<Response<v1::RemovePodSandboxResponse>, Status> {
        let id = request.into_inner().pod_sandbox_id;
        let mut state = self.state();
        if let Some((config, _)) = state.sandboxes.remove(&id) {
            let name = config.metadata.unwrap_or_default().name;
            state.calls.push(format!("RemovePodSandbox {name}"));
        }
        state.containers.retain(|_, (_, _, sandbox)| *sandbox != id);
        Ok(Response::new(v1::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Result<Response<v1::PodSandboxStatusResponse>, Status> {
        let state = self.state();
        let found = state.sandboxes.get(&request.into_inner().pod_sandbox_id);
        let (_, status) = found.ok_or_else(|| Status::not_found("no such sandbox"))?;
        Ok(Response::new(v1::PodSandboxStatusResponse {
            status: Some(status.clone()),
            ..Default::default()
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Result<Response<v1::ListPodSandboxResponse>, Status> {
        let selector = request
            .into_inner()
            .filter
            .unwrap_or_default()
            .label_selector;
        self.fails("ListPodSandbox")?;
        let state = self.state();
        let all = state.sandboxes.values();
        let items = all
            .filter(|(config, _)| matches(&config.labels, &selector))
            .map(|(config, status)| v1::PodSandbox {
                id: status.id.clone(),
                metadata: config.metadata.clone(),
                state: status.state,
                created_at: status.created_at,
                labels: config.labels.clone(),
                ..Default::default()
            })
            .collect();
        Ok(Response::new(v1::ListPodSandboxResponse { items }))
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Result<Response<v1::CreateContainerResponse>, Status> {
        let request = request.into_inner();
        let config = request.config.unwrap_or_default();
        let sandbox = request.sandbox_config.unwrap_or_default();
        let mut state = self.state();
        let created_at = state.tick();
        let id = format!("container-{}", state.next);
        state
            .calls
            .push(format!("CreateContainer {}", metadata_name(&config)));
        let status = v1::ContainerStatus {
            id: id.clone(),
            metadata: config.metadata.clone(),
            state: v1::ContainerState::ContainerCreated as i32,
            created_at,
            image: config.image.clone(),
            image_ref: "busybox@sha256:0".to_owned(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            log_path: format!("{}/{}", sandbox.log_directory, config.log_path),
            ..Default::default()
        };
        let entry = (config, status, request.pod_sandbox_id);
        state.containers.insert(id.clone(), entry);
        Ok(Response::new(v1::CreateContainerResponse {
            container_id: id,
        }))
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> Result<Response<v1::StartContainerResponse>, Status> {
        let mut state = self.state();
        let now = state.tick();
        let id = request.into_inner().container_id;
        let failing = state.failing.get("StartContainer").cloned();
        let found = state.containers.get_mut(&id);
        let (config, status, _) = found.ok_or_else(|| Status::not_found("no such container"))?;
        if let Some(message) = failing {
            status.state = v1::ContainerState::ContainerExited as i32;
            (status.exit_code, status.finished_at) = (128, now);
            status.reason = "StartError".to_owned();
            return Err(Status::unknown(message));
        }
        status.state = v1::ContainerState::ContainerRunning as i32;
        status.started_at = now;
        let log = Path::new(&status.log_path);
        if let Some(directory) = log.parent() {
            std::fs::create_dir_all(directory)?;
            std::fs::write(log, "")?;
        }
        let name = metadata_name(config);
        state.calls.push(format!("StartContainer {name}"));
        Ok(Response::new(v1::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> Result<Response<v1::StopContainerResponse>, Status> {
        let request = request.into_inner();
        let mut state = self.state();
        if let Some((config, _, _)) = state.containers.get(&request.container_id) {
            let name = metadata_name(config);
            state
                .calls
                .push(format!("StopContainer {name} {}", request.timeout));
        }
        if let Some(message) = state.failing.get("StopContainer") {
            return Err(Status::unavailable(message.clone()));
        }
        state.stop(&request.container_id, 143);
        Ok(Response::new(v1::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Result<Response<v1::RemoveContainerResponse>, Status> {
        let id = request.into_inner().container_id;
        let mut state = self.state();
        if let Some((config, _, _)) = state.containers.remove(&id) {
            let name = metadata_name(&config);
            state.calls.push(format!("RemoveContainer {name}"));
        }
        Ok(Response::new(v1::RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Result<Response<v1::ListContainersResponse>, Status> {
        let selector = request
            .into_inner()
            .filter
            .unwrap_or_default()
            .label_selector;
        let state = self.state();
        let containers = state
            .containers
            .values()
            .filter(|(config, _, _)| matches(&config.labels, &selector))
            .map(|(config, status, sandbox)| v1::Container {
                id: status.id.clone(),
                pod_sandbox_id: sandbox.clone(),
                metadata: config.metadata.clone(),
                image: config.image.clone(),
                state: status.state,
                labels: config.labels.clone(),
                ..Default::default()
            })
            .collect();
        Ok(Response::new(v1::ListContainersResponse { containers }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        _: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Result<Response<v1::ListPodSandboxStatsResponse>, Status> {
        let state = self.state();
        let all = state.sandboxes.values();
        let stats = all.map(|(config, status)| v1::PodSandboxStats {
            attributes: Some(v1::PodSandboxAttributes {
                id: status.id.clone(),
                metadata: config.metadata.clone(),
                labels: config.labels.clone(),
                ..Default::default()
            }),
            linux: Some(v1::LinuxPodSandboxStats::default()),
            ..Default::default()
        });
        Ok(Response::new(v1::ListPodSandboxStatsResponse {
            stats: stats.collect(),
        }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Result<Response<v1::ContainerStatusResponse>, Status> {
        let state = self.state();
        let found = state.containers.get(&request.into_inner().container_id);
        let (_, status, _) = found.ok_or_else(|| Status::not_found("no such container"))?;
        Ok(Response::new(v1::ContainerStatusResponse {
            status: Some(status.clone()),
            ..Default::default()
        }))
    }

    /// `true` succeeds, `hang` never comes back, anything else fails.
    async fn exec_sync(
        &self,
        request: Request<v1::ExecSyncRequest>,
    ) -> Result<Response<v1::ExecSyncResponse>, Status> {
        let command = request.into_inner().cmd;
        self.state()
            .calls
            .push(format!("ExecSync {}", command.join(" ")));
        self.fails("ExecSync")?;
        if command == ["hang"] {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(v1::ExecSyncResponse {
            exit_code: i32::from(command != ["true"] || self.state().probes_fail),
            ..Default::default()
        }))
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Result<Response<v1::ReopenContainerLogResponse>, Status> {
        let id = request.into_inner().container_id;
        let found = self.state().containers.get(&id).cloned();
        let (_, status, _) = found.ok_or_else(|| Status::not_found("no such container"))?;
        self.state().reopened += 1;
        self.fails("ReopenContainerLog")?;
        std::fs::write(&status.log_path, "")?;
        Ok(Response::new(v1::ReopenContainerLogResponse {}))
    }

    type GetContainerEventsStream = Streaming<v1::ContainerEventResponse>;

    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> Result<Response<Self::GetContainerEventsStream>, Status> {
        let events = BroadcastStream::new(self.events.subscribe());
        let events =
            events.map(|event| event.map_err(|error| Status::data_loss(error.to_string())));
        Ok(Response::new(Box::pin(events)))
    }

    type StreamPodSandboxesStream = Streaming<v1::StreamPodSandboxesResponse>;
    type StreamContainersStream = Streaming<v1::StreamContainersResponse>;
    type StreamContainerStatsStream = Streaming<v1::StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = Streaming<v1::StreamPodSandboxStatsResponse>;
    type StreamPodSandboxMetricsStream = Streaming<v1::StreamPodSandboxMetricsResponse>;

    not_here! {
        stream_pod_sandboxes(StreamPodSandboxesRequest) -> Self::StreamPodSandboxesStream;
        stream_containers(StreamContainersRequest) -> Self::StreamContainersStream;
        stream_container_stats(StreamContainerStatsRequest) -> Self::StreamContainerStatsStream;
        stream_pod_sandbox_stats(StreamPodSandboxStatsRequest) -> Self::StreamPodSandboxStatsStream;
        stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest) -> Self::StreamPodSandboxMetricsStream;
    }

    not_here! {
        update_container_resources(UpdateContainerResourcesRequest) -> v1::UpdateContainerResourcesResponse;
        exec(ExecRequest) -> v1::ExecResponse;
        attach(AttachRequest) -> v1::AttachResponse;
        port_forward(PortForwardRequest) -> v1::PortForwardResponse;
        container_stats(ContainerStatsRequest) -> v1::ContainerStatsResponse;
        list_container_stats(ListContainerStatsRequest) -> v1::ListContainerStatsResponse;
        pod_sandbox_stats(PodSandboxStatsRequest) -> v1::PodSandboxStatsResponse;
        update_runtime_config(UpdateRuntimeConfigRequest) -> v1::UpdateRuntimeConfigResponse;
        checkpoint_container(CheckpointContainerRequest) -> v1::CheckpointContainerResponse;
        list_metric_descriptors(ListMetricDescriptorsRequest) -> v1::ListMetricDescriptorsResponse;
        list_pod_sandbox_metrics(ListPodSandboxMetricsRequest) -> v1::ListPodSandboxMetricsResponse;
        runtime_config(RuntimeConfigRequest) -> v1::RuntimeConfigResponse;
        update_pod_sandbox_resources(UpdatePodSandboxResourcesRequest) -> v1::UpdatePodSandboxResourcesResponse;
    }
}

#[tonic::async_trait]
impl image_service::ImageService for Runtime {
    type StreamImagesStream = Streaming<v1::StreamImagesResponse>;

    async fn list_images(
        &self,
        _: Request<v1::ListImagesRequest>,
    ) -> Result<Response<v1::ListImagesResponse>, Status> {
        let state = self.state();
        let images = state.images.iter().map(|name| v1::Image {
            id: name.clone(),
            size: 1,
            ..Default::default()
        });
        Ok(Response::new(v1::ListImagesResponse {
            images: images.collect(),
        }))
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> Result<Response<v1::ImageStatusResponse>, Status> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let found = self.state().images.contains(&name);
        let image = found.then(|| v1::Image {
            id: name,
            size: 1,
            ..Default::default()
        });
        Ok(Response::new(v1::ImageStatusResponse {
            image,
            ..Default::default()
        }))
    }

    async fn pull_image(
        &self,
        request: Request<v1::PullImageRequest>,
    ) -> Result<Response<v1::PullImageResponse>, Status> {
        let request = request.into_inner();
        let name = request.image.unwrap_or_default().image;
        self.state().calls.push(format!("PullImage {name}"));
        if name.contains("private") && request.auth.is_none_or(|auth| auth.password != "pw") {
            return Err(Status::unknown("pull access denied"));
        }
        if let Some(message) = self.state().failing.get("PullImage") {
            return Err(Status::unavailable(message.clone()));
        }
        if name.starts_with("absent") {
            return Err(Status::not_found(format!("{name}: not found")));
        }
        self.state().images.insert(name.clone());
        Ok(Response::new(v1::PullImageResponse { image_ref: name }))
    }

    not_here! {
        stream_images(StreamImagesRequest) -> Self::StreamImagesStream;
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> Result<Response<v1::RemoveImageResponse>, Status> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let mut state = self.state();
        state.images.remove(&name);
        if let Some(file) = state.image_files.remove(&name) {
            std::fs::remove_file(file).map_err(|error| Status::unknown(error.to_string()))?;
        }
        state.calls.push(format!("RemoveImage {name}"));
        Ok(Response::new(v1::RemoveImageResponse {}))
    }

    not_here! {
        image_fs_info(ImageFsInfoRequest) -> v1::ImageFsInfoResponse;
    }
}
