//! The store of a server: the embedded one in its data directory, or an etcd cluster that it may
//! share with other servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::Enveloped;
use clap::Args;
use environment::Environment;
use store::Store;
use store::disk::RealDisk;
use store::embedded::{self, Embedded};
use store::etcd::{Credentials, Etcd, Identity, Options, Tls};

use crate::flags;
use crate::layout::{Layout, private_dir};

/// The prefix of the API server's keys.
const ROOT: &str = "/registry/";

#[derive(Args, Clone)]
pub struct StoreArguments {
    /// Store of the objects: embedded (in the data directory) or etcd
    #[arg(long = "store", value_name = "ENGINE", default_value = "embedded", value_parser = ["embedded", "etcd"])]
    engine: String,
    /// URLs of the etcd members, such as https://10.0.0.1:2379
    #[arg(
        long,
        alias = "etcd-servers",
        value_name = "URL,...",
        value_delimiter = ',',
        required_if_eq("engine", "etcd")
    )]
    etcd_endpoints: Vec<String>,
    /// Certificate authority of etcd's certificates
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(
        long,
        value_name = "FILE",
        requires = "etcd_cafile",
        requires = "etcd_keyfile"
    )]
    etcd_certfile: Option<PathBuf>,
    /// Private key of --etcd-certfile
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// File with user:password for etcd's authentication
    #[arg(long, value_name = "FILE")]
    etcd_credentials: Option<PathBuf>,
    /// Prefix of all keys in etcd
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    etcd_prefix: String,
    /// Time for which old revisions are kept for watches, such as 5m or 90s; 0 keeps them for ever
    #[arg(long, alias = "etcd-compaction-interval", value_name = "TIME", default_value = "5m", value_parser = flags::duration)]
    compaction_interval: Duration,
}

impl StoreArguments {
    /// The flags that `up` passes on to the server of its keeper.
    pub fn forwarded(&self) -> Vec<String> {
        let interval = format!(
            "--compaction-interval={}ms",
            self.compaction_interval.as_millis()
        );
        if self.engine == "embedded" {
            return vec![interval];
        }
        let mut arguments = vec![
            interval,
            format!("--store={}", self.engine),
            format!("--etcd-endpoints={}", self.etcd_endpoints.join(",")),
            format!("--etcd-prefix={}", self.etcd_prefix),
        ];
        for (flag, file) in [
            ("cafile", &self.etcd_cafile),
            ("certfile", &self.etcd_certfile),
            ("keyfile", &self.etcd_keyfile),
            ("credentials", &self.etcd_credentials),
        ] {
            if let Some(file) = file {
                // The keeper has another working directory.
                let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
                arguments.push(format!("--etcd-{flag}={}", file.display()));
            }
        }
        arguments
    }

    /// Rejects flags whose files cannot be read.
    pub fn check(&self) -> Result<()> {
        match self.engine.as_str() {
            "etcd" => self.etcd().map(drop),
            _ => Ok(()),
        }
    }

    /// Whether other servers may use the same store.
    pub fn is_shared(&self) -> bool {
        self.engine != "embedded"
    }

    pub fn compaction_interval(&self) -> Duration {
        self.compaction_interval
    }

    /// The identity of a shared store, or `None` for the embedded store.
    pub fn shared(&self) -> Option<String> {
        let mut endpoints = self.etcd_endpoints.clone();
        endpoints.sort();
        let shared = format!("{} {}", endpoints.join(","), self.etcd_prefix);
        (self.engine == "etcd").then_some(shared)
    }

    fn etcd(&self) -> Result<Options> {
        let mut options = Options::new(self.etcd_endpoints.clone());
        options.prefix = format!("{}/", self.etcd_prefix.trim_end_matches('/'));
        options.root = ROOT.to_owned();
        if let Some(authority) = &self.etcd_cafile {
            let identity = match (&self.etcd_certfile, &self.etcd_keyfile) {
                (Some(certificate), Some(key)) => Some(Identity {
                    certificate_pem: read(certificate)?,
                    key_pem: read(key)?,
                }),
                _ => None,
            };
            options.tls = Some(Tls {
                authority_pem: read(authority)?,
                identity,
            });
        }
        if let Some(file) = &self.etcd_credentials {
            let text = read(file)?;
            let (user, password) = text
                .trim_end_matches(['\r', '\n'])
                .split_once(':')
                .with_context(|| format!("{} does not contain user:password", file.display()))?;
            options.credentials = Some(Credentials {
                user: user.to_owned(),
                password: password.to_owned(),
            });
        }
        Ok(options)
    }
}

/// An open store.
#[derive(Clone)]
pub struct Storage {
    pub store: Arc<dyn Store>,
    /// The same store, where it is the embedded one.
    embedded: Option<Arc<Embedded>>,
}

impl Storage {
    pub async fn open(
        arguments: &StoreArguments,
        layout: &Layout,
        environment: &Environment,
    ) -> Result<Storage> {
        if arguments.engine == "etcd" {
            let etcd = Etcd::connect(arguments.etcd()?).await;
            let etcd = etcd.context("connecting to etcd")?;
            return Ok(Storage {
                store: Arc::new(Enveloped::new(etcd)),
                embedded: None,
            });
        }
        private_dir(&layout.store())?;
        let disk = RealDisk::new(layout.store()).context("opening the store")?;
        let options = embedded::Options::default();
        let store = Embedded::open(Arc::new(disk), environment.clone(), options)
            .await
            .context("opening the store")?;
        Ok(Storage {
            store: store.clone(),
            embedded: Some(store),
        })
    }

    /// Waits until the store has failed for good and returns the reason. An etcd may always recover.
    pub async fn closed(&self) -> String {
        match &self.embedded {
            Some(embedded) => embedded.closed().await,
            None => std::future::pending().await,
        }
    }

    pub async fn close(&self) -> Result<()> {
        match &self.embedded {
            Some(embedded) => embedded.close().await.context("closing the store"),
            None => Ok(()),
        }
    }
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}
