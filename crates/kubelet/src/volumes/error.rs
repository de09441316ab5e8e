//! Errors of volumes, and the messages of their events.

use environment::chain;

use crate::{container::fields, tokens::TokenError};

/// Why a volume could not be set up or torn down. The messages are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{kind} \"{name}\" not found")]
    Missing { kind: &'static str, name: String },
    #[error("{0}")]
    Key(String),
    #[error("failed to sync {0} cache: timed out waiting for the condition")]
    NotSynced(&'static str),
    #[error(transparent)]
    Field(#[from] fields::Error),
    #[error("failed to fetch token")]
    Token(#[source] TokenError),
    #[error("{0}")]
    HostPath(String),
    #[error("{0}")]
    Claim(String),
    #[error("{0}")]
    Medium(String),
    #[error("no matching NodeSelectorTerms")]
    NodeAffinity(String),
    #[error("{0}")]
    Device(String),
    #[error("no volume plugin matched")]
    Unsupported,
    #[error("{what}")]
    Io {
        what: String,
        #[source]
        source: std::io::Error,
    },
}

/// An error with the volume that it concerns. Its text is the message of the FailedMount event.
#[derive(Debug)]
pub struct VolumeFailure {
    pub volume: String,
    pub error: Error,
}

impl std::fmt::Display for VolumeFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let VolumeFailure {
            volume,
            error: cause,
        } = self;
        let error = chain(cause);
        match cause {
            // A claim that leads to no volume never gets as far as being mounted.
            Error::Claim(_) => write!(
                formatter,
                "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: {error}"
            ),
            Error::NodeAffinity(volume) => write!(
                formatter,
                "MountVolume.NodeAffinity check failed for volume \"{volume}\" : {error}"
            ),
            Error::Device(_) => write!(
                formatter,
                "MapVolume.MapBlockVolume failed for volume \"{volume}\" : {error}"
            ),
            _ => write!(
                formatter,
                "MountVolume.SetUp failed for volume \"{volume}\" : {error}"
            ),
        }
    }
}

impl std::error::Error for VolumeFailure {}

impl VolumeFailure {
    /// The reason of the event.
    pub fn reason(&self) -> &'static str {
        match self.error {
            Error::Device(_) => "FailedMapVolume",
            _ => "FailedMount",
        }
    }
}
