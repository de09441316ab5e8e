//! The timeline of a pod: all eleven hops, with times, also after a restart.

use serde_json::Value;

use crate::cluster::{Cluster, coracle, eventually, with_input};

#[test]
fn a_timeline_has_eleven_hops_and_survives_a_restart() {
    let cluster = Cluster::start();
    let yaml = r#"
apiVersion: v1
kind: Pod
metadata: {name: traced}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "coracle-test:1", command: [sleep, "1000"]}
"#;
    let kubeconfig = cluster.kubeconfig();
    let said = with_input(
        coracle().args(["apply", "-f", "-", "--kubeconfig", &kubeconfig]),
        yaml,
        true,
    );
    assert!(said.contains("pod/traced created"), "{said}");
    cluster.client(&[
        "wait",
        "pod/traced",
        "--for=condition=Ready",
        "--timeout",
        "120",
    ]);
    let timeline = eventually("all hops", || {
        let timeline = trace(&cluster, "traced");
        (1..=11)
            .all(|hop| has_hop(&timeline, hop))
            .then_some(timeline)
    });
    assert_eq!(timeline["pod"], "default/traced");
    let first = &timeline["hops"][0];
    assert_eq!(
        first["component"], "client",
        "hop 1 is measured by our client: {first}"
    );
    for span in timeline["hops"].as_array().expect("hops") {
        for field in [
            "hop",
            "name",
            "component",
            "start",
            "queue_us",
            "work_us",
            "bytes",
        ] {
            assert!(!span[field].is_null(), "{field} is missing: {span}");
        }
    }
    let text = cluster.client(&["trace", "pod/traced"]);
    assert!(
        text.contains("RunPodSandbox") && text.lines().count() > 11,
        "{text}"
    );

    // Another client's hop 1 is marked external.
    cluster.kubectl(&[
        "run",
        "foreign",
        "--image=coracle-test:1",
        "--",
        "sleep",
        "1000",
    ]);
    cluster.wait_ready("foreign");
    eventually("the first hop of another client", || {
        let hops = trace(&cluster, "foreign")["hops"].clone();
        (hops[0]["component"] == "external").then_some(())
    });

    cluster.down();
    cluster.up(&[]);
    eventually("the last hop after a restart", || {
        has_hop(&trace(&cluster, "traced"), 11).then_some(())
    });
}

#[test]
fn the_coracle_client_commands_work() {
    let cluster = Cluster::start();
    cluster.kubectl(&[
        "run",
        "hello",
        "--image=coracle-test:1",
        "--restart=Never",
        "--",
        "echo",
        "hi",
    ]);
    cluster.client(&[
        "wait",
        "pod/hello",
        "--for=jsonpath={.status.phase}=Succeeded",
        "--timeout",
        "120",
    ]);
    let table = cluster.client(&["get", "pods", "-A"]);
    assert!(table.starts_with("NAMESPACE   NAME"), "{table}");
    assert!(table.contains("Completed"), "{table}");
    assert!(
        cluster
            .client(&["describe", "pod/hello"])
            .contains("Events:")
    );
    assert_eq!(cluster.client(&["logs", "hello"]).trim(), "hi");
    assert!(
        cluster
            .client(&["get", "pod", "hello", "-o", "yaml"])
            .contains("phase: Succeeded")
    );
    assert!(
        cluster
            .client(&["delete", "pod/hello"])
            .contains("pod \"hello\" deleted")
    );
    let list = cluster.coracle(&["image", "ls", "--data-dir", &cluster.data_dir_text()]);
    assert!(list.contains("coracle-test:1"), "{list}");
}

#[test]
fn the_timeline_of_a_pod_that_does_not_start_names_its_hop() {
    let cluster = Cluster::start();
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: typo}
spec:
  containers:
  - {name: c, image: "coracle-test:1", command: [no-such-program]}
---
apiVersion: v1
kind: Pod
metadata: {name: crash}
spec:
  containers:
  - {name: c, image: "coracle-test:1", command: [sh, -c, "exit 3"]}
---
apiVersion: v1
kind: Pod
metadata: {name: lacking}
spec:
  containers:
  - {name: c, image: "coracle-test:1", volumeMounts: [{name: v, mountPath: /v}]}
  volumes: [{name: v, secret: {secretName: nowhere}}]
"#,
    );
    for (pod, wanted) in [
        ("typo", "StartContainer c, attempt 2: RunContainerError: "),
        (
            "crash",
            "Run c, attempt 2: exit code 3 (Error); tried again after ",
        ),
        (
            "lacking",
            "secret \"nowhere\" not found; tried again after ",
        ),
    ] {
        // Both must be in one response: a container that was just restarted has no failed hop until it exits.
        let text = eventually(wanted, || {
            let text = cluster.client(&["trace", pod]);
            let is_at_hop = text.lines().any(|line| line.starts_with("is at hop 10 "));
            (is_at_hop && text.contains(wanted)).then_some(text)
        });
        // The container that exits by itself did run.
        assert!(pod == "crash" || !text.contains("running"), "{text}");
    }
}

fn trace(cluster: &Cluster, pod: &str) -> Value {
    let text = cluster.client(&["trace", &format!("pod/{pod}"), "-o", "json"]);
    serde_json::from_str(&text).expect("trace prints JSON")
}

fn has_hop(timeline: &Value, hop: i64) -> bool {
    let spans = timeline["hops"].as_array();
    spans.into_iter().flatten().any(|span| span["hop"] == hop)
}
