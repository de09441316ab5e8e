//! The stores of a cluster: etcd, also with authentication, without a quorum, and shared by several
//! servers; and snapshots.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::cluster::{Background, Cluster, coracle, eventually, fail};
use crate::etcd::Etcd;

/// The components that most of these tests do not need.
const NODE: &str = "node,proxy,dns";

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: steady}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "coracle-test:1", command: [sleep, "86397"]}
"#;

#[test]
fn a_cluster_can_keep_its_objects_in_etcd() {
    let etcd = Etcd::start(1);
    let cluster = Cluster::prepared();
    let endpoints = etcd.endpoints();
    let flags = [
        "--store",
        "etcd",
        "--etcd-servers",
        &endpoints,
        "--etcd-compaction-interval",
        "2s",
    ];
    cluster.up(&flags);
    cluster.apply(POD);
    cluster.wait_ready("steady");
    cluster.kubectl(&["create", "configmap", "kept", "--from-literal=k=v"]);
    let kept = cluster.object("configmap", "kept");
    let revision: u64 = kept["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a revision");

    // Events expire, pods do not.
    let event = eventually("an Event", || {
        etcd.items("/registry/events/", 0)["kvs"].get(0).cloned()
    });
    assert!(event["lease"].is_string(), "{event}");
    let pod = etcd.items("/registry/pods/default/steady", 0)["kvs"][0].clone();
    assert!(pod["key"].is_string() && pod["lease"].is_null(), "{pod}");
    // Old revisions are compacted with the same protocol as that of several kube-apiservers.
    eventually("compaction", || {
        let answer = etcd.items("/registry/pods/", revision);
        answer.to_string().contains("compacted").then_some(())
    });
    assert!(etcd.items("compact_rev_key", 0)["kvs"][0]["value"].is_string());

    let file = cluster.data_dir().join("../saved");
    let file = file.to_str().expect("text");
    let data_dir = cluster.data_dir_text();
    let said = cluster.coracle(&["snapshot", "save", file, "--data-dir", &data_dir]);
    assert!(said.contains("a snapshot of etcd"), "{said}");
    let said = fail(coracle().args(["snapshot", "restore", file, "--data-dir", &data_dir]));
    assert!(said.contains("etcdutl snapshot restore"), "{said}");

    cluster.down();
    cluster.up(&flags);
    assert_eq!(cluster.object("configmap", "kept"), kept);
    cluster.wait_ready("steady");
    let pod = cluster.object("pod", "steady");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    assert!(!cluster.data_dir().join("store").exists());
}

#[test]
fn etcd_can_require_client_certificates_and_a_user() {
    let mut etcd = Etcd::start(1);
    etcd.secure();
    let cluster = Cluster::prepared();
    let path = |name: &str| etcd.path(name).display().to_string();
    let flags = [
        "--disable".to_owned(),
        NODE.to_owned(),
        "--store=etcd".to_owned(),
        format!("--etcd-servers={}", etcd.endpoints()),
        format!("--etcd-cafile={}", path("ca.pem")),
        format!("--etcd-certfile={}", path("client.pem")),
        format!("--etcd-keyfile={}", path("client.key")),
    ];
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let data_dir = cluster.data_dir_text();
    let up = |flags: &[&str]| {
        let mut command = coracle();
        command.args(["up", "--data-dir", &data_dir]).args(flags);
        command
    };
    let said = fail(&mut up(&flags));
    assert!(
        said.contains("connecting to etcd: the store refused"),
        "{said}"
    );
    std::fs::write(etcd.path("wrong"), "root:guess").expect("written");
    let wrong = format!("--etcd-credentials={}", path("wrong"));
    let said = fail(up(&flags).arg(&wrong));
    assert!(said.contains("invalid user ID or password"), "{said}");
    assert!(!said.contains("guess"), "passwords are not told: {said}");
    let credentials = format!("--etcd-credentials={}", path("credentials"));
    flags.push(&credentials);
    cluster.up(&flags);
    cluster.kubectl(&["create", "configmap", "kept"]);
    cluster.down();
    cluster.up(&flags);
    cluster.object("configmap", "kept");
}

