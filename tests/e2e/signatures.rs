//! The statuses of pods that fail or complete, with upstream's reasons and messages. `registry.rs` has
//! those of images, `pods.rs` those of crash loops and memory.

use serde_json::Value;

use crate::cluster::{Cluster, eventually};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: pending}
spec:
  nodeSelector: {tide: never}
  containers: [{name: c, image: "coracle-test:1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: creating}
spec:
  containers: [{name: c, image: "coracle-test:1", volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, configMap: {name: absent}}]
---
apiVersion: v1
kind: Pod
metadata: {name: misconfigured}
spec:
  containers: [{name: c, image: "coracle-test:1", envFrom: [{configMapRef: {name: absent}}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: not-found}
spec:
  restartPolicy: Never
  containers: [{name: c, image: "coracle-test:1", command: [/no/such/program]}]
---
apiVersion: v1
kind: Pod
metadata: {name: completed}
spec:
  restartPolicy: Never
  containers: [{name: c, image: "coracle-test:1", command: ["true"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: unready}
spec:
  terminationGracePeriodSeconds: 60
  containers:
  - name: c
    image: coracle-test:1
    command: [sh, -c, "trap 'while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 0' TERM; while :; do sleep 0.1; done"]
    readinessProbe: {periodSeconds: 1, timeoutSeconds: 10, exec: {command: ["false"]}}
---
apiVersion: v1
kind: Pod
metadata: {name: late}
spec:
  activeDeadlineSeconds: 1
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "coracle-test:1", command: [sleep, "3600"]}]
"#;

fn state(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]
}

fn condition<'a>(pod: &'a Value, type_: &str) -> &'a Value {
    let conditions = pod["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten();
    found
        .into_iter()
        .find(|condition| condition["type"] == type_)
        .unwrap_or(&Value::Null)
}

/// Waits until the pod has the expected status.
fn pod(cluster: &Cluster, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(name, || {
        let pod = cluster.object("pod", name);
        wanted(&pod).then_some(pod)
    })
}

#[test]
fn each_failure_of_a_pod_has_its_reason_and_message() {
    let cluster = Cluster::start();
    cluster.apply(PODS);

    let pending = pod(&cluster, "pending", |pod| {
        condition(pod, "PodScheduled")["reason"] == "Unschedulable"
    });
    let message = condition(&pending, "PodScheduled")["message"].as_str();
    let expected = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
    assert!(
        message.is_some_and(|message| message.starts_with(expected)),
        "{pending}"
    );
    assert_eq!(pending["status"]["phase"], "Pending");

    let creating = pod(&cluster, "creating", |pod| {
        state(pod)["waiting"]["reason"] == "ContainerCreating"
    });
    let started = condition(&creating, "PodScheduled");
    assert_eq!(started["status"], "True");
    eventually("FailedMount", || {
        let events = cluster.kubectl(&["get", "events"]);
        let words = "MountVolume.SetUp failed for volume \"v\" : configmap \"absent\" not found";
        events.contains(words).then_some(())
    });

    let misconfigured = pod(&cluster, "misconfigured", |pod| {
        state(pod)["waiting"]["reason"] == "CreateContainerConfigError"
    });
    assert_eq!(
        state(&misconfigured)["waiting"]["message"],
        "configmap \"absent\" not found"
    );

    let not_found = pod(&cluster, "not-found", |pod| {
        pod["status"]["phase"] == "Failed"
    });
    let ended = &state(&not_found)["terminated"];
    assert_eq!(
        (&ended["reason"], &ended["exitCode"]),
        (&Value::from("StartError"), &Value::from(128)),
        "{not_found}"
    );

    let completed = pod(&cluster, "completed", |pod| {
        pod["status"]["phase"] == "Succeeded"
    });
    assert_eq!(state(&completed)["terminated"]["reason"], "Completed");
    let ready = condition(&completed, "Ready");
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&Value::from("False"), &Value::from("PodCompleted"))
    );

    let unready = pod(&cluster, "unready", |pod| {
        pod["status"]["phase"] == "Running"
    });
    let ready = condition(&unready, "Ready");
    assert_eq!(ready["reason"], "ContainersNotReady");
    assert_eq!(ready["message"], "containers with unready status: [c]");
    cluster.kubectl(&["delete", "pod", "unready", "--wait=false"]);
    eventually("Terminating", || {
        let shown = cluster.kubectl(&["get", "pod", "unready"]);
        shown.contains("Terminating").then_some(())
    });
    cluster.kubectl(&["exec", "unready", "--", "touch", "/tmp/go"]);
    cluster.kubectl(&["wait", "--for=delete", "pod/unready", "--timeout=120s"]);

    let late = pod(&cluster, "late", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(late["status"]["reason"], "DeadlineExceeded");
    assert_eq!(
        late["status"]["message"],
        "Pod was active on the node longer than the specified deadline"
    );
}

#[test]
fn a_static_pod_runs_and_is_mirrored() {
    let cluster = Cluster::prepared();
    let directory = tempfile::tempdir().expect("a directory");
    let manifests = directory.path();
    std::fs::write(
        cluster.data_dir().join("kubelet.yaml"),
        format!("staticPodPath: {}\n", manifests.display()),
    )
    .expect("written");
    cluster.up(&[]);
    let node = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    let name = format!("beacon-{}", node.trim());
    std::fs::write(
        manifests.join("beacon.yaml"),
        "apiVersion: v1\nkind: Pod\nmetadata: {name: beacon}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  - {name: c, image: 'coracle-test:1', command: [sh, -c, 'echo lit; sleep 3600']}\n",
    )
    .expect("written");
    let ready = |pod: &Value| condition(pod, "Ready")["status"] == "True";
    let found = || {
        let mut command = cluster.kubectl_command(&["get", "pod", &name, "-o", "json"]);
        let output = command.output().expect("kubectl");
        serde_json::from_slice::<Value>(&output.stdout).ok()
    };
    let mirror = eventually("the mirror", || found().filter(ready));
    eventually("its log", || {
        (cluster.kubectl(&["logs", &name]).trim() == "lit").then_some(())
    });
    cluster.kubectl(&["delete", "pod", &name]);
    let again = eventually("the mirror again", || {
        let other = |pod: &Value| pod["metadata"]["uid"] != mirror["metadata"]["uid"];
        found().filter(|pod| other(pod) && ready(pod))
    });
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!(container(&mirror), container(&again), "the same container");
    std::fs::remove_file(manifests.join("beacon.yaml")).expect("removed");
    eventually("no mirror", || found().is_none().then_some(()));
    // The file belongs to the test, and `down --delete` would leave it.
    std::fs::remove_file(cluster.data_dir().join("kubelet.yaml")).expect("removed");
}
