//! A cluster of the binary under measurement, removed on drop.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use environment::Environment;

pub struct Cluster {
    binary: PathBuf,
    directory: tempfile::TempDir,
}

/// Times of `coracle up` in a new directory.
pub struct StartTimes {
    pub ready_ms: f64,
    pub usable_ms: f64,
}

impl Cluster {
    pub fn prepare(binary: &Path, image: &Path) -> Result<Cluster> {
        let cluster = Cluster {
            binary: binary.to_path_buf(),
            directory: tempfile::Builder::new()
                .prefix("coracle-bench-")
                .tempdir()?,
        };
        cluster.run(&["image", "import", &image.display().to_string()])?;
        Ok(cluster)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub async fn client(&self) -> Result<kube::Client> {
        Ok(client::connect::from_kubeconfig(self.data_dir().join("kubeconfig")).await?)
    }

    /// Runs `coracle up` and, concurrently, requests `/readyz` until it succeeds.
    pub async fn start(&self, environment: &Environment) -> Result<StartTimes> {
        let began = environment.now_micros();
        let mut child = Command::new(&self.binary)
            .args(["up", "--data-dir"])
            .arg(self.data_dir())
            .stdout(Stdio::null())
            .spawn()?;
        let ready_ms = loop {
            if let Ok(client) = self.client().await {
                let request = http::Request::get("/readyz").body(Vec::new())?;
                if client.request_text(request).await.is_ok() {
                    break (environment.now_micros() - began) as f64 / 1000.0;
                }
            }
            if let Some(status) = child.try_wait()?
                && !status.success()
            {
                bail!("coracle up failed");
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        };
        let status = tokio::task::spawn_blocking(move || child.wait()).await??;
        if !status.success() {
            bail!("coracle up failed");
        }
        Ok(StartTimes {
            ready_ms,
            usable_ms: (environment.now_micros() - began) as f64 / 1000.0,
        })
    }

    /// Checks that no container process, mount or link of this cluster remains after its pods are
    /// deleted.
    pub fn expect_no_leftovers(&self) -> Result<()> {
        let settings: serde_json::Value =
            serde_json::from_slice(&std::fs::read(self.data_dir().join("cluster.json"))?)?;
        let id = settings["cluster_id"].as_str().context("cluster id")?;
        let links = std::fs::read_dir("/sys/class/net")?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with(&format!("c{id}-")) && !name.ends_with("-gw"))
            .count();
        let data_dir = self.data_dir().display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?
            .lines()
            .filter(|line| {
                line.contains(&data_dir) || line.contains(&format!("/run/coracle/{id}/"))
            })
            .count();
        let shims = crate::memory::processes_of(&data_dir)?
            .into_iter()
            .filter(|process| process.kind == "shim")
            .count();
        println!("left over: {links} links, {mounts} mounts, {shims} shims");
        if links + mounts + shims > 0 {
            bail!("something was left behind");
        }
        Ok(())
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        let output = Command::new(&self.binary)
            .args(arguments)
            .arg("--data-dir")
            .arg(self.data_dir())
            .output()?;
        if !output.status.success() {
            bail!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["down", "--delete"]) {
            eprintln!("{error}");
        }
    }
}
