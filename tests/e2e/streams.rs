//! Exec, attach, port-forward, copy and the proxies with a stock kubectl, in both of its protocols.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

use crate::cluster::{Cluster, eventually};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: boat, labels: {app: boat}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: server
    image: coracle-test:1
    command: [sh, -c, "mkdir /www; echo ahoy > /www/index.html; exec httpd -f -p 8080 -h /www"]
    ports: [{containerPort: 8080}]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  - name: reader
    image: coracle-test:1
    command: [sh, -c, "while read line; do echo got $line; done; echo the end"]
    stdin: true
    stdinOnce: true
---
apiVersion: v1
kind: Service
metadata: {name: boat}
spec:
  selector: {app: boat}
  ports: [{name: web, port: 80, targetPort: 8080}]
"#;

/// The variables that make kubectl use SPDY instead of WebSocket.
const SPDY: [(&str, &str); 2] = [
    ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"),
    ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false"),
];

#[test]
fn kubectl_exec_attach_port_forward_and_proxy_work() {
    let cluster = Cluster::start();
    cluster.apply(PODS);
    cluster.wait_ready("boat");
    cluster.wait_ready("reader");
    for spdy in [false, true] {
        exec(&cluster, spdy);
        terminal(&cluster, spdy);
        port_forward(&cluster, spdy);
    }
    attach(&cluster);
    copy(&cluster);
    proxies(&cluster);
}

fn kubectl(cluster: &Cluster, spdy: bool, arguments: &[&str]) -> Command {
    let mut command = cluster.kubectl_command(arguments);
    if spdy {
        command.envs(SPDY);
    }
    command
}

fn run(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl runs");
    let mut stdin = child.stdin.take().expect("stdin");
    let input = input.to_vec();
    let writing = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("kubectl ends");
    writing.join().expect("written");
    output
}

fn exec(cluster: &Cluster, spdy: bool) {
    let script = "echo out; echo err >&2; exit 3";
    let asked = ["exec", "boat", "--", "sh", "-c", script];
    let output = run(&mut kubectl(cluster, spdy, &asked), b"");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(output.stdout, b"out\n", "{output:?}");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.starts_with("err\n"), "{err}");

    let input: Vec<u8> = (0..500_000_u32).map(|number| number as u8).collect();
    let mut command = kubectl(cluster, spdy, &["exec", "-i", "boat", "--", "cat"]);
    let output = run(&mut command, &input);
    assert!(output.status.success(), "{:?}", output.stderr);
    assert!(output.stdout == input, "{} bytes", output.stdout.len());

    let asked = ["exec", "boat", "--", "no-such-command"];
    let output = run(&mut kubectl(cluster, spdy, &asked), b"");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && err.contains("no-such-command"),
        "{err}"
    );
}

/// `script` gives kubectl a terminal.
fn terminal(cluster: &Cluster, spdy: bool) {
    // The terminal's size arrives concurrently with the start.
    let inside = "for i in $(seq 2000); do stty size 2>&1 | grep 99 && break; sleep 0.05; done; \
                  tty; read line; echo got $line; exit 5";
    let kubectl = kubectl(cluster, spdy, &["exec", "-it", "boat", "--", "sh", "-c"]);
    let mut words: Vec<String> = vec!["kubectl".into()];
    words.extend(
        kubectl
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    let line = format!("stty rows 33 cols 99; {} '{inside}'", words.join(" "));
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line, "/dev/null"]);
    for (name, value) in kubectl.get_envs() {
        if let Some(value) = value {
            script.env(name, value);
        }
    }
    let mut child = script
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script runs");
    let mut stdin = child.stdin.take().expect("stdin");
    let mut seen = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("stdout"));
    while !seen.contains("/dev/pts/") {
        assert!(lines.read_line(&mut seen).expect("output") > 0, "{seen}");
    }
    stdin.write_all(b"word\n").expect("written");
    lines.read_to_string(&mut seen).expect("output");
    assert!(
        seen.contains("33 99") && seen.contains("got word"),
        "{seen}"
    );
    assert_eq!(child.wait().expect("script ends").code(), Some(5), "{seen}");
}

/// Ends kubectl on drop.
struct Forward(Child);

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn port_forward(cluster: &Cluster, spdy: bool) {
    let asked = ["port-forward", "pod/boat", ":8080"];
    let mut child = kubectl(cluster, spdy, &asked)
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl runs");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout"));
    let _forward = Forward(child);
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    let port = line
        .split("127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|port| port.parse::<u16>().ok())
        .unwrap_or_else(|| panic!("{line}"));
    for _ in 0..3 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.ends_with("ahoy\n"), "{answer}");
    }
}

fn attach(cluster: &Cluster) {
    let mut command = kubectl(cluster, false, &["attach", "-i", "reader"]);
    let output = run(&mut command, b"one\ntwo\n");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("got one\ngot two\nthe end\n"), "{output:?}");
    eventually("the pod ends", || {
        let pod = cluster.object("pod", "reader");
        (pod["status"]["phase"] == "Succeeded").then_some(())
    });
}

fn copy(cluster: &Cluster) {
    let directory = tempfile::tempdir().expect("a directory");
    let (there, back) = (
        directory.path().join("there"),
        directory.path().join("back"),
    );
    let bytes: Vec<u8> = (0..300_000_u32).map(|number| (number * 7) as u8).collect();
    std::fs::write(&there, &bytes).expect("written");
    let text = |path: &std::path::Path| path.display().to_string();
    cluster.kubectl(&["cp", &text(&there), "boat:/tmp/copied"]);
    cluster.kubectl(&["cp", "boat:/tmp/copied", &text(&back)]);
    assert!(std::fs::read(&back).expect("read") == bytes);
}

fn proxies(cluster: &Cluster) {
    for path in [
        "/api/v1/namespaces/default/pods/boat/proxy/",
        "/api/v1/namespaces/default/pods/http:boat:8080/proxy/index.html",
        "/api/v1/namespaces/default/services/boat:web/proxy/",
        "/api/v1/namespaces/default/services/boat:80/proxy/",
    ] {
        // A Service gets its endpoints a moment after its pod is ready.
        eventually(path, || {
            let asked = ["get", "--raw", path];
            let output = cluster.kubectl_command(&asked).output().expect("kubectl");
            (output.stdout == b"ahoy\n").then_some(())
        });
    }
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "name"]);
    let node = nodes.trim().trim_start_matches("node/");
    let health = format!("/api/v1/nodes/{node}/proxy/healthz");
    assert_eq!(cluster.kubectl(&["get", "--raw", &health]), "ok");
    let none = "/api/v1/namespaces/default/services/boat:other/proxy/";
    let refused = cluster.kubectl_fails(&["get", "--raw", none]);
    assert!(refused.contains("no endpoints available"), "{refused}");
}
