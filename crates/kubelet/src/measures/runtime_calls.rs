//! Counts and times the calls to the runtime, under upstream's names for them.

use std::time::Duration;

use super::{Counter, Histogram, Measures};

impl cri::calls::Observer for Measures {
    fn called(&self, method: &str, took: Duration, failed: bool) {
        let operation = [operation(method)];
        self.count(Counter::RuntimeOperations, &operation);
        self.time(Histogram::RuntimeOperationsDuration, &operation, took);
        if failed {
            self.count(Counter::RuntimeOperationsErrors, &operation);
        }
    }
}

fn operation(method: &str) -> &'static str {
    match method {
        "Version" => "version",
        "Status" => "status",
        "CreateContainer" => "create_container",
        "StartContainer" => "start_container",
        "StopContainer" => "stop_container",
        "RemoveContainer" => "remove_container",
        "ListContainers" => "list_containers",
        "ContainerStatus" => "container_status",
        "UpdateContainerResources" => "update_container",
        "ReopenContainerLog" => "reopen_container_log",
        "ExecSync" => "exec_sync",
        "Exec" => "exec",
        "Attach" => "attach",
        "RunPodSandbox" => "run_podsandbox",
        "StopPodSandbox" => "stop_podsandbox",
        "RemovePodSandbox" => "remove_podsandbox",
        "PodSandboxStatus" => "podsandbox_status",
        "ListPodSandbox" => "list_podsandbox",
        "ContainerStats" => "container_stats",
        "ListContainerStats" => "list_container_stats",
        "PodSandboxStats" => "podsandbox_stats",
        "ListPodSandboxStats" => "list_podsandbox_stats",
        "PortForward" => "port_forward",
        "UpdatePodSandboxResources" => "update_podsandbox_resources",
        "UpdateRuntimeConfig" => "update_runtime_config",
        "ListImages" => "list_images",
        "ImageStatus" => "image_status",
        "PullImage" => "pull_image",
        "RemoveImage" => "remove_image",
        "ImageFsInfo" => "image_fs_info",
        "CheckpointContainer" => "checkpoint_container",
        "GetContainerEvents" => "get_container_events",
        "ListMetricDescriptors" => "list_metric_descriptors",
        "ListPodSandboxMetrics" => "list_podsandbox_metrics",
        "RuntimeConfig" => "runtime_config",
        _ => "other",
    }
}
