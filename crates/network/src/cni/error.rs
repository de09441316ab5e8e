//! Errors of the plugin as the CNI specification numbers them.

use serde::Serialize;

/// What the runtime gets on standard output when a command fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{msg}{}{details}", if .details.is_empty() { "" } else { "; " })]
pub struct Failure {
    #[serde(rename = "cniVersion")]
    pub version: String,
    pub code: u32,
    pub msg: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub details: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("incompatible CNI version {0:?}")]
    Version(String),
    #[error("invalid environment: {0}")]
    Environment(String),
    #[error("cannot read the configuration")]
    Read(#[source] std::io::Error),
    #[error("cannot decode the configuration")]
    Decode(#[source] serde_json::Error),
    #[error("invalid configuration: {0}")]
    Configuration(String),
    #[error("{what}")]
    File {
        what: String,
        #[source]
        source: std::io::Error,
    },
    #[error("no free address in {0}")]
    Exhausted(crate::Subnet),
    #[error("network namespace {path}")]
    Namespace {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("host port {port}/{protocol} is in use")]
    HostPort { port: u16, protocol: String },
    #[error("check failed: {0}")]
    Check(String),
    #[error("not ready: {0}")]
    NotReady(String),
    #[error(transparent)]
    Netlink(#[from] crate::netlink::Error),
    #[error(transparent)]
    Nft(#[from] crate::nft::Error),
    #[error(transparent)]
    Node(#[from] crate::node::Error),
}

impl Error {
    fn code(&self) -> u32 {
        match self {
            Error::Version(_) => 1,
            Error::Environment(_) => 4,
            Error::Read(_) | Error::File { .. } => 5,
            Error::Decode(_) => 6,
            Error::Configuration(_) => 7,
            Error::Exhausted(_) => 11,
            Error::NotReady(_) => 50,
            Error::Namespace { .. } => 100,
            Error::HostPort { .. } => 101,
            Error::Netlink(_) | Error::Nft(_) | Error::Node(_) => 102,
            Error::Check(_) => 103,
        }
    }

    pub fn failure(&self, version: &str) -> Failure {
        let cause = std::error::Error::source(self);
        let details = cause.map(|cause| environment::chain(cause).to_string());
        Failure {
            version: version.to_owned(),
            code: self.code(),
            msg: self.to_string(),
            details: details.unwrap_or_default(),
        }
    }
}
