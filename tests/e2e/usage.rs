//! What pods use: `kubectl top`, and an autoscaler that acts on it.

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
fn use_is_shown_and_scaled_by() {
    let cluster = Cluster::start();
    cluster.apply(WORKLOAD);
    let top = |what: &[&str]| {
        let output = cluster.kubectl_command(what).output().expect("kubectl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    };
    let pods = eventually("figures of the pod", || {
        top(&["top", "pods", "--containers", "--no-headers"]).filter(|text| text.contains("eager"))
    });
    let memory = pods.split_whitespace().last().unwrap_or_default();
    let mebibytes: u64 = memory.trim_end_matches("Mi").parse().expect("an amount");
    assert!(mebibytes >= 7, "{pods}");
    let nodes = top(&["top", "nodes", "--no-headers"]).expect("figures of the node");
    assert!(nodes.contains('%'), "{nodes}");
    eventually("a second pod", || {
        let set = cluster.object("deployment", "eager");
        (set["status"]["readyReplicas"] == 2).then_some(())
    });
    let scaler = cluster.object("hpa", "eager");
    let current = &scaler["status"]["currentMetrics"][0]["resource"]["current"];
    assert!(current["averageValue"].is_string(), "{scaler}");
}
