//! Pods on their node: probes, restarts, limits, volumes, tokens and termination.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use serde_json::Value;

use crate::cluster::{Background, Cluster, eventually};

fn status<'a>(pod: &'a Value, container: &str) -> &'a Value {
    pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|status| status["name"] == container)
        .unwrap_or(&Value::Null)
}

#[test]
fn containers_restart_with_backoff_and_report_exit_codes() {
    let cluster = Cluster::start();
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: once}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: "coracle-test:1", command: [sh, -c, "echo out; echo err >&2; exit 7"]}
---
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  containers:
  - {name: c, image: "coracle-test:1", command: [sh, -c, "echo round; exit 3"]}
---
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: coracle-test:1
    command: [tail, -c, "90000000", /dev/zero]
    resources: {limits: {memory: 16Mi}}
"#,
    );
    cluster.wait_for_phase("once", "Failed");
    let pod = cluster.object("pod", "once");
    assert_eq!(status(&pod, "c")["state"]["terminated"]["exitCode"], 7);
    assert_eq!(status(&pod, "c")["state"]["terminated"]["reason"], "Error");
    let log = cluster.kubectl(&["logs", "once"]);
    assert!(log.contains("out") && log.contains("err"), "{log}");

    let pod = eventually("a crash loop", || {
        let pod = cluster.object("pod", "again");
        (status(&pod, "c")["state"]["waiting"]["reason"] == "CrashLoopBackOff").then_some(pod)
    });
    assert_eq!(status(&pod, "c")["lastState"]["terminated"]["exitCode"], 3);
    assert!(status(&pod, "c")["restartCount"].as_i64() >= Some(1));
    eventually("the log of the round before", || {
        let asked = ["logs", "again", "--previous"];
        let output = cluster.kubectl_command(&asked).output().expect("kubectl");
        String::from_utf8_lossy(&output.stdout)
            .contains("round")
            .then_some(())
    });

    cluster.wait_for_phase("greedy", "Failed");
    let pod = cluster.object("pod", "greedy");
    assert_eq!(
        status(&pod, "c")["state"]["terminated"]["reason"],
        "OOMKilled",
        "{pod}"
    );
}

#[test]
fn probes_decide_readiness_and_restarts() {
    let cluster = Cluster::start();
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: coracle-test:1
    command: [sh, -c, "httpd -p 8080 -h /www; exec sleep 1000"]
    readinessProbe: {exec: {command: [test, -f, /tmp/ready]}, periodSeconds: 1, timeoutSeconds: 10}
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 3}
    startupProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 60}
    lifecycle: {postStart: {exec: {command: [sh, -c, "sleep 3; touch /tmp/ready"]}}}
  - name: dying
    image: coracle-test:1
    command: [sleep, "1000"]
    livenessProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 1}
"#,
    );
    eventually("the dying container restarts", || {
        let pod = cluster.object("pod", "probed");
        (status(&pod, "dying")["restartCount"].as_i64() >= Some(1)).then_some(())
    });
    let pod = eventually("readiness follows the probe", || {
        let pod = cluster.object("pod", "probed");
        (status(&pod, "c")["ready"] == true).then_some(pod)
    });
    assert_eq!(status(&pod, "c")["restartCount"], 0);
    eventually("the event of the failed probe", || {
        let events = cluster.kubectl(&["get", "events"]);
        events.contains("Liveness probe failed").then_some(())
    });
}

#[test]
fn containers_get_their_volumes_environment_and_identity() {
    let cluster = Cluster::start();
    cluster.apply(
        r#"
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {password: swordfish}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue}
---
apiVersion: v1
kind: Pod
metadata: {name: reader, labels: {role: reader}}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: 1000, fsGroup: 2000}
  volumes:
  - {name: key, secret: {secretName: key, defaultMode: 0440}}
  - {name: memory, emptyDir: {medium: Memory}}
  - name: about
    downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}
  containers:
  - name: c
    image: coracle-test:1
    env:
    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: BOTH, value: "$(COLOUR)-$(POD)"}
    volumeMounts:
    - {name: key, mountPath: /key}
    - {name: memory, mountPath: /memory}
    - {name: about, mountPath: /about}
    command: [sh, -c]
    args:
    - |
      echo "user $(id -u)"; echo "both $BOTH"; echo "password $(cat /key/password)"
      echo "labels $(cat /about/labels)"; echo "host $(hostname)"
      echo "api $KUBERNETES_SERVICE_HOST"
      grep ' /key ' /proc/mounts | cut -d' ' -f3 | sed 's/^/secret on /'
      grep ' /memory ' /proc/mounts | cut -d' ' -f3 | sed 's/^/memory on /'
      touch /memory/file && echo writable
      cat /etc/resolv.conf
      token=$(cat /var/run/secrets/kubernetes.io/serviceaccount/token)
      echo "token parts $(echo "$token" | tr . '\n' | wc -l)"
      head -n 1 /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
"#,
    );
    cluster.wait_for_phase("reader", "Succeeded");
    let log = cluster.kubectl(&["logs", "reader"]);
    for line in [
        "user 1000",
        "both blue-reader",
        "password swordfish",
        "labels role=\"reader\"",
        "host reader",
        "api 10.",
        "secret on tmpfs",
        "memory on tmpfs",
        "writable",
        "search default.svc.cluster.local svc.cluster.local cluster.local",
        "token parts 3",
        "-----BEGIN CERTIFICATE-----",
    ] {
        assert!(log.contains(line), "{line} is missing:\n{log}");
    }
}

#[test]
fn termination_is_graceful_and_bounded() {
    let cluster = Cluster::start();
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: polite}
spec:
  terminationGracePeriodSeconds: 30
  containers:
  - name: c
    image: coracle-test:1
    command: [sh, -c, "trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.1; done"]
    lifecycle: {preStop: {exec: {command: [sh, -c, "echo stopping > /proc/1/fd/1"]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: stubborn}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: c
    image: coracle-test:1
    command: [sh, -c, "trap '' TERM; echo hello; while :; do sleep 0.1; done"]
"#,
    );
    cluster.wait_ready("polite");
    cluster.wait_ready("stubborn");
    let follow = cluster
        .kubectl_command(&["logs", "-f", "polite"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl logs");
    let mut follow = Background(follow);
    let mut log = BufReader::new(follow.0.stdout.take().expect("stdout"));
    // The log is gone with the pod, so that it must be followed before the deletion.
    let mut said = String::new();
    log.read_line(&mut said).expect("a line");
    assert_eq!(said, "hello\n");
    cluster.kubectl(&["delete", "pod", "polite", "stubborn", "--timeout=120s"]);
    log.read_to_string(&mut said)
        .expect("logs end with the container");
    let (stopping, bye) = (said.find("stopping"), said.find("bye"));
    assert!(
        stopping.is_some() && bye > stopping,
        "preStop comes first, then TERM:\n{said}"
    );
}
