//! Free capacity of a node, with scheduler, controllers and real containers: the resources of a
//! deleted pod can be used by the next one, however long its containers take to terminate.

use serde_json::Value;

use crate::cluster::{Cluster, eventually};

/// A CPU request of three quarters of this machine.
fn most_cpus() -> String {
    let cpus = std::thread::available_parallelism().expect("a number of CPUs");
    format!("{}m", cpus.get() * 750)
}

fn pods(cluster: &Cluster) -> Vec<Value> {
    let list = cluster.kubectl(&["get", "pods", "-o", "json"]);
    let list: Value = serde_json::from_str(&list).expect("a list");
    list["items"].as_array().cloned().unwrap_or_default()
}

fn rejected(pods: &[Value]) -> Vec<&Value> {
    let failed = |pod: &&Value| pod["status"]["phase"] == "Failed";
    pods.iter()
        .filter(failed)
        .map(|pod| &pod["status"])
        .collect()
}

#[test]
fn a_deployment_replaces_a_pod_deleted_by_force_without_a_rejection() {
    let cluster = Cluster::start();
    let cpu = most_cpus();
    cluster.apply(&format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers:
      - name: c
        image: coracle-test:1
        # It does not hear the signal that asks it to end.
        command: [sh, -c, "trap '' TERM; while true; do sleep 1; done"]
        resources: {{requests: {{cpu: {cpu}}}}}
"#
    ));
    let running = |but: &str| {
        eventually("a running pod", || {
            let pods = pods(&cluster);
            assert!(rejected(&pods).is_empty(), "{:?}", rejected(&pods));
            let found = pods.iter().find(|pod| {
                pod["status"]["phase"] == "Running"
                    && pod["metadata"]["name"] != but
                    && pod["metadata"]["deletionTimestamp"].is_null()
            })?;
            found["metadata"]["name"].as_str().map(str::to_owned)
        })
    };
    let mut name = running("");
    for _ in 0..3 {
        cluster.kubectl(&["delete", "pod", &name, "--force", "--grace-period=0"]);
        name = running(&name);
    }
}

#[test]
fn a_pod_that_preempts_one_without_grace_runs() {
    let cluster = Cluster::start();
    let cpu = most_cpus();
    cluster.apply(&format!(
        r#"
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: high}}
value: 1000
---
apiVersion: v1
kind: Pod
metadata: {{name: victim}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: coracle-test:1
    command: [sh, -c, "trap '' TERM; while true; do sleep 1; done"]
    resources: {{requests: {{cpu: {cpu}}}}}
"#
    ));
    cluster.wait_for_phase("victim", "Running");
    cluster.apply(&format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: preemptor}}
spec:
  priorityClassName: high
  containers:
  - name: c
    image: coracle-test:1
    command: [sleep, "3600"]
    resources: {{requests: {{cpu: {cpu}}}}}
"#
    ));
    cluster.wait_for_phase("preemptor", "Running");
    assert!(rejected(&pods(&cluster)).is_empty());
}
