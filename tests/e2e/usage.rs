//! The resource usage of pods: `kubectl top`, an autoscaler that acts on it, and the kubelet's
//! endpoints.

use crate::cluster::{Cluster, eventually};

const WORKLOAD: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: eager}
spec:
  selector: {matchLabels: {app: eager}}
  template:
    metadata: {labels: {app: eager}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: coracle-test:1
        command: [sh, -c, "head -c 8000000 /dev/zero > /dev/shm/held; sleep 3600"]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: eager}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: eager}
  maxReplicas: 2
  metrics:
  - type: Resource
    resource: {name: memory, target: {type: AverageValue, averageValue: 1Mi}}
"#;

#[test]
fn kubectl_top_and_the_pod_autoscaler_see_the_usage_of_pods() {
    let cluster = Cluster::start();
    cluster.apply(WORKLOAD);
    let top = |what: &[&str]| {
        let output = cluster.kubectl_command(what).output().expect("kubectl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    };
    // The first figures may be older than the container's writes.
    eventually("figures of the pod", || {
        let pods = top(&["top", "pods", "--containers", "--no-headers"])?;
        let first = pods.lines().find(|line| line.contains("eager"))?;
        let memory = first.split_whitespace().last().unwrap_or_default();
        let mebibytes: u64 = memory.trim_end_matches("Mi").parse().expect("an amount");
        (mebibytes >= 7).then_some(())
    });
    eventually("figures of the node", || {
        top(&["top", "nodes", "--no-headers"]).filter(|nodes| nodes.contains('%'))
    });
    eventually("a second pod", || {
        let set = cluster.object("deployment", "eager");
        (set["status"]["readyReplicas"] == 2).then_some(())
    });
    eventually("what the autoscaler acts on", || {
        let scaler = cluster.object("hpa", "eager");
        let current = &scaler["status"]["currentMetrics"][0]["resource"]["current"];
        current["averageValue"].is_string().then_some(())
    });

    let node = cluster.kubectl(&["get", "nodes", "-o", "name"]);
    let node = node.trim().trim_start_matches("node/");
    let page = |path: &str| {
        let path = format!("/api/v1/nodes/{node}/proxy{path}");
        cluster.kubectl(&["get", "--raw", &path])
    };
    for (path, expected) in [
        ("/healthz/syncloop", "ok"),
        ("/runningpods/", "\"name\":\"eager-"),
        ("/logs/", "<pre>"),
        (
            "/metrics",
            "kubelet_started_containers_total{container_type=\"container\"}",
        ),
        (
            "/metrics/cadvisor",
            "container_memory_working_set_bytes{container=\"main\"",
        ),
        ("/configz", "\"imagePullCredentialsVerificationPolicy\""),
    ] {
        // Some endpoints show figures that are some seconds old.
        eventually(&format!("{expected} in {path}"), || {
            page(path).contains(expected).then_some(())
        });
    }
    let declared = cluster.object("node", node)["status"]["declaredFeatures"].clone();
    let restarts = "RestartAllContainersOnContainerExits";
    assert!(declared.to_string().contains(restarts), "{declared}");
}