#[test]
fn without_a_quorum_reads_succeed_and_writes_fail() {
    let mut etcd = Etcd::start(3);
    let cluster = Cluster::prepared();
    let endpoints = etcd.endpoints();
    cluster.up(&[
        "--disable",
        NODE,
        "--store",
        "etcd",
        "--etcd-servers",
        &endpoints,
    ]);
    let server = cluster.server_pid();
    written(&cluster, "before");
    let watch = Watch::begin(&cluster, "configmaps");
    etcd.kill(0);
    etcd.kill(1);

    // Members may take a while to notice; the error is clear, and no write succeeds.
    let refused = |what: &str, arguments: &[&str], words: &[&str]| {
        eventually(what, || {
            let mut command = cluster.kubectl_command(arguments);
            let said = fail(command.arg("--request-timeout=60s"));
            words.iter().any(|words| said.contains(words)).then_some(())
        });
    };
    refused(
        "a write to be refused",
        &["create", "configmap", "refused"],
        &[
            "the store is not available",
            "the outcome of a write is unknown",
        ],
    );
    let maps = "/api/v1/namespaces/default/configmaps";
    let cached = cluster.kubectl(&["get", "--raw", &format!("{maps}?resourceVersion=0")]);
    assert!(cached.contains("\"before\""), "{cached}");
    let one = format!("{maps}/before?resourceVersion=0");
    cluster.kubectl(&["get", "--raw", &one]);
    refused(
        "a consistent read to be refused",
        &["get", "configmaps"],
        &["the store is not available"],
    );
    let said = cluster.kubectl_fails(&["get", "--raw", "/readyz"]);
    assert!(said.contains("[-]etcd failed"), "{said}");
    assert!(said.contains("[-]etcd-readiness failed"), "{said}");
    assert!(said.contains("[+]ping ok"), "{said}");

    etcd.restart(0);
    etcd.restart(1);
    written(&cluster, "after");
    // The watch that was started before continues.
    watch.wait_for("after");
    eventually("the server to be ready", || {
        let ready = cluster
            .kubectl_command(&["get", "--raw", "/readyz"])
            .output();
        ready.expect("kubectl").status.success().then_some(())
    });
    assert_eq!(cluster.server_pid(), server, "no restart was needed");
}

/// Creates a ConfigMap through members that may be without a leader for a while.
fn written(cluster: &Cluster, name: &str) {
    eventually(&format!("{name} to be written"), || {
        let create = cluster
            .kubectl_command(&["create", "configmap", name, "--request-timeout=60s"])
            .output()
            .expect("kubectl");
        let said = String::from_utf8_lossy(&create.stderr).into_owned();
        (create.status.success() || said.contains("already exists")).then_some(())
    });
}

#[test]
fn servers_on_one_etcd_are_one_cluster_with_one_leader() {
    let etcd = Etcd::start(1);
    let (first, second) = (Cluster::prepared(), Cluster::prepared());
    let leading = Server::start(&first, &etcd, &[]);
    // The second server has the certificate authority, keys and ranges of the first.
    let keys = second.data_dir().join("pki");
    std::fs::create_dir_all(&keys).expect("directory");
    for name in ["ca.crt", "ca.key", "service-account.key"] {
        let from = first.data_dir().join("pki").join(name);
        std::fs::copy(from, keys.join(name)).expect("copied");
    }
    let settings = settings(&first);
    let range = |name: &str| settings[name].as_str().expect("a range").to_owned();
    let ranges = [
        "--service-range",
        &range("service_range"),
        "--pod-range",
        &range("pod_range"),
    ];
    let leads = |part: &str, cluster: &Cluster| {
        let wanted = format!("_{}", cluster.id());
        eventually(&format!("the {part} to be led"), || {
            let lease = lease_of(cluster, part)?;
            let holder = lease["spec"]["holderIdentity"].as_str()?.to_owned();
            holder.ends_with(&wanted).then_some(())
        });
    };
    leads("kube-controller-manager", &first);
    leads("kube-scheduler", &first);
    let _standing_by = Server::start(&second, &etcd, &ranges);

    let maps = Watch::begin(&second, "configmaps");
    let pods = Watch::begin(&second, "pods");
    first.kubectl(&["create", "configmap", "through-the-first"]);
    maps.wait_for("through-the-first");

    second.apply(
        r#"
apiVersion: v1
kind: Node
metadata: {name: imagined}
"#,
    );
    second.kubectl(&[
        "patch",
        "node",
        "imagined",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"},
            "capacity": {"cpu": "64", "memory": "64Gi", "pods": "110"}}}"#,
    ]);
    second.apply(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: many}
