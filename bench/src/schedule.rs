//! Scheduling: pods created beforehand on simulated nodes, then bound through the API and counted by
//! a watcher (`coracle simulate`). A durable Coracle cluster is compared with kube-apiserver on etcd
//! and kube-scheduler, where these are installed, one after the other on the same machine.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::load::Server;

/// Nodes, pods, workload, and whether upstream is measured too, which can take minutes.
const ROWS: [(usize, usize, &str, bool); 6] = [
    (1000, 5000, "plain", true),
    (1000, 1000, "anti-affinity", true),
    (1000, 5000, "topology-spread", true),
    (1000, 1000, "preemption", true),
    (5000, 30_000, "plain", false),
    (5000, 2000, "anti-affinity", false),
];

pub async fn run(binary: &Path, kube_apiserver: Option<&Path>) -> Result<()> {
    let scheduler = kube_apiserver.map(|path| path.with_file_name("kube-scheduler"));
    let scheduler = scheduler.filter(|path| path.exists());
    for (nodes, pods, workload, beside) in ROWS {
        let ours = simulate(binary, nodes, pods, workload, None)?;
        println!("{workload:<16} coracle   {ours}");
        if let (true, Some(kube_apiserver), Some(scheduler)) = (beside, kube_apiserver, &scheduler)
        {
            let server = Server::upstream(kube_apiserver).await?;
            let upstream = Upstream::new(&server, scheduler)?;
            let theirs = simulate(binary, nodes, pods, workload, Some(&upstream))?;
            println!("{workload:<16} upstream  {theirs}");
        }
    }
    Ok(())
}

/// kube-scheduler, and the API server that it and the simulation use.
struct Upstream {
    scheduler: PathBuf,
    directory: tempfile::TempDir,
}

impl Upstream {
    fn new(server: &Server, scheduler: &Path) -> Result<Upstream> {
        let directory = tempfile::Builder::new()
            .prefix("coracle-bench-")
            .tempdir()?;
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {
                "server": format!("https://{}", server.target.address),
                "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "bench", "user": {"token": server.target.token}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        });
        std::fs::write(directory.path().join("kubeconfig"), config.to_string())?;
        Ok(Upstream {
            scheduler: scheduler.to_path_buf(),
            directory,
        })
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Its limit on requests is raised: by default it would bind 50 pods per second.
    fn start_scheduler(&self) -> Result<Ended> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let log = std::fs::File::create(self.directory.path().join("log"))?;
        let child = Command::new(&self.scheduler)
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(["--leader-elect=false", "--bind-address=127.0.0.1"])
            .args(["--kube-api-qps=10000", "--kube-api-burst=10000"])
            .arg(format!("--secure-port={port}"))
            .arg("--cert-dir")
            .arg(self.directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting kube-scheduler")?;
        Ok(Ended(child))
    }
}

/// A process that is killed on drop.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs one simulation. Returns its last line.
fn simulate(
    binary: &Path,
    nodes: usize,
    pods: usize,
    workload: &str,
    upstream: Option<&Upstream>,
) -> Result<String> {
    let mut command = Command::new(binary);
    command
        .args(["simulate", "--nodes", &nodes.to_string()])
        .args(["--pods", &pods.to_string(), "--workload", workload])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(upstream) = upstream {
        command.arg("--kubeconfig").arg(upstream.kubeconfig());
    }
    let mut child = Ended(command.spawn()?);
    let output = child.0.stdout.take().context("its output")?;
    let mut scheduler = None;
    let mut last = String::new();
    for line in BufReader::new(output).lines() {
        last = line?;
        if let (Some(upstream), true) = (upstream, last.contains("wait for a scheduler")) {
            scheduler = Some(upstream.start_scheduler()?);
        }
    }
    let status = child.0.wait()?;
    drop(scheduler);
    if !status.success() || !last.ends_with("pods/s") {
        bail!("the simulation failed after: {last}");
    }
    Ok(last)
}
