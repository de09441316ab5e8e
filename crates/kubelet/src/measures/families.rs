//! The families of metrics that the kubelet keeps itself, under upstream's names, with its labels
//! and bounds. Gauges are not here: they are read when a page is requested.

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
        "[ALPHA] Pods that were started";
    StartedPodsErrors = "kubelet_started_pods_errors_total" [] NONE,
        "[ALPHA] Pods whose sandbox could not be created";
    StartedUserNamespacedPods = "kubelet_started_user_namespaced_pods_total" [] NONE,
        "[ALPHA] Pods with a user namespace that were started";
    StartedUserNamespacedPodsErrors = "kubelet_started_user_namespaced_pods_errors_total" [] NONE,
        "[ALPHA] Pods with a user namespace whose sandbox could not be created";
    StartedContainers = "kubelet_started_containers_total" ["container_type"] NONE,
        "[ALPHA] Containers that were started";
    StartedContainersErrors = "kubelet_started_containers_errors_total" ["container_type", "code"] NONE,
        "[ALPHA] Containers that could not be started";
    TerminatedContainers = "kubelet_terminated_containers_total" ["container_type", "exit_code", "reason"] NONE,
        "[ALPHA] Containers that terminated";
    Evictions = "kubelet_evictions" ["eviction_signal"] NONE,
        "[ALPHA] Pods evicted, by eviction signal";
    Preemptions = "kubelet_preemptions" ["preemption_signal"] NONE,
        "[ALPHA] Pods preempted for a critical pod, by the resource that was short";
    AdmissionRejections = "kubelet_admission_rejections_total" ["reason"] NONE,
        "[ALPHA] Pods rejected by this node, by reason";
    RuntimeOperations = "kubelet_runtime_operations_total" ["operation_type"] NONE,
        "[ALPHA] Calls to the runtime";
    RuntimeOperationsErrors = "kubelet_runtime_operations_errors_total" ["operation_type"] NONE,
        "[ALPHA] Calls to the runtime that failed";
    RunPodSandboxErrors = "kubelet_run_podsandbox_errors_total" ["runtime_handler"] NONE,
        "[ALPHA] Sandboxes that could not be created, by runtime handler";
    EventedPlegConnections = "kubelet_evented_pleg_connection_success_count" [] NONE,
        "[ALPHA] Streams of runtime events that were opened";
    EventedPlegConnectionErrors = "kubelet_evented_pleg_connection_error_count" [] NONE,
        "[ALPHA] Streams of runtime events that could not be opened";
    OrphanedRuntimePods = "kubelet_orphaned_runtime_pods_total" [] NONE,
        "[ALPHA] Pods found in the runtime that no worker knew of, as a restart leaves them";
    EnsureImageRequests = "kubelet_image_manager_ensure_image_requests_total" ["pull_policy", "present_locally", "pull_required"] NONE,
        "[ALPHA] Images asked for before a container starts";
    ImagesCollected = "kubelet_image_garbage_collected_total" ["reason"] NONE,
        "[ALPHA] Images removed, by reason (space or age)";
    LifecycleHandlerHttpFallbacks = "kubelet_lifecycle_handler_http_fallbacks_total" [] NONE,
        "[ALPHA] Lifecycle hooks over HTTPS that were repeated over HTTP because the server speaks HTTP";
    SleepActionTerminated = "kubelet_sleep_action_terminated_early_total" [] NONE,
        "[ALPHA] Sleep hooks that were cut short";
    HttpRequests = "kubelet_http_requests_total" ["method", "path", "server_type", "long_running"] NONE,
        "[ALPHA] Requests served so far";
    WebSocketStreamingRequests = "kubelet_websocket_streaming_requests_total" ["subresource"] NONE,
        "[ALPHA] Exec, attach and port-forward requests over WebSocket";
    CredentialProviderPluginErrors = "kubelet_credential_provider_plugin_errors_total" ["plugin_name"] NONE,
        "[ALPHA] Calls of credential provider plugins that failed";
}

families! { Histogram in HISTOGRAMS:
    PodStartDuration = "kubelet_pod_start_duration_seconds" [] START,
        "[ALPHA] Seconds from a pod's arrival on the node until it runs";
    PodStartSliDuration = "kubelet_pod_start_sli_duration_seconds" [] START,
        "[ALPHA] Seconds from a pod's creation until a watcher sees all its containers started, without pulls and init containers";
    PodStartTotalDuration = "kubelet_pod_start_total_duration_seconds" [] START,
        "[ALPHA] Seconds from a pod's creation until a watcher sees all its containers started, with everything";
    PodWorkerDuration = "kubelet_pod_worker_duration_seconds" ["operation_type"] ORDINARY,
        "[ALPHA] Seconds that a worker takes for one step of a pod, by kind of step";
    PodWorkerStartDuration = "kubelet_pod_worker_start_duration_seconds" [] ORDINARY,
        "[ALPHA] Seconds from a pod's arrival on the node until it has a worker";
    PodStatusSyncDuration = "kubelet_pod_status_sync_duration_seconds" [] STATUS,
        "[ALPHA] Seconds from a change of a pod's status until the API has it";
    ContainersPerPod = "kubelet_containers_per_pod_count" [] CONTAINERS,
        "[ALPHA] Containers of each pod";
    CgroupManagerDuration = "kubelet_cgroup_manager_duration_seconds" ["operation_type"] ORDINARY,
        "[ALPHA] Seconds that work on control groups takes, by kind of work";
    PlegRelistDuration = "kubelet_pleg_relist_duration_seconds" [] ORDINARY,
        "[ALPHA] Seconds that listing pods from the runtime takes";
    PlegRelistInterval = "kubelet_pleg_relist_interval_seconds" [] ORDINARY,
        "[ALPHA] Seconds from one such listing to the next";
    EventedPlegConnectionLatency = "kubelet_evented_pleg_connection_latency_seconds" [] ORDINARY,
        "[ALPHA] Seconds until a stream of runtime events is open";
    RuntimeOperationsDuration = "kubelet_runtime_operations_duration_seconds" ["operation_type"] OPERATION,
        "[ALPHA] Seconds that calls to the runtime take, by call";
    RunPodSandboxDuration = "kubelet_run_podsandbox_duration_seconds" ["runtime_handler"] ORDINARY,
        "[ALPHA] Seconds that creating a sandbox takes, by runtime handler";
    ImagePullDuration = "kubelet_image_pull_duration_seconds" ["image_size_in_bytes"] PULL,
        "[ALPHA] Seconds that pulling an image takes, by its size";
    EvictionStatsAge = "kubelet_eviction_stats_age_seconds" ["eviction_signal"] ORDINARY,
        "[ALPHA] Seconds from the figures that led to an eviction until the pod is evicted";
    HttpRequestsDuration = "kubelet_http_requests_duration_seconds" ["method", "path", "server_type", "long_running"] ORDINARY,
        "[ALPHA] Seconds that serving a request takes";
    CredentialProviderPluginDuration = "kubelet_credential_provider_plugin_duration" ["plugin_name"] ORDINARY,
        "[ALPHA] Seconds that a call of a credential provider plugin takes";
}