spec:
  replicas: 20
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec:
      tolerations: [{operator: Exists}]
      containers:
      - {name: c, image: "coracle-test:1"}
"#,
    );
    // The leader is killed while it works.
    eventually("the first pods", || {
        (!pods.added().is_empty()).then_some(())
    });
    drop(leading);
    leads("kube-controller-manager", &second);
    leads("kube-scheduler", &second);
    let placed = |count: usize| {
        eventually("all pods to have a node", || {
            let list = second.kubectl(&[
                "get",
                "pods",
                "-l",
                "app=many",
                "-o",
                "jsonpath={.items[*].spec.nodeName}",
            ]);
            (list.split_whitespace().count() == count).then_some(())
        });
        // The watch may be behind the list.
        eventually("the watch to show all pods", || {
            (pods.added().len() >= count).then_some(())
        });
        assert_eq!(pods.added().len(), count, "no pod was made twice");
    };
    placed(20);
    second.kubectl(&["scale", "deployment/many", "--replicas=25"]);
    placed(25);
}

#[test]
fn a_cluster_is_restored_from_a_snapshot() {
    let cluster = Cluster::start();
    let data_dir = cluster.data_dir_text();
    cluster.apply(POD);
    cluster.wait_ready("steady");
    let file = cluster.data_dir().join("../saved");
    let file = file.to_str().expect("text").to_owned();
    // The snapshot is saved during writes; it contains all writes that were acknowledged before.
    let mut acknowledged = Vec::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let create = |name: &str| {
        cluster.kubectl(&["create", "configmap", name, "--from-literal=k=v"]);
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                create(&format!("meanwhile-{count}"));
                count += 1;
            }
        });
        for number in 0..5 {
            let name = format!("before-{number}");
            create(&name);
            acknowledged.push(name);
        }
        let said = cluster.coracle(&["snapshot", "save", &file, "--data-dir", &data_dir]);
        assert!(said.contains("keys at revision"), "{said}");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().expect("writer");
    });
    cluster.kubectl(&["create", "configmap", "after"]);
    cluster.kubectl(&["delete", "configmap", "before-3"]);
    let last = revision(&cluster.object("configmap", "after"));

    let restore = |more: &[&str]| {
        let mut command = coracle();
        command.args(["snapshot", "restore", &file, "--data-dir", &data_dir]);
        command.args(more);
        command
    };
    let said = fail(&mut restore(&["--force"]));
    assert!(said.contains("the cluster is running"), "{said}");
    cluster.down();
    let said = fail(&mut restore(&[]));
    assert!(said.contains("holds objects already"), "{said}");
    let whole = std::fs::read(&file).expect("file");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(&file, damaged).expect("written");
    let said = fail(&mut restore(&["--force"]));
    assert!(said.contains("damaged"), "{said}");
    std::fs::write(&file, whole).expect("written");
    cluster.coracle(&[
        "snapshot",
        "restore",
        &file,
        "--data-dir",
        &data_dir,
        "--force",
    ]);

    cluster.up(&[]);
    for name in &acknowledged {
        cluster.object("configmap", name);
    }
    let said = cluster.kubectl_fails(&["get", "configmap", "after"]);
    assert!(said.contains("NotFound"), "{said}");
    // A watch from a resource version of the lost cluster must list again.
    let watch = format!("/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={last}");
    let told = cluster
        .kubectl_command(&["get", "--raw", &watch])
        .output()
        .expect("kubectl");
    let told = format!(
        "{}{}",
        String::from_utf8_lossy(&told.stdout),
        String::from_utf8_lossy(&told.stderr)
    );
    assert!(told.contains("too old resource version"), "{told}");
    cluster.kubectl(&["create", "configmap", "new"]);
    assert!(revision(&cluster.object("configmap", "new")) > last + 1_000_000);
    cluster.wait_ready("steady");
    cluster.kubectl(&["delete", "pod", "steady", "--timeout=120s"]);
    cluster.apply(POD);
    cluster.wait_ready("steady");
    // A stopped cluster can be saved too.
    cluster.down();
    let said = cluster.coracle(&["snapshot", "save", &file, "--data-dir", &data_dir]);
    assert!(said.contains("keys at revision"), "{said}");
}

