//! A second node, in a network namespace like that of another machine, joins with a ticket: pods on
//! both nodes reach each other and the API server, and their logs can be read.

use std::process::Command;

use crate::cluster::{Cluster, coracle, eventually, fail, image_archive, repository, succeed};

/// The second node; stopped and deleted on drop, before the cluster.
struct SecondNode<'a> {
    cluster: &'a Cluster,
}

impl<'a> SecondNode<'a> {
    fn join(cluster: &'a Cluster) -> SecondNode<'a> {
        let node = SecondNode { cluster };
        succeed(node.script("up").arg(image_archive()));
        node
    }

    fn script(&self, action: &str) -> Command {
        let mut command = Command::new(repository().join("scripts/second-node"));
        command.args([
            action,
            env!("CARGO_BIN_EXE_coracle"),
            &self.cluster.data_dir_text(),
        ]);
        command
    }
}

impl Drop for SecondNode<'_> {
    fn drop(&mut self) {
        let stopped = self.script("stop").status();
        if !std::thread::panicking() {
            assert!(stopped.expect("the script runs").success());
        }
    }
}

#[test]
fn pods_on_two_nodes_reach_each_other() {
    let cluster = Cluster::prepared();
    let second = SecondNode::join(&cluster);
    cluster.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "nodes",
        "--all",
        "--timeout=120s",
    ]);
    let first = cluster.kubectl(&[
        "get",
        "nodes",
        "-o",
        "jsonpath={.items[?(@.metadata.name!=\"second\")].metadata.name}",
    ]);
    for (server, client) in [("second", first.as_str()), (first.as_str(), "second")] {
        let serving = format!("serving-{}", client == "second");
        let asking = format!("asking-{}", client == "second");
        cluster.apply(&format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {serving}, labels: {{app: {serving}}}}}
spec:
  nodeName: {server}
  containers:
  - name: c
    image: coracle-test:1
    command: [sh, -c, "mkdir -p /tmp/www && echo hello from {serving} > /tmp/www/index.html && exec httpd -f -p 80 -h /tmp/www"]
    readinessProbe: {{tcpSocket: {{port: 80}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: {serving}}}
spec:
  selector: {{app: {serving}}}
  ports: [{{port: 80}}]
"#
        ));
        cluster.wait_ready(&serving);
        cluster.apply(&format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {asking}}}
spec:
  nodeName: {client}
  restartPolicy: Never
  containers:
  - name: c
    image: coracle-test:1
    command: [sh, -c, "until timeout 10 wget -q -O - http://{serving}; do sleep 0.5; done"]
"#
        ));
        cluster.wait_for_phase(&asking, "Succeeded");
        let heard = cluster.kubectl(&["logs", &asking]);
        assert_eq!(heard.trim(), format!("hello from {serving}"));
    }
    drop(second);
}

/// The encoded client certificate in a kubeconfig that Coracle wrote.
fn certificate_in(kubeconfig: &str) -> String {
    let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
    let line = text
        .lines()
        .find(|line| line.contains("client-certificate-data"));
    line.expect("a certificate").trim().to_string()
}

#[test]
fn a_joined_node_renews_its_certificates_at_once_and_a_revoked_node_is_rejected() {
    let cluster = Cluster::prepared();
    let second = SecondNode::join(&cluster);
    let directory = format!("{}-2", cluster.data_dir_text());
    let ticket = std::fs::read_to_string(format!("{directory}/ticket")).expect("the ticket");
    let ticket: serde_json::Value = serde_json::from_str(&ticket).expect("a ticket");
    let of_ticket = |part: &str| {
        use base64::Engine;
        let pem = ticket[part]["certificate"].as_str().expect("a certificate");
        base64::engine::general_purpose::STANDARD.encode(pem)
    };
    for (part, name) in [
        ("node", "node"),
        ("proxy", "proxy"),
        ("local_path", "local-path"),
    ] {
        let old = of_ticket(part);
        let kubeconfig = format!("{directory}/pki/{name}.kubeconfig");
        eventually(&format!("a new certificate for {name}"), || {
            (!certificate_in(&kubeconfig).contains(&old)).then_some(())
        });
    }
    let serving = ticket["kubelet_server"]["certificate"]
        .as_str()
        .expect("a certificate");
    eventually("a new serving certificate", || {
        let text = std::fs::read_to_string(format!("{directory}/pki/kubelet-server.pem")).ok()?;
        (!text.contains(serving)).then_some(())
    });
    cluster.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "node/second",
        "--timeout=120s",
    ]);
    let node = format!("{directory}/pki/node.kubeconfig");
    let ask = |name: &str| {
        let mut command = coracle();
        command
            .args(["get", "node", "second", "--kubeconfig"])
            .arg(name);
        command
    };
    succeed(&mut ask(&node));

    cluster.coracle(&[
        "invite",
        "second",
        "--revoke",
        "--data-dir",
        &cluster.data_dir_text(),
    ]);
    for name in ["node", "proxy", "local-path"] {
        let kubeconfig = format!("{directory}/pki/{name}.kubeconfig");
        let said = fail(&mut ask(&kubeconfig));
        assert!(said.contains("Unauthorized"), "{name}: {said}");
    }
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "name"]);
    assert!(!nodes.contains("second"), "{nodes}");
    drop(second);
}
