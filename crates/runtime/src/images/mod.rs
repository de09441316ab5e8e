//! The image store: references, verified blobs and unpacked layers on disk. Safe to use from
//! several processes at once; knows nothing of CRI messages or containers.
//!
//! Layout under `<root>/images`: `blobs/sha256/<hex>` (manifests and configurations; layer blobs
//! only until they are unpacked), `layers/<chain id>` (one overlayfs lower directory each),
//! `seals/` and `recipes/` (how each layer must look, and how its tar is made again), `index.json`
//! (the names of images), `ingest/` (everything unfinished).

mod archive;
mod content;
mod download;
mod export;
mod index;
mod layer;
mod manifest;
mod progress;
mod pull;
mod recipe;
pub mod reference;
pub mod registry;
mod seal;
mod spool;
mod store;
mod unpack;

pub use index::{ImageRecord, NameRemoval};
pub use layer::Limits;
pub use progress::{LayerProgress, Stage};
pub use pull::{Pull, Puller};
pub use registry::{Credentials, Settings};
pub use store::{ImageStore, Removed};

use std::path::PathBuf;

/// Why an image cannot be used, pulled or imported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("invalid image reference {0:?}: {1}")]
    Reference(String, String),
    #[error("digest mismatch: expected {expected}, got {actual}")]
    Digest { expected: String, actual: String },
    #[error("invalid digest {0:?}")]
    DigestFormat(String),
    #[error(
        "this is not an image archive: expected a tar file in OCI layout or of docker save, plain \
         or compressed with gzip or zstd"
    )]
    NotAnArchive,
    #[error("the archive is not an OCI layout nor a docker archive: {0}")]
    Archive(String),
    #[error("no image for platform linux/{0} in {1}")]
    Platform(&'static str, String),
    #[error("invalid {what}")]
    Json {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("unsupported media type {0:?}")]
    MediaType(String),
    #[error("invalid layer: {0}")]
    Layer(String),
    #[error("image {0:?} not found")]
    NotFound(String),
    #[error("{reference}")]
    Registry {
        reference: String,
        #[source]
        source: Box<registry::Error>,
    },
    #[error("image {name:?} is damaged ({damage}) and must be pulled or imported again")]
    Damaged { name: String, damage: String },
    #[error("pull interrupted")]
    Interrupted(#[source] tokio::task::JoinError),
    #[error("pull interrupted: a layer did not arrive")]
    LayerLost,
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, source }
    }
}
