//! The commands of the binary: what they reject, what they leave behind, and what they print.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cluster::{Background, Cluster, coracle, eventually, fail, succeed, with_input};
use crate::slots::wait_for_slot;

/// The registry of the ranges and ports of all clusters of this machine.
fn claims() -> String {
    std::fs::read_to_string("/run/coracle/claims.json").unwrap_or_default()
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().display().to_string())
        .collect();
    names.sort();
    names
}

#[test]
fn invalid_flags_are_rejected_before_anything_is_written() {
    wait_for_slot();
    let place = tempfile::tempdir().expect("a directory");
    let data_dir = place.path().join("a/data").display().to_string();
    let holder = std::net::TcpListener::bind(("0.0.0.0", 0)).expect("a port");
    let busy = holder.local_addr().expect("address").port().to_string();
    let not_a_kubeconfig = place.path().join("not-a-kubeconfig");
    std::fs::write(&not_a_kubeconfig, "just words\n").expect("written");
    let not_a_kubeconfig = not_a_kubeconfig.display().to_string();
    for (command, flags, words) in [
        (
            "up",
            vec!["--pod-range", "banana"],
            "expected an IPv4 range",
        ),
        ("up", vec!["--pod-range", "10.1.2.3/16"], "use 10.1.0.0/16"),
        (
            "up",
            vec!["--service-range", "10.0.0.0/8"],
            "between 12 and 28",
        ),
        (
            "up",
            vec![
                "--pod-range",
                "10.96.0.0/16",
                "--service-range",
                "10.96.0.0/12",
            ],
            "overlap",
        ),
        ("up", vec!["--node-name", "Bad_Name"], "RFC 1123 subdomain"),
        ("up", vec!["--node-ip", "127.0.0.1"], "loopback"),
        ("up", vec!["--disable", "everything"], "possible values"),
        ("up", vec!["--port", &busy], "cannot listen on port"),
        ("up", vec!["--log", "=what="], "expected a level"),
        (
            "up",
            vec!["--scheduler-config", "/nonexistent"],
            "no scheduler configuration",
        ),
        (
            "up",
            vec!["--kubeconfig", &not_a_kubeconfig],
            "is not a kubeconfig",
        ),
        ("server", vec!["--port", &busy], "cannot listen on port"),
        (
            "up",
            vec![
                "--store",
                "etcd",
                "--etcd-endpoints",
                "http://127.0.0.1:1",
                "--etcd-cafile",
                "/nonexistent",
            ],
            "/nonexistent",
        ),
    ] {
        let said = fail(
            coracle()
                .args([command, "--data-dir", &data_dir])
                .args(&flags),
        );
        assert!(said.contains(words), "{flags:?}: {said}");
        assert_eq!(entries(place.path()), ["not-a-kubeconfig"], "{flags:?}");
        assert!(!claims().contains(&data_dir), "{flags:?}");
    }
    drop(holder);
    let import = [
        "image",
        "import",
        &not_a_kubeconfig,
        "--data-dir",
        &data_dir,
    ];
    let said = fail(coracle().args(import));
    assert!(said.contains("this is not an image archive"), "{said}");
    assert_eq!(entries(place.path()), ["not-a-kubeconfig"]);
    let ticket = place.path().join("ticket").display().to_string();
    let invite = [
        "invite",
        "Bad_Name",
        "--address",
        "192.0.2.1",
        "--output",
        &ticket,
    ];
    let said = fail(coracle().args(invite).args(["--data-dir", &data_dir]));
    assert!(said.contains("RFC 1123 subdomain"), "{said}");
}

#[test]
fn a_failed_first_start_leaves_only_what_was_there_before() {
    wait_for_slot();
    let place = tempfile::tempdir().expect("a directory");
    let data_dir = place.path().join("data");
    std::fs::create_dir(&data_dir).expect("made");
    // The server fails only when it opens its store.
    std::fs::write(data_dir.join("store"), "not a directory").expect("written");
    let text = data_dir.display().to_string();
    for command in ["up", "server"] {
        fail(coracle().args([command, "--data-dir", &text, "--port", "0"]));
        assert_eq!(entries(&data_dir), ["store"], "{command}");
        assert!(!claims().contains(&text), "{command}");
    }
}

