//! Anonymous clients that open connections and send nothing, while file descriptors are scarce: other
//! clients, the node and its pods must not be affected.

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};

use crate::cluster::{Cluster, eventually, succeed};

/// The number of idle connections in a longer campaign, with the machine's own limits.
const MANY: &str = "CORACLE_E2E_IDLE_CONNECTIONS";

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: calm}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: coracle-test:1
    command: [sh, -c, "echo started; ulimit -Sn; sleep 3600"]
"#;

#[test]
fn idle_anonymous_connections_do_not_block_other_clients() {
    let many = std::env::var(MANY).ok();
    let many: Option<usize> = many.map(|number| number.parse().expect("a number"));
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("our own limit");
    // The limit with which the cluster is started; enough for concurrent tests.
    let soft = hard.min(4096);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("lowered");
    let cluster = Cluster::start();
    cluster.apply(POD);
    cluster.wait_ready("calm");
    let server = cluster.server_pid().expect("a server").to_string();
    let raised = open_files(&server);
    assert_eq!(raised, (hard, hard), "the server raises its limit");
    let told = cluster.kubectl(&["logs", "calm"]);
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(
        told,
        ["started", &soft.to_string()],
        "containers keep theirs"
    );
    let strangers = match many {
        Some(number) => {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("raised");
            number
        }
        None => {
            let limit = ["--pid", &server, "--nofile=1024:1024"];
            succeed(Command::new("prlimit").args(limit));
            1100
        }
    };
    let node_name = cluster.kubectl(&["get", "nodes", "-o", "name"]);
    let node_name = node_name.trim().trim_start_matches("node/");
    let before = (ready(&cluster, node_name), pod(&cluster));

    let settings = std::fs::read_to_string(cluster.data_dir().join("cluster.json"));
    let settings: serde_json::Value =
        serde_json::from_str(&settings.expect("settings")).expect("settings");
    let port = |name: &str| {
        let port = settings[name].as_u64().expect("a port");
        u16::try_from(port).expect("a port")
    };
    let tls = tls(&cluster);
    let held = [
        hold(&tls, port("api_port"), strangers),
        hold(&tls, port("kubelet_port"), strangers / 4),
    ];
    // New clients are served by API server and kubelet, with new connections to the runtime.
    assert!(cluster.kubectl(&["get", "--raw", "/readyz"]).contains("ok"));
    assert!(cluster.kubectl(&["logs", "calm"]).contains("started"));
    let said = cluster.kubectl(&["exec", "calm", "--", "echo", "here"]);
    assert_eq!(said.trim(), "here");
    cluster.kubectl(&["create", "configmap", "made"]);
    // The node keeps renewing its lease, long enough to check for pressure several times.
    let renewed = || {
        let lease = cluster.kubectl(&[
            "get",
            "lease",
            node_name,
            "-n",
            "kube-node-lease",
            "-o",
            "jsonpath={.spec.renewTime}",
        ]);
        lease.trim().to_string()
    };
    for _ in 0..3 {
        let last = renewed();
        eventually("the node's lease to be renewed", || {
            (renewed() != last).then_some(())
        });
    }
    assert_eq!((ready(&cluster, node_name), pod(&cluster)), before);
    let events = cluster.kubectl(&["get", "events", "-A", "-o", "jsonpath={.items[*].reason}"]);
    for reason in ["Evicted", "NodeNotReady", "EvictionThresholdMet"] {
        assert!(!events.contains(reason), "{reason} in {events}");
    }
    drop(held);
}

/// The conditions of the node and the times of their last transitions.
fn ready(cluster: &Cluster, node: &str) -> Vec<String> {
    let node = cluster.object("node", node);
    let conditions = node["status"]["conditions"].as_array().expect("conditions");
    let told = conditions.iter().map(|condition| {
        format!(
            "{} {} since {}",
            condition["type"], condition["status"], condition["lastTransitionTime"]
        )
    });
    told.collect()
}

fn pod(cluster: &Cluster) -> String {
    let pod = cluster.object("pod", "calm");
    let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
    format!(
        "{} {} restarted {restarts} times",
        pod["metadata"]["uid"], pod["status"]["phase"]
    )
}

/// The soft and the hard limit of a process.
fn open_files(pid: &str) -> (u64, u64) {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("limits");
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let mut numbers = line.expect("a limit").split_whitespace();
    let mut number = || {
        numbers
            .next()
            .and_then(|text| text.parse().ok())
            .expect("a number")
    };
    (number(), number())
}

fn tls(cluster: &Cluster) -> Arc<rustls::ClientConfig> {
    let kubeconfig = std::fs::read_to_string(cluster.kubeconfig()).expect("a kubeconfig");
    let authority = kubeconfig.lines().find_map(|line| {
        let (_, data) = line.split_once("certificate-authority-data:")?;
        Some(data.trim().trim_matches('"').to_string())
    });
    let authority = base64::engine::general_purpose::STANDARD
        .decode(authority.expect("an authority"))
        .expect("base64");
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(&authority).expect("a certificate");
    roots.add(authority).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Opens TLS connections that send nothing. Connections that the server closes or rejects are
/// counted too.
fn hold(tls: &Arc<rustls::ClientConfig>, port: u16, number: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    let mut shaken = 0;
    for _ in 0..number {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
            continue;
        };
        let patience = Some(Duration::from_secs(5));
        stream.set_read_timeout(patience).expect("a timeout");
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let mut session = rustls::ClientConnection::new(tls.clone(), name).expect("a session");
        while session.is_handshaking() {
            if session.complete_io(&mut stream).is_err() {
                break;
            }
        }
        shaken += usize::from(!session.is_handshaking());
        held.push(stream);
    }
    assert!(shaken > 20, "only {shaken} handshakes with port {port}");
    // The server has closed the oldest connections in favour of newer ones.
    let mut rest = Vec::new();
    let first = held.first_mut().expect("a connection");
    let closed = first.read_to_end(&mut rest);
    let still_open = closed.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(
        !still_open,
        "the oldest connection to port {port} is still open"
    );
    held
}
