//! Clusters on one machine: side by side, stopped and started again, split into processes, deleted.

use std::process::Stdio;

use crate::cluster::{Background, Cluster, coracle, eventually, fail};

#[test]
fn two_clusters_live_side_by_side() {
    let (first, second) = (Cluster::start(), Cluster::start());
    assert_ne!(first.id(), second.id());
    for cluster in [&first, &second] {
        cluster.kubectl(&[
            "run",
            "hello",
            "--image=coracle-test:1",
            "--restart=Never",
            "--",
            "echo",
            "hi",
        ]);
        cluster.wait_for_phase("hello", "Succeeded");
    }
    first.kubectl(&["create", "configmap", "only-here"]);
    assert!(!second.kubectl(&["get", "configmaps"]).contains("only-here"));
    let id = first.id();
    assert!(!first.traces(&id).is_empty());
    first.coracle(&["down", "--delete", "--data-dir", &first.data_dir_text()]);
    first.expect_no_traces(&id);
    // The other cluster is not affected.
    second.kubectl(&["delete", "pod", "hello", "--timeout=120s"]);
}

#[test]
fn a_port_in_use_is_reported_and_changes_nothing() {
    let holder = std::net::TcpListener::bind(("0.0.0.0", 0)).expect("a port");
    let port = holder.local_addr().expect("address").port().to_string();
    let cluster = Cluster::prepared();
    let said = fail(coracle().args([
        "up",
        "--data-dir",
        &cluster.data_dir_text(),
        "--port",
        &port,
    ]));
    assert!(
        said.contains(&format!("cannot listen on port {port}")),
        "{said}"
    );
    assert!(cluster.server_pid().is_none());
}

#[test]
fn the_settings_of_a_data_directory_cannot_change() {
    let cluster = Cluster::start();
    cluster.down();
    let said = fail(coracle().args([
        "up",
        "--data-dir",
        &cluster.data_dir_text(),
        "--pod-range",
        "10.7.0.0/16",
    ]));
    assert!(said.contains("--pod-range cannot be changed"), "{said}");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(cluster.kubeconfig())
            .expect("kubeconfig")
            .permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn the_node_can_be_a_process_of_its_own() {
    let cluster = Cluster::prepared();
    cluster.up(&["--disable", "node"]);
    let agent = coracle()
        .args(["agent", "--data-dir", &cluster.data_dir_text()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("agent");
    let agent = Background(agent);
    eventually("the node", || {
        cluster
            .kubectl(&["get", "nodes"])
            .contains(" Ready ")
            .then_some(())
    });
    cluster.kubectl(&[
        "run",
        "hello",
        "--image=coracle-test:1",
        "--restart=Never",
        "--",
        "echo",
        "hi",
    ]);
    cluster.wait_for_phase("hello", "Succeeded");
    assert_eq!(cluster.kubectl(&["logs", "hello"]).trim(), "hi");
    drop(agent);
}

#[test]
fn down_in_the_middle_of_up_leaves_nothing() {
    let cluster = Cluster::prepared();
    let mut up = coracle()
        .args(["up", "--data-dir", &cluster.data_dir_text()])
        .stdout(Stdio::null())
        .spawn()
        .expect("up");
    let id = eventually("settings", || {
        let settings = std::fs::read(cluster.data_dir().join("cluster.json")).ok()?;
        let settings: serde_json::Value = serde_json::from_slice(&settings).ok()?;
        settings["cluster_id"].as_str().map(String::from)
    });
    cluster.coracle(&["down", "--delete", "--data-dir", &cluster.data_dir_text()]);
    assert!(up.wait().expect("up ends").success());
    cluster.expect_no_traces(&id);
}