/// A server in the foreground, without a keeper that would restart it; killed on drop.
struct Server(#[expect(dead_code, reason = "held for its drop")] Background);

impl Server {
    fn start(cluster: &Cluster, etcd: &Etcd, more: &[&str]) -> Server {
        let log = File::create(cluster.data_dir().join("server.log")).expect("log");
        let process = coracle()
            .args(["server", "--data-dir", &cluster.data_dir_text()])
            .args(["--port", "0", "--disable", NODE])
            .args(["--store", "etcd", "--etcd-servers", &etcd.endpoints()])
            .args(more)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn()
            .expect("server");
        let server = Server(Background(process));
        eventually("the server to answer", || {
            if !Path::new(&cluster.kubeconfig()).exists() {
                return None;
            }
            let ready = cluster
                .kubectl_command(&["get", "--raw", "/readyz"])
                .output();
            ready.expect("kubectl").status.success().then_some(())
        });
        server
    }
}

/// A watch of the default namespace from now on, written to a file by kubectl.
struct Watch {
    file: std::path::PathBuf,
    _process: Background,
}

impl Watch {
    fn begin(cluster: &Cluster, plural: &str) -> Watch {
        let path = format!("/api/v1/namespaces/default/{plural}");
        let list = cluster.kubectl(&["get", "--raw", &path]);
        let list: Value = serde_json::from_str(&list).expect("JSON");
        let from = revision(&list);
        let file = cluster.data_dir().with_file_name(format!("watch-{plural}"));
        let output = File::create(&file).expect("file");
        let process = cluster
            .kubectl_command(&[
                "get",
                "--raw",
                &format!("{path}?watch=1&resourceVersion={from}"),
            ])
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("file"))
            .stderr(output)
            .spawn()
            .expect("kubectl");
        Watch {
            file,
            _process: Background(process),
        }
    }

    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.file).expect("file");
        // The last line may be incomplete.
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// The names of the created objects.
    fn added(&self) -> Vec<String> {
        let added = |event: &Value| {
            let name = event["object"]["metadata"]["name"].as_str()?;
            (event["type"] == "ADDED").then(|| name.to_owned())
        };
        self.events().iter().filter_map(added).collect()
    }

    fn wait_for(&self, name: &str) {
        eventually(&format!("the watch to show {name}"), || {
            self.added().iter().any(|added| added == name).then_some(())
        });
    }
}

fn settings(cluster: &Cluster) -> Value {
    let text = std::fs::read_to_string(cluster.data_dir().join("cluster.json")).expect("settings");
    serde_json::from_str(&text).expect("settings")
}

fn lease_of(cluster: &Cluster, name: &str) -> Option<Value> {
    let lease = cluster
        .kubectl_command(&["get", "lease", "-n", "kube-system", name, "-o", "json"])
        .output()
        .expect("kubectl");
    serde_json::from_slice(&lease.stdout).ok()
}

fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).expect("a revision")
}
