//! `kill -9` of the server: no acknowledged write is lost, pods keep their processes, and their status
//! becomes correct again.

use std::collections::BTreeMap;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::{Cluster, eventually, processes};

#[test]
fn a_killed_server_restarts_with_all_objects_and_pods() {
    let cluster = Cluster::start();
    cluster.apply(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: steady}
spec:
  replicas: 3
  selector: {matchLabels: {app: steady}}
  template:
    metadata: {labels: {app: steady}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: c, image: "coracle-test:1", command: [sleep, "86399"]}
"#,
    );
    cluster.kubectl(&["rollout", "status", "deployment/steady", "--timeout=120s"]);
    let before = eventually("three processes", || {
        Some(sleepers(&cluster)).filter(|found| found.len() == 3)
    });

    let mut acknowledged = Vec::new();
    for round in 0..4 {
        // Writes until the server is killed; only acknowledged writes count.
        let server = eventually("a server", || cluster.server_pid());
        for write in 0..4 + round {
            let name = format!("w{round}-{write}");
            let made = cluster
                .kubectl_command(&["create", "configmap", &name, "--from-literal=k=v"])
                .output()
                .expect("kubectl");
            if made.status.success() {
                acknowledged.push(name);
            }
            if write == 2 {
                kill(Pid::from_raw(server), Signal::SIGKILL).expect("kill");
            }
        }
        eventually("the server to answer again", || {
            let get = cluster
                .kubectl_command(&["get", "--raw", "/readyz"])
                .output();
            get.expect("kubectl").status.success().then_some(())
        });
    }
    let present = cluster.kubectl(&["get", "configmaps", "-o", "name"]);
    for name in &acknowledged {
        assert!(
            present.contains(&format!("configmap/{name}\n")),
            "{name} is lost:\n{present}"
        );
    }
    assert!(acknowledged.len() >= 8, "{acknowledged:?}");

    assert_eq!(
        sleepers(&cluster),
        before,
        "the pods' processes keep their ids"
    );
    cluster.kubectl(&["rollout", "status", "deployment/steady", "--timeout=120s"]);
    let pods = cluster.kubectl(&["get", "pods", "-l", "app=steady"]);
    assert_eq!(pods.matches("1/1").count(), 3, "{pods}");
    assert_eq!(pods.matches(" 0 ").count(), 3, "no restarts:\n{pods}");

    // The node still works: a pod can be deleted and is replaced.
    let victim = cluster.kubectl(&["get", "pods", "-l", "app=steady", "-o", "name"]);
    let victim = victim.lines().next().expect("a pod").to_string();
    cluster.kubectl(&["delete", &victim, "--timeout=120s"]);
    cluster.kubectl(&["rollout", "status", "deployment/steady", "--timeout=120s"]);
}

#[test]
fn pods_outlive_down_and_up() {
    let cluster = Cluster::start();
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: lasting}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "coracle-test:1", command: [sleep, "86398"]}
"#,
    );
    cluster.wait_ready("lasting");
    let before = eventually("a process", || {
        Some(sleepers(&cluster)).filter(|found| found.len() == 1)
    });
    cluster.down();
    assert_eq!(sleepers(&cluster), before);
    cluster.up(&[]);
    cluster.wait_ready("lasting");
    assert_eq!(sleepers(&cluster), before);
    assert_eq!(
        cluster.object("pod", "lasting")["status"]["containerStatuses"][0]["restartCount"],
        0
    );
    // `up` for a running cluster succeeds and changes nothing.
    let said = cluster.up(&[]);
    assert!(said.contains("run by a server in the background"), "{said}");
}

/// `NODE_KILLS` is the number of kills. Each comes a little later in the start of a pod, and then in
/// its termination.
#[test]
fn a_server_killed_while_pods_start_and_stop_leaks_nothing() {
    let kills = std::env::var("NODE_KILLS").ok();
    let kills: u64 = kills.map_or(6, |text| text.parse().expect("a number"));
    let cluster = Cluster::start();
    let id = cluster.id();
    for round in 0..kills {
        let name = format!("round-{round}");
        let moment = std::time::Duration::from_millis(round / 2 * 23 % 400);
        let kill_after = |moment| {
            let server = eventually("a server", || cluster.server_pid());
            #[allow(clippy::disallowed_methods)] // The moment is what is varied.
            std::thread::sleep(moment);
            kill(Pid::from_raw(server), Signal::SIGKILL).expect("kill");
        };
        cluster.apply(&format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  initContainers: [{{name: i, image: "coracle-test:1", command: ["true"]}}]
  containers: [{{name: c, image: "coracle-test:1", command: [sleep, "86393"]}}]
"#
        ));
        if round % 2 == 0 {
            kill_after(moment);
        }
        eventually("the server and the pod", || {
            let wait = [
                "wait",
                "pod",
                &name,
                "--for=condition=Ready",
                "--timeout=60s",
            ];
            let output = cluster.kubectl_command(&wait).output().expect("kubectl");
            output.status.success().then_some(())
        });
        cluster.kubectl(&["delete", "pod", &name, "--wait=false"]);
        if round % 2 == 1 {
            kill_after(moment);
        }
        eventually("the pod to be gone", || {
            let get = ["get", "pod", &name, "--ignore-not-found", "-o", "name"];
            let output = cluster.kubectl_command(&get).output().expect("kubectl");
            (output.status.success() && output.stdout.is_empty()).then_some(())
        });
    }
    let data_dir = cluster.data_dir_text();
    eventually("nothing to be left of the pods", || {
        let shims = processes().into_iter().filter(|process| {
            let arguments = &process.arguments;
            arguments.get(1).map(String::as_str) == Some("shim")
                && arguments
                    .iter()
                    .any(|argument| argument.contains(&data_dir))
        });
        let directories = std::fs::read_dir(cluster.data_dir().join("kubelet/pods"));
        let links = std::process::Command::new("ip")
            .args(["-o", "link"])
            .output();
        let links = String::from_utf8_lossy(&links.expect("ip").stdout).into_owned();
        let links = links
            .lines()
            .filter(|line| line.contains(&format!("c{id}-")));
        let left = shims.count() + directories.map_or(0, Iterator::count);
        // The node's own links stay; those of pods lead into other network namespaces.
        let pod_links = links.filter(|line| line.contains("link-netns")).count();
        (left + pod_links == 0).then_some(())
    });
}

/// The `sleep 8639x` processes below this cluster's shims: process id by command line.
fn sleepers(cluster: &Cluster) -> BTreeMap<i32, String> {
    let data_dir = cluster.data_dir_text();
    let all = processes();
    let parents: BTreeMap<String, &crate::cluster::Process> = all
        .iter()
        .map(|process| (process.pid.to_string(), process))
        .collect();
    all.iter()
        .filter(|process| {
            process.arguments.first().map(String::as_str) == Some("sleep")
                && process
                    .arguments
                    .get(1)
                    .is_some_and(|time| time.starts_with("8639"))
        })
        .filter(|process| {
            parents.get(&process.parent).is_some_and(|shim| {
                shim.arguments
                    .iter()
                    .any(|argument| argument.contains(&data_dir))
            })
        })
        .map(|process| (process.pid, process.arguments.join(" ")))
        .collect()
}