#[test]
fn a_server_in_the_foreground_is_found_by_up_and_stopped_by_down() {
    let cluster = Cluster::prepared();
    let data_dir = cluster.data_dir_text();
    let server = coracle()
        .args(["server", "--data-dir", &data_dir, "--disable", "node"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a server");
    let mut server = Background(server);
    eventually("the server", || {
        let asked = cluster
            .kubectl_command(&["get", "--raw", "/readyz"])
            .output();
        asked
            .is_ok_and(|output| output.status.success())
            .then_some(())
    });
    let said = cluster.up(&["--disable", "node"]);
    let process = server.0.id();
    let words = format!("is already run by a server in the foreground (process {process})");
    assert!(said.contains(&words), "{said}");
    let said = fail(coracle().args(["server", "--data-dir", &data_dir, "--disable", "node"]));
    assert!(
        said.contains("is already run by a server in the foreground"),
        "{said}"
    );
    cluster.down();
    assert!(server.0.wait().expect("the server ends").success());
}

const OTHERS: &str = "\
apiVersion: v1
kind: Config
# Not ours.
clusters:
- name: work
  cluster: {server: \"https://work.example\"}
contexts:
- name: work
  context: {cluster: work, user: me}
users:
- name: me
  user: {token: abc}
current-context: work
";

#[test]
fn a_users_kubeconfig_gets_the_context_and_loses_it_with_the_cluster_and_a_stop_logs_no_error() {
    let cluster = Cluster::prepared();
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("config");
    std::fs::write(&file, OTHERS).expect("written");
    let text = file.display().to_string();
    cluster.up(&["--kubeconfig", &text]);
    let kubectl = |arguments: &[&str]| {
        succeed(
            Command::new("kubectl")
                .env("KUBECONFIG", &text)
                .args(arguments),
        )
    };
    let contexts = kubectl(&["config", "get-contexts", "-o", "name"]);
    let ours = format!("coracle-{}", cluster.id());
    assert_eq!(contexts, format!("{ours}\nwork\n"));
    assert_eq!(kubectl(&["config", "current-context"]).trim(), ours);
    kubectl(&["get", "namespaces"]);
    cluster.down();

    let log = std::fs::read_to_string(cluster.data_dir().join("server.log")).expect("a log");
    let wrong: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("ERROR") || line.contains("WARN"))
        .collect();
    assert_eq!(wrong, Vec::<&str>::new());
    let kubeconfig = cluster.kubeconfig();
    let said = fail(coracle().args(["get", "nodes", "--kubeconfig", &kubeconfig]));
    assert!(
        said.contains("was refused - did you specify the right host or port?"),
        "{said}"
    );

    cluster.coracle(&["down", "--delete", "--data-dir", &cluster.data_dir_text()]);
    let left = std::fs::read_to_string(&file).expect("the file");
    let expected = OTHERS.replace("current-context: work", "current-context: \"\"");
    assert_eq!(left, expected);
}

#[test]
fn the_client_works_in_pipes_and_with_several_kubeconfigs() {
    let cluster = Cluster::prepared();
    cluster.up(&["--disable", "node"]);
    cluster.kubectl(&["create", "configmap", "one", "--from-literal=a=b"]);
    // No controller changes these kinds meanwhile: the printed objects contain their resource version.
    cluster.kubectl(&["create", "service", "clusterip", "web", "--tcp=80"]);

    let printed = cluster.client(&["get", "configmaps,services", "-o", "yaml"]);
    let mut apply = coracle();
    apply.args(["apply", "-f", "-", "--kubeconfig", &cluster.kubeconfig()]);
    let said = with_input(&mut apply, &printed, true);
    assert!(said.contains("configmap/one configured"), "{said}");
    assert!(said.contains("service/web configured"), "{said}");

    let place = tempfile::tempdir().expect("a directory");
    let other = place.path().join("other");
    std::fs::write(&other, OTHERS.replace("current-context: work\n", "")).expect("written");
    let list = format!("{}::/nonexistent:{}", other.display(), cluster.kubeconfig());
    let said = succeed(
        coracle()
            .env("KUBECONFIG", list)
            .args(["get", "configmaps"]),
    );
    assert!(said.contains("one"), "{said}");

    let said = cluster.client(&[
        "wait",
        "configmap/one",
        "--for=jsonpath={.data.a}=b",
        "--timeout=5s",
    ]);
    assert!(said.contains("condition met"), "{said}");
    let waiting = ["wait", "configmap/one", "--for=delete", "--timeout", "10ms"];
    let said = fail(
        coracle()
            .args(waiting)
            .args(["--kubeconfig", &cluster.kubeconfig()]),
    );
    assert!(
        said.contains("timed out waiting for the condition"),
        "{said}"
    );

    // The reader of the pipe has gone.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = coracle()
        .args(["get", "configmaps", "-A", "-o", "yaml"])
        .args(["--kubeconfig", &cluster.kubeconfig()])
        .stdout(writer)
        .output()
        .expect("the client");
    let sigpipe = 13;
    assert_eq!(output.status.signal(), Some(sigpipe), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
