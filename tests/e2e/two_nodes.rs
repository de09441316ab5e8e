//! A second node, in a network namespace of its own as if it were another machine, joins with a
//! ticket: pods on either node reach each other, the API and the logs.

use std::process::Command;

use crate::cluster::{Cluster, image_archive, repository, succeed};

/// The second node; stopped and removed on drop, before the cluster is.
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
fn pods_of_two_nodes_reach_each_other() {
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
