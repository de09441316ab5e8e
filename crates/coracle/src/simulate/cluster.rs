//! The temporary cluster of a simulation: API server, controllers and, once the pods exist, the
//! scheduler, as `coracle server` runs them. It writes to disk as any cluster does, and is deleted
//! afterwards.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, FromArgMatches};
use environment::Environment;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster_arguments::ClusterArguments;
use crate::layout::Layout;
use crate::log_tail::log_tail;
use crate::prepare::prepare;

const START_LIMIT: Duration = Duration::from_secs(60);
/// Simulated nodes need none of these components.
const WITHOUT: &str = "node,proxy,dns";

pub struct OwnCluster {
    directory: tempfile::TempDir,
    layout: Layout,
    /// Stays open during the restart, so that connections wait instead of being refused.
    listener: OwnedFd,
    server: Option<Child>,
}

impl OwnCluster {
    /// Starts a cluster without a scheduler below `parent`.
    pub async fn start(parent: Option<&Path>) -> Result<OwnCluster> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("coracle-simulate-");
        let directory = match parent {
            Some(parent) => builder.tempdir_in(parent),
            None => builder.tempdir(),
        }
        .context("creating a directory for the simulation's cluster")?;
        let layout = Layout::create(&directory.path().join("data"))?;
        let flags = ClusterArguments::augment_args(clap::Command::new("simulate"));
        let flags = flags.try_get_matches_from(["simulate", "--port", "0"])?;
        let flags = ClusterArguments::from_arg_matches(&flags)?;
        let prepared = prepare(&layout, &flags, &Environment::system())?;
        let port = prepared.settings.api_port;
        let listener = TcpListener::bind(("127.0.0.1", port))
            .with_context(|| format!("cannot listen on port {port}"))?;
        let mut cluster = OwnCluster {
            directory,
            layout,
            listener: listener.into(),
            server: None,
        };
        cluster.run_server(&format!("{WITHOUT},scheduler")).await?;
        Ok(cluster)
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    /// Restarts the server on the same data, now with a scheduler.
    pub async fn restart_with_scheduler(&mut self) -> Result<()> {
        self.stop()?;
        self.run_server(WITHOUT).await
    }

    /// Fails when the server has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.server.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => Ok(()),
            _ => bail!(
                "the simulation's server ended; the end of its log is:\n{}",
                self.log()
            ),
        }
    }

    /// Stops and deletes the cluster.
    pub fn remove(mut self) -> Result<()> {
        self.stop()?;
        let removed = Command::new(std::env::current_exe()?)
            .args(["down", "--delete", "--data-dir"])
            .arg(&self.layout.data_dir)
            .stdin(Stdio::null())
            .output()?;
        if !removed.status.success() {
            bail!("{}", String::from_utf8_lossy(&removed.stderr));
        }
        Ok(())
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn log(&self) -> String {
        log_tail(&self.log_file())
    }

    fn spawn_server(&self, without: &str) -> Result<Child> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())?;
        Command::new(std::env::current_exe()?)
            .args(["server", "--inherit-socket", "--log", "warn"])
            .args(["--disable", without, "--data-dir"])
            .arg(&self.layout.data_dir)
            .stdin(Stdio::from(self.listener.as_fd().try_clone_to_owned()?))
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()
            .context("starting the server")
    }

    async fn run_server(&mut self, without: &str) -> Result<()> {
        self.server = Some(self.spawn_server(without)?);
        let client = client::connect::from_kubeconfig(self.kubeconfig()).await?;
        let ready = async {
            loop {
                self.check()?;
                let request = http::Request::get("/readyz").body(Vec::new())?;
                if client.request_text(request).await.is_ok() {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        match tokio::time::timeout(START_LIMIT, ready).await {
            Ok(result) => result,
            Err(_) => bail!(
                "the simulation's server did not become ready within {} s; the end of its log \
                 is:\n{}",
                START_LIMIT.as_secs(),
                self.log()
            ),
        }
    }

    fn stop(&mut self) -> Result<()> {
        if let Some(mut server) = self.server.take() {
            kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM)?;
            server.wait()?;
        }
        Ok(())
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        // Only after a failure: `remove` has stopped the server otherwise.
        let _ = self.stop();
    }
}
