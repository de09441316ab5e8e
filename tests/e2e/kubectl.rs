//! The stock kubectl with a real pod.

use crate::cluster::{Cluster, eventually};

const POD: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {greeting: ahoy}
---
apiVersion: v1
kind: Pod
metadata: {name: boat, labels: {app: boat}}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: words, configMap: {name: words}}
  - {name: shared, emptyDir: {}}
  initContainers:
  - name: prepare
    image: coracle-test:1
    command: [sh, -c, "cp /words/greeting /shared/index.html; echo prepared"]
    volumeMounts:
    - {name: words, mountPath: /words}
    - {name: shared, mountPath: /shared}
  containers:
  - name: server
    image: coracle-test:1
    command: [httpd, -f, -p, "8080", -h, /shared]
    volumeMounts: [{name: shared, mountPath: /shared}]
    resources: {limits: {memory: 32Mi, cpu: 200m}}
  - name: client
    image: coracle-test:1
    command: [sh, -c]
    args:
    - |
      until wget -q -O - http://127.0.0.1:8080/; do sleep 0.05; done
      echo fetched
      exec sleep 1000
    resources: {limits: {memory: 16Mi}}
"#;

#[test]
fn kubectl_works_with_a_pod_from_apply_to_delete() {
    let cluster = Cluster::start();
    let said = cluster.apply(POD);
    assert!(said.contains("pod/boat created"), "{said}");
    cluster.wait_ready("boat");

    let wide = cluster.kubectl(&["get", "pods", "-o", "wide"]);
    let address = cluster.kubectl(&["get", "pod", "boat", "-o", "jsonpath={.status.podIP}"]);
    assert!(
        wide.contains("2/2") && wide.contains("Running") && wide.contains(&address),
        "{wide}"
    );
    address
        .parse::<std::net::Ipv4Addr>()
        .expect("the pod has an address");
    for part in [
        "Init Containers:",
        "prepare:",
        "Completed",
        "Successfully assigned",
        "Container started",
    ] {
        // Events are written concurrently with the status.
        eventually(&format!("{part} in what describe says"), || {
            let described = cluster.kubectl(&["describe", "pod", "boat"]);
            described.contains(part).then_some(())
        });
    }
    assert_eq!(
        cluster.kubectl(&["logs", "boat", "-c", "prepare"]).trim(),
        "prepared"
    );
    eventually("the two containers talk", || {
        let log = cluster.kubectl(&["logs", "boat", "-c", "client"]);
        (log.contains("ahoy") && log.contains("fetched")).then_some(())
    });
    let pod = cluster.object("pod", "boat");
    assert_eq!(pod["status"]["qosClass"], "Burstable");
    assert_eq!(limit_in_cgroup(&cluster, &pod, "server"), 32 * 1024 * 1024);

    // A repeated apply writes nothing (kubectl may send a patch that only contains the order of lists,
    // since the token's mount was added); then a changed label is written. The node may still write the
    // pod's status once more, but not each time.
    eventually("a pod that is not written by being applied", || {
        let version = || cluster.object("pod", "boat")["metadata"]["resourceVersion"].clone();
        let before = version();
        assert!(cluster.apply(POD).contains("configmap/words unchanged"));
        (version() == before).then_some(())
    });
    cluster.kubectl(&["label", "pod", "boat", "tide=high"]);
    assert_eq!(
        cluster.object("pod", "boat")["metadata"]["labels"]["tide"],
        "high"
    );

    cluster.kubectl(&["delete", "pod", "boat", "--timeout=120s"]);
    let gone = cluster.kubectl_fails(&["get", "pod", "boat"]);
    assert!(gone.contains("pods \"boat\" not found"), "{gone}");
}

/// The memory limit that the kernel enforces on a container.
fn limit_in_cgroup(cluster: &Cluster, pod: &serde_json::Value, container: &str) -> u64 {
    let id = pod["status"]["containerStatuses"]
        .as_array()
        .expect("statuses")
        .iter()
        .find(|status| status["name"] == container)
        .and_then(|status| status["containerID"].as_str())
        .and_then(|id| id.split("://").nth(1))
        .expect("container id");
    let uid = pod["metadata"]["uid"].as_str().expect("uid");
    let path = format!("coracle-{}/kubepods/burstable/pod{uid}/{id}", cluster.id());
    for file in [
        format!("/sys/fs/cgroup/memory/{path}/memory.limit_in_bytes"),
        format!("/sys/fs/cgroup/{path}/memory.max"),
    ] {
        if let Ok(text) = std::fs::read_to_string(file) {
            return text.trim().parse().expect("a number");
        }
    }
    panic!("no cgroup {path}");
}

#[test]
fn discovery_and_explain_work() {
    let cluster = Cluster::start();
    let resources = cluster.kubectl(&["api-resources"]);
    for kind in ["Pod", "Deployment", "EndpointSlice", "ClusterRoleBinding"] {
        assert!(resources.contains(kind), "{kind} is missing:\n{resources}");
    }
    let explained = cluster.kubectl(&["explain", "pod.spec.containers"]);
    assert!(explained.contains("image"), "{explained}");
    assert_eq!(
        cluster.kubectl(&["auth", "can-i", "create", "pods"]).trim(),
        "yes"
    );
}
