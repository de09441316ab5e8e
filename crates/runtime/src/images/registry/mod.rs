//! A registry as a pull sees it: its hosts in order (mirrors first), the credentials for each of them,
//! and the two kinds of requests: manifests and blobs.
//!
//! Nothing here touches the store, and every answer of a host is checked against its digest.

mod auth;
mod body;
mod challenge;
mod endpoint;
mod hosts;

pub use endpoint::{Endpoint, Want};

use std::{path::PathBuf, time::Duration};

use environment::chain;

use super::{Error as ImageError, content, manifest::MANIFEST_TYPES, reference::Name};

/// Manifests and configurations are small; anything bigger is not one.
pub const LARGEST_DOCUMENT: u64 = 8 << 20;

/// Why a registry did not serve a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {why}")]
    Configuration { path: PathBuf, why: String },
    #[error("{host}")]
    Transport {
        host: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("{host} gave nothing for {seconds} s")]
    Silent { host: String, seconds: u64 },
    #[error("{host}: {what}: not found")]
    NotFound { host: String, what: String },
    #[error("{host}: {what}: {why}")]
    Unauthorized {
        host: String,
        what: String,
        why: String,
    },
    #[error("{host}: {what}: unexpected status {status}{detail}")]
    Status {
        host: String,
        what: String,
        status: u16,
        detail: String,
    },
    #[error("{host}: {why}")]
    Nonsense { host: String, why: String },
    #[error("no host is configured to serve {0:?}")]
    NoHost(String),
}

impl Error {
    /// Asking the same host once more may help.
    pub fn is_passing(&self) -> bool {
        match self {
            Error::Transport { .. } | Error::Silent { .. } => true,
            Error::Status { status, .. } => *status >= 500 || matches!(status, 408 | 425 | 429),
            _ => false,
        }
    }
}

/// The credentials for a registry.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Credentials {
    #[default]
    Anonymous,
    Basic(String, String),
    /// Shown as it is.
    Bearer(String),
    /// Exchanged for a bearer token where the registry says.
    Identity(String),
}

/// Where registries are configured, and the timeouts of requests to them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directories with `<host>/hosts.toml`, as containerd reads them; the first that has one for
    /// the registry counts. Read at every pull.
    pub directories: Vec<PathBuf>,
    /// Registries (`host` or `host:port`) spoken to over plain http. Loopback ones always are,
    /// unless a `hosts.toml` says otherwise.
    pub insecure: Vec<String>,
    pub connect_timeout: Duration,
    /// A host that sends no byte for this long is given up.
    pub idle_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            directories: Vec::new(),
            insecure: Vec::new(),
            connect_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// One pull's view of the registry of one name.
pub struct Registry {
    pub name: Name,
    endpoints: Vec<Endpoint>,
}

impl Registry {
    pub fn new(
        name: &Name,
        credentials: &Credentials,
        settings: &Settings,
    ) -> Result<Registry, Error> {
        let endpoints = hosts::hosts_of(&name.registry, settings)?
            .into_iter()
            .map(|host| Endpoint::new(host, name, credentials, settings))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Registry {
            name: name.clone(),
            endpoints,
        })
    }

    /// The hosts that may be asked for content of a known digest, in order.
    pub fn serving(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter().filter(|endpoint| endpoint.host.pull)
    }

    /// A manifest or an index by tag or digest, with its true digest.
    pub async fn manifest(&self, reference: &str) -> Result<(Vec<u8>, String), ImageError> {
        let path = format!("{}/manifests/{reference}", self.name.repository);
        let accept = MANIFEST_TYPES.join(", ");
        let wanted = content::hex_of(reference).is_ok().then_some(reference);
        let mut failure = None;
        // A tag is only resolved by hosts with the capability `resolve`.
        let asked = self.endpoints.iter().filter(|endpoint| match wanted {
            Some(_) => endpoint.host.pull,
            None => endpoint.host.resolve,
        });
        for endpoint in asked {
            match endpoint.document(&path, Some(&accept)).await {
                Ok((bytes, announced)) => {
                    let actual = content::sha256(&bytes);
                    let expected = wanted.map(str::to_owned).or(announced);
                    match expected.filter(|expected| *expected != actual) {
                        None => return Ok((bytes, actual)),
                        Some(expected) => failure = Some(ImageError::Digest { expected, actual }),
                    }
                }
                Err(error) => {
                    tracing::debug!(error = %chain(&error), "a registry host cannot help");
                    failure = Some(self.failed(error));
                }
            }
        }
        Err(failure.unwrap_or_else(|| self.failed(Error::NoHost(self.name.registry.clone()))))
    }

    /// A small blob, checked.
    pub async fn document(&self, digest: &str) -> Result<Vec<u8>, ImageError> {
        let path = format!("{}/blobs/{digest}", self.name.repository);
        let mut failure = None;
        for endpoint in self.serving() {
            match endpoint.document(&path, None).await {
                Ok((bytes, _)) => match content::check(digest, &bytes) {
                    Ok(()) => return Ok(bytes),
                    Err(error) => failure = Some(error),
                },
                Err(error) => failure = Some(self.failed(error)),
            }
        }
        Err(failure.unwrap_or_else(|| self.failed(Error::NoHost(self.name.registry.clone()))))
    }

    pub fn failed(&self, source: Error) -> ImageError {
        ImageError::Registry {
            reference: self.name.to_string(),
            source: Box::new(source),
        }
    }
}
