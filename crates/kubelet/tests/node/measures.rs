//! What `/metrics` says of a pod's life.

use kube::api::DeleteParams;
use serde_json::json;

use crate::{
    asking::value,
    harness::{Node, ready, waits_for},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pods_life_is_counted_and_timed() {
    let node = Node::start().await;
    let pod = json!({
        "initContainers": [{"name": "setup", "image": "fresh"}],
        "containers": [{"name": "main", "image": "busybox"}], "terminationGracePeriodSeconds": 1});
    node.create("web", pod).await;
    node.wait("web", |_| {
        let calls = node.runtime.calls();
        calls.iter().any(|call| call == "StartContainer setup")
    })
    .await;
    node.runtime.end("setup", 0);
    node.wait("web", ready).await;
    node.create(
        "lost",
        json!({"containers": [{"name": "main", "image": "absent"}]}),
    )
    .await;
    let failed = |pod: &_| waits_for(pod).is_some_and(|why| why == "ErrImagePull");
    node.wait("lost", failed).await;
    let starts = "kubelet_pod_start_sli_duration_seconds_count";
    node.metric(starts, |count| count == 1.0).await;
    let delete = DeleteParams::default();
    node.pods().delete("web", &delete).await.expect("deleted");
    node.wait_gone("web").await;
    let rounds = "kubelet_pod_worker_duration_seconds_count{operation_type=\"create\"}";
    node.metric(rounds, |count| count == 2.0).await;
    let desired = "kubelet_desired_pods{static=\"\"}";
    node.metric(desired, |count| count == 1.0).await;

    let page = node.get("/metrics").await;
    for (series, expected) in [
        ("kubelet_pod_start_duration_seconds_count", 1.0),
        ("kubelet_pod_start_total_duration_seconds_count", 1.0),
        (
            "kubelet_pod_start_sli_duration_seconds_bucket{le=\"+Inf\"}",
            1.0,
        ),
        ("kubelet_pod_worker_start_duration_seconds_count", 2.0),
        ("kubelet_containers_per_pod_count_bucket{le=\"1\"}", 2.0),
        ("kubelet_started_pods_total", 2.0),
        (
            "kubelet_started_containers_total{container_type=\"container\"}",
            1.0,
        ),
        (
            "kubelet_started_containers_total{container_type=\"init_container\"}",
            1.0,
        ),
        (
            "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"}",
            2.0,
        ),
        (
            "kubelet_runtime_operations_duration_seconds_count{operation_type=\"start_container\"}",
            2.0,
        ),
        (
            "kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"\"}",
            2.0,
        ),
        (
            "kubelet_image_pull_duration_seconds_count{image_size_in_bytes=\"0-10MB\"}",
            2.0,
        ),
        (
            "kubelet_cgroup_manager_duration_seconds_count{operation_type=\"create\"}",
            2.0,
        ),
        (
            "kubelet_cgroup_manager_duration_seconds_count{operation_type=\"destroy\"}",
            1.0,
        ),
        ("kubelet_evented_pleg_connection_success_count", 1.0),
        ("kubelet_running_pods", 1.0),
        ("kubelet_node_name{node=\"node-1\"}", 1.0),
    ] {
        assert_eq!(value(&page, series), Some(expected), "{series}\n{page}");
    }
    for series in [
        "kubelet_pleg_relist_duration_seconds_count",
        // A pull that failed is tried again.
        "kubelet_runtime_operations_errors_total{operation_type=\"pull_image\"}",
        "kubelet_image_manager_ensure_image_requests_total{pull_policy=\"always\",present_locally=\"unknown\",pull_required=\"true\"}",
        "kubelet_pod_status_sync_duration_seconds_count",
        "kubelet_pod_worker_duration_seconds_count{operation_type=\"kill\"}",
        "kubelet_terminated_containers_total{container_type=\"container\",exit_code=\"143\",reason=\"\"}",
        "kubelet_terminated_containers_total{container_type=\"init_container\",exit_code=\"0\",reason=\"\"}",
        "kubelet_http_requests_total{method=\"GET\",path=\"metrics\",server_type=\"readwrite\",long_running=\"false\"}",
        "process_resident_memory_bytes",
        "kubelet_pleg_last_seen_seconds",
    ] {
        assert!(value(&page, series) > Some(0.0), "{series}\n{page}");
    }
    node.close().await;
}
