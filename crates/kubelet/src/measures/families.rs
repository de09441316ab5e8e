//! The families of metrics that the kubelet keeps itself, under upstream's names, with its labels
//! and bounds. Gauges are not here: they are read when somebody asks.

use super::Description;

/// Declares an enum of families and the table it indexes.
macro_rules! families {
    ($kind:ident in $table:ident: $($family:ident = $name:literal [$($label:literal),*] $buckets:expr, $help:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind { $($family),* }

        pub const $table: [Description; [$($name),*].len()] = [$(Description {
            name: $name,
            labels: &[$($label),*],
            help: $help,
            buckets: &$buckets,
        }),*];
    };
}

const NONE: [f64; 0] = [];
const ORDINARY: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// From 5 ms, each two and a half times the one before.
const OPERATION: [f64; 14] = [
    0.005,
    0.0125,
    0.03125,
    0.078125,
    0.1953125,
    0.48828125,
    1.220703125,
    3.0517578125,
    7.62939453125,
    19.073486328125,
    47.6837158203125,
    119.20928955078125,
    298.0232238769531,
    745.0580596923828,
];
const START: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
    300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
const PULL: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0,
    1200.0, 1800.0, 2700.0, 3600.0,
];
const STATUS: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
const CONTAINERS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];

families! { Counter in COUNTERS:
    StartedPods = "kubelet_started_pods_total" [] NONE,
        "[ALPHA] Cumulative number of pods started";
    StartedPodsErrors = "kubelet_started_pods_errors_total" [] NONE,
        "[ALPHA] Cumulative number of errors when starting pods";
    StartedUserNamespacedPods = "kubelet_started_user_namespaced_pods_total" [] NONE,
        "[ALPHA] Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.";
    StartedUserNamespacedPodsErrors = "kubelet_started_user_namespaced_pods_errors_total" [] NONE,
        "[ALPHA] Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on Linux.";
    StartedContainers = "kubelet_started_containers_total" ["container_type"] NONE,
        "[ALPHA] Cumulative number of containers started";
    StartedContainersErrors = "kubelet_started_containers_errors_total" ["container_type", "code"] NONE,
        "[ALPHA] Cumulative number of errors when starting containers";
    TerminatedContainers = "kubelet_terminated_containers_total" ["container_type", "exit_code", "reason"] NONE,
        "[ALPHA] Cumulative number of container terminations.";
    Evictions = "kubelet_evictions" ["eviction_signal"] NONE,
        "[ALPHA] Cumulative number of pod evictions by eviction signal";
    Preemptions = "kubelet_preemptions" ["preemption_signal"] NONE,
        "[ALPHA] Cumulative number of pod preemptions by preemption resource";
    AdmissionRejections = "kubelet_admission_rejections_total" ["reason"] NONE,
        "[ALPHA] Cumulative number pod admission rejections by the Kubelet.";
    RuntimeOperations = "kubelet_runtime_operations_total" ["operation_type"] NONE,
        "[ALPHA] Cumulative number of runtime operations by operation type.";
    RuntimeOperationsErrors = "kubelet_runtime_operations_errors_total" ["operation_type"] NONE,
        "[ALPHA] Cumulative number of runtime operation errors by operation type.";
    RunPodSandboxErrors = "kubelet_run_podsandbox_errors_total" ["runtime_handler"] NONE,
        "[ALPHA] Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.";
    EventedPlegConnections = "kubelet_evented_pleg_connection_success_count" [] NONE,
        "[ALPHA] The number of times a streaming client was obtained to receive CRI Events.";
    EventedPlegConnectionErrors = "kubelet_evented_pleg_connection_error_count" [] NONE,
        "[ALPHA] The number of errors encountered during the establishment of streaming connection with the CRI runtime.";
    OrphanedRuntimePods = "kubelet_orphaned_runtime_pods_total" [] NONE,
        "[ALPHA] Number of pods that have been detected in the container runtime without being already known to the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in the local configuration, which is unusual.";
    EnsureImageRequests = "kubelet_image_manager_ensure_image_requests_total" ["pull_policy", "present_locally", "pull_required"] NONE,
        "[ALPHA] Number of ensure-image requests processed by the kubelet.";
    ImagesCollected = "kubelet_image_garbage_collected_total" ["reason"] NONE,
        "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.";
    LifecycleHandlerHttpFallbacks = "kubelet_lifecycle_handler_http_fallbacks_total" [] NONE,
        "[ALPHA] The number of times lifecycle handlers successfully fell back to http from https.";
    SleepActionTerminated = "kubelet_sleep_action_terminated_early_total" [] NONE,
        "[ALPHA] The number of times lifecycle sleep handler got terminated before it finishes";
    HttpRequests = "kubelet_http_requests_total" ["method", "path", "server_type", "long_running"] NONE,
        "[ALPHA] Number of the http requests received since the server started";
    WebSocketStreamingRequests = "kubelet_websocket_streaming_requests_total" ["subresource"] NONE,
        "[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.";
    CredentialProviderPluginErrors = "kubelet_credential_provider_plugin_errors_total" ["plugin_name"] NONE,
        "[ALPHA] Number of errors from credential provider plugin";
}

