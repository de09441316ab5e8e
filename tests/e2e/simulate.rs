//! `coracle simulate`: many simulated nodes in a temporary cluster or in another one.

use std::process::Command;

use crate::cluster::{Cluster, coracle, succeed};
use crate::slots::wait_for_slot;

fn last_line(output: &str) -> &str {
    output.lines().last().unwrap_or_default()
}

#[test]
fn a_simulation_in_a_temporary_cluster_binds_all_pods_and_deletes_the_cluster() {
    wait_for_slot();
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
        let running = format!("All {pods} pods are running.");
        assert!(output.contains(&running), "{output}");
        let left = std::fs::read_dir(directory.path()).expect("the directory");
        assert_eq!(left.count(), 0, "nothing is left behind");
    }
}

#[test]
fn a_simulation_in_another_cluster_leaves_nothing_behind() {
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
    assert!(output.contains("All 10 pods are running."), "{output}");
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "name"]);
    assert_eq!(nodes.lines().count(), 1, "{nodes}");
    let pods = cluster.kubectl(&["get", "pods", "-n", "simulation", "-o", "name"]);
    assert_eq!(pods.trim(), "");
}

#[test]
fn impossible_numbers_of_nodes_and_pods_are_rejected() {
    let refused = |arguments: &[&str]| {
        let mut command: Command = coracle();
        let output = command.arg("simulate").args(arguments).output();
        let output = output.expect("coracle");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = refused(&["--nodes", "0"]);
    assert!(text.contains("must be between 1 and"), "{text}");
    let text = refused(&["--nodes", "2", "--pods", "3", "--workload", "preemption"]);
    assert!(
        text.contains("2 nodes have room for 2 pods of this workload, not for 3"),
        "{text}"
    );
}
