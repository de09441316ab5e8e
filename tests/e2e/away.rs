//! Components that are down for a while: the API server, a node, DNS. Pods keep running, and the
//! cluster recovers by itself.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use crate::cluster::{Background, Cluster, coracle, eventually};

/// The node in a process of its own, which can be stopped and started again.
fn agent(cluster: &Cluster) -> Background {
    let agent = coracle()
        .args(["agent", "--data-dir", &cluster.data_dir_text()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("agent");
    Background(agent)
}

fn wait_for_node(cluster: &Cluster, words: &str) {
    eventually(words, || {
        let nodes = cluster.kubectl_command(&["get", "nodes"]).output();
        let nodes = nodes.expect("kubectl").stdout;
        String::from_utf8_lossy(&nodes)
            .contains(words)
            .then_some(())
    });
}

/// The kubelet removes them beside the pod's object.
fn no_directories(cluster: &Cluster) {
    eventually("no directories of pods to be left", || {
        let left = fs::read_dir(cluster.data_dir().join("kubelet/pods")).expect("pods");
        (left.count() == 0).then_some(())
    });
}

/// `API_AWAY_SECONDS` is the minimal downtime of the API server; ten minutes in `make soak`.
#[test]
fn pods_and_services_keep_working_without_the_api_server() {
    let away = std::env::var("API_AWAY_SECONDS").ok();
    let away: u64 = away.map_or(2, |text| text.parse().expect("a number"));
    let cluster = Cluster::prepared();
    let shared = tempfile::tempdir().expect("a directory");
    cluster.up(&["--disable", "node"]);
    let agent = agent(&cluster);
    wait_for_node(&cluster, " Ready ");
    cluster.apply(&format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: restless}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: coracle-test:1
    command: [sh, -c, "echo started >> /shared/starts; until [ -e /shared/go ]; do sleep 0.1; done; rm /shared/go; exit 3"]
    volumeMounts: [{{name: shared, mountPath: /shared}}]
    readinessProbe: {{exec: {{command: ["true"]}}, periodSeconds: 1, timeoutSeconds: 10}}
  volumes: [{{name: shared, hostPath: {{path: {}}}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: steady}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{{name: c, image: "coracle-test:1", command: [sleep, "86397"]}}]
"#,
        shared.path().display()
    ));
    cluster.wait_ready("restless");
    cluster.wait_ready("steady");
    let steady = cluster.object("pod", "steady")["status"]["containerStatuses"][0].clone();
    let id = cluster.id();

    cluster.down();
    fs::write(shared.path().join("go"), "").expect("written");
    eventually("a second start, without the API server", || {
        let starts = fs::read_to_string(shared.path().join("starts")).expect("read");
        (starts.lines().count() == 2).then_some(())
    });
    #[allow(clippy::disallowed_methods)] // How long it is away is what is tested.
    std::thread::sleep(Duration::from_secs(away));
    cluster.up(&["--disable", "node"]);
    assert_eq!(cluster.id(), id);

    wait_for_node(&cluster, " Ready ");
    let restless = eventually("the restart to be told", || {
        let pod = cluster.object("pod", "restless");
        let status = pod["status"]["containerStatuses"][0].clone();
        (status["restartCount"] == 1 && status["ready"] == true).then_some(status)
    });
    assert_eq!(restless["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(
        cluster.object("pod", "steady")["status"]["containerStatuses"][0],
        steady,
        "nothing happened to it"
    );
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: after}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "coracle-test:1", command: [sleep, "86396"]}]
"#,
    );
    cluster.wait_ready("after");
    cluster.kubectl(&["delete", "pods", "--all", "--timeout=120s"]);
    no_directories(&cluster);
    drop(agent);
}

/// The status `Unknown`: the state of pods on a lost node is not known.
#[test]
fn a_lost_node_becomes_not_ready_and_ready_again() {
    let cluster = Cluster::prepared();
    cluster.up(&["--disable", "node"]);
    let node = agent(&cluster);
    wait_for_node(&cluster, " Ready ");
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: lost}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "coracle-test:1", command: [sleep, "86395"]}]
"#,
    );
    cluster.wait_ready("lost");
    drop(node);
    wait_for_node(&cluster, " NotReady ");
    let name = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    let node = cluster.object("node", &name);
    let conditions = node["status"]["conditions"].as_array().expect("conditions");
    for condition in conditions {
        assert_eq!(condition["status"], "Unknown", "{condition}");
        assert_eq!(condition["reason"], "NodeStatusUnknown", "{condition}");
        assert_eq!(
            condition["message"], "Kubelet stopped posting node status.",
            "{condition}"
        );
    }
    eventually("the pod to be not ready", || {
        let pod = cluster.object("pod", "lost");
        let conditions = pod["status"]["conditions"].as_array()?.clone();
        conditions
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "False")
            .then_some(())
    });
    // Whoever terminates the pod of a lost node writes the reason (no controller does so any more), and
    // kubectl shows it.
    cluster.kubectl(&[
        "patch",
        "pod",
        "lost",
        "--subresource=status",
        "-p",
        r#"{"status":{"reason":"NodeLost","message":"Node which was running pod lost is unresponsive"}}"#,
    ]);
    cluster.kubectl(&["delete", "pod", "lost", "--wait=false"]);
    let shown = cluster.kubectl(&["get", "pod", "lost"]);
    assert!(shown.contains(" Unknown "), "{shown}");

    let node = agent(&cluster);
    wait_for_node(&cluster, " Ready ");
    cluster.kubectl(&["wait", "pod/lost", "--for=delete", "--timeout=120s"]);
    no_directories(&cluster);
    drop(node);
}

const NAME: &str = "kubernetes.default.svc.cluster.local";

#[test]
fn dns_names_resolve_again_after_the_server_restarts() {
    let cluster = Cluster::start();
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: asking}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "coracle-test:1", command: [sleep, "86394"]}]
"#,
    );
    cluster.wait_ready("asking");
    let ask = || {
        let asked = ["exec", "asking", "--", "nslookup", NAME];
        let output = cluster.kubectl_command(&asked).output().expect("kubectl");
        output.status.success()
    };
    eventually("a name", || ask().then_some(()));
    let before = cluster.object("pod", "asking")["status"]["containerStatuses"][0].clone();
    cluster.down();
    cluster.up(&["--disable", "dns"]);
    cluster.wait_ready("asking");
    eventually("no name", || (!ask()).then_some(()));
    // Names do not resolve any more, but the pods keep running.
    cluster.kubectl(&[
        "run",
        "other",
        "--image=coracle-test:1",
        "--",
        "sleep",
        "86392",
    ]);
    cluster.wait_ready("other");
    cluster.down();
    cluster.up(&[]);
    eventually("a name again", || ask().then_some(()));
    let after = cluster.object("pod", "asking")["status"]["containerStatuses"][0].clone();
    assert_eq!(after, before);
}