families! { Histogram in HISTOGRAMS:
    PodStartDuration = "kubelet_pod_start_duration_seconds" [] START,
        "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run";
    PodStartSliDuration = "kubelet_pod_start_sli_duration_seconds" [] START,
        "[ALPHA] Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch";
    PodStartTotalDuration = "kubelet_pod_start_total_duration_seconds" [] START,
        "[ALPHA] Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch";
    PodWorkerDuration = "kubelet_pod_worker_duration_seconds" ["operation_type"] ORDINARY,
        "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync";
    PodWorkerStartDuration = "kubelet_pod_worker_start_duration_seconds" [] ORDINARY,
        "[ALPHA] Duration in seconds from kubelet seeing a pod to starting a worker.";
    PodStatusSyncDuration = "kubelet_pod_status_sync_duration_seconds" [] STATUS,
        "[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.";
    ContainersPerPod = "kubelet_containers_per_pod_count" [] CONTAINERS,
        "[ALPHA] The number of containers per pod.";
    CgroupManagerDuration = "kubelet_cgroup_manager_duration_seconds" ["operation_type"] ORDINARY,
        "[ALPHA] Duration in seconds for cgroup manager operations. Broken down by method.";
    PlegRelistDuration = "kubelet_pleg_relist_duration_seconds" [] ORDINARY,
        "[ALPHA] Duration in seconds for relisting pods in PLEG.";
    PlegRelistInterval = "kubelet_pleg_relist_interval_seconds" [] ORDINARY,
        "[ALPHA] Interval in seconds between relisting in PLEG.";
    EventedPlegConnectionLatency = "kubelet_evented_pleg_connection_latency_seconds" [] ORDINARY,
        "[ALPHA] The latency of streaming connection with the CRI runtime, measured in seconds.";
    RuntimeOperationsDuration = "kubelet_runtime_operations_duration_seconds" ["operation_type"] OPERATION,
        "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.";
    RunPodSandboxDuration = "kubelet_run_podsandbox_duration_seconds" ["runtime_handler"] ORDINARY,
        "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.";
    ImagePullDuration = "kubelet_image_pull_duration_seconds" ["image_size_in_bytes"] PULL,
        "[ALPHA] Duration in seconds to pull an image.";
    EvictionStatsAge = "kubelet_eviction_stats_age_seconds" ["eviction_signal"] ORDINARY,
        "[ALPHA] Time between when stats are collected, and when pod is evicted based on those stats by eviction signal";
    HttpRequestsDuration = "kubelet_http_requests_duration_seconds" ["method", "path", "server_type", "long_running"] ORDINARY,
        "[ALPHA] Duration in seconds to serve http requests";
    CredentialProviderPluginDuration = "kubelet_credential_provider_plugin_duration" ["plugin_name"] ORDINARY,
        "[ALPHA] Duration of execution in seconds for credential provider plugin";
}
