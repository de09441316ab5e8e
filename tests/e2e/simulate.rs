//! `coracle simulate`: many nodes that only pretend, on a cluster of its own or on another.

use std::process::Command;

use crate::cluster::{Cluster, coracle, succeed};

fn last_line(output: &str) -> &str {
    output.lines().last().unwrap_or_default()
}

#[test]
fn pods_are_bound_to_simulated_nodes_of_a_cluster_that_is_gone_afterwards() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let place = directory.path().display().to_string();
    for (workload, pods) in [
        ("plain", "100"),
        ("anti-affinity", "20"),
        ("topology-spread", "30"),
        ("preemption", "5"),
    ] {
        let output = succeed(coracle().args([
            "simulate",
            "--nodes",
            "20",
            "--pods",
            pods,
            "--workload",
            workload,
            "--directory",
            &place,
        ]));
        let last = last_line(&output);
        let expected = format!("{pods} pods on 20 nodes bound in ");
        assert!(last.starts_with(&expected), "{workload}: {output}");
        assert!(last.ends_with(" pods/s"), "{workload}: {output}");
        assert!(output.contains(&format!("{pods} pods run")), "{output}");
        let left = std::fs::read_dir(directory.path()).expect("the directory");
        assert_eq!(left.count(), 0, "nothing is left behind");
    }
}

#[test]
fn another_cluster_is_left_as_it_was() {
    let cluster = Cluster::start();
    let kubeconfig = cluster.kubeconfig();
    let output = succeed(coracle().args([
        "simulate",
        "--nodes",
        "3",
        "--pods",
        "10",
        "--report",
        "at-once",
        "--kubeconfig",
        &kubeconfig,
    ]));
    assert!(output.contains("10 pods run"), "{output}");
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "name"]);
    assert_eq!(nodes.lines().count(), 1, "{nodes}");
    let pods = cluster.kubectl(&["get", "pods", "-n", "simulation", "-o", "name"]);
    assert_eq!(pods.trim(), "");
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |arguments: &[&str]| {
        let mut command: Command = coracle();
        let output = command.arg("simulate").args(arguments).output();
        let output = output.expect("coracle");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = refused(&["--nodes", "0"]);
    assert!(text.contains("must lie between 1 and"), "{text}");
    let text = refused(&["--nodes", "2", "--pods", "3", "--workload", "preemption"]);
    assert!(
        text.contains("2 nodes have room for 2 such pods, not for 3"),
        "{text}"
    );
}
