//! The errors of the server's calls, and the gRPC code of each. The chain of causes is printed here,
//! at the edge.

use std::{path::PathBuf, sync::Arc};

use tonic::{Code, Status};

use crate::{
    images,
    sandbox::{cni, userns},
    shim::{client, protocol::FailureKind},
    snapshots, spec,
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("serving")]
    Transport(#[source] tonic::transport::Error),
    #[error("{kind} {id:?} not found")]
    NotFound { kind: &'static str, id: String },
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Users(#[from] userns::Error),
    #[error("{0}")]
    Exists(String),
    #[error("{0}")]
    Precondition(String),
    #[error("{0}")]
    Unimplemented(&'static str),
    #[error("{0}")]
    Deadline(String),
    #[error("failed to setup network for sandbox {sandbox:?}")]
    Network {
        sandbox: String,
        #[source]
        source: cni::Error,
    },
    #[error("failed to destroy network for sandbox {sandbox:?}")]
    NetworkRemoval {
        sandbox: String,
        #[source]
        source: cni::Error,
    },
    #[error("{what}")]
    Shim {
        what: String,
        #[source]
        source: client::Error,
    },
    #[error(transparent)]
    Snapshot(#[from] snapshots::Error),
    #[error(transparent)]
    Spec(#[from] spec::Error),
    #[error(transparent)]
    Image(#[from] images::Error),
    /// Calls that share one pull share its error.
    #[error(transparent)]
    Pull(Arc<images::Error>),
    #[error("systemd does not make or change a cgroup")]
    Systemd(#[source] dbus::Error),
    #[error("the work was interrupted")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl Error {
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, source }
    }

    pub fn shim(what: impl Into<String>) -> impl FnOnce(client::Error) -> Error {
        let what = what.into();
        move |source| Error::Shim { what, source }
    }

    pub fn not_found(kind: &'static str, id: &str) -> Error {
        let id = id.to_owned();
        Error::NotFound { kind, id }
    }

    pub fn sandbox_not_running(id: &str) -> Error {
        Error::Precondition(format!("sandbox {id:?} is not running"))
    }

    fn code(&self) -> Code {
        match self {
            Error::NotFound { .. } => Code::NotFound,
            Error::Invalid(_) | Error::Spec(_) | Error::Users(_) => Code::InvalidArgument,
            Error::Exists(_) => Code::AlreadyExists,
            Error::Precondition(_) => Code::FailedPrecondition,
            Error::Unimplemented(_) => Code::Unimplemented,
            Error::Deadline(_) => Code::DeadlineExceeded,
            Error::Shim { source, .. } => match source.kind() {
                FailureKind::NotFound => Code::NotFound,
                FailureKind::Timeout => Code::DeadlineExceeded,
                FailureKind::Conflict => Code::FailedPrecondition,
                FailureKind::Unsupported => Code::Unimplemented,
                FailureKind::Failed => Code::Unknown,
            },
            Error::Image(error) => image_code(error),
            Error::Pull(error) => image_code(error),
            _ => Code::Unknown,
        }
    }
}

fn image_code(error: &images::Error) -> Code {
    use images::registry::Error as Registry;
    match error {
        images::Error::NotFound(_) => Code::NotFound,
        images::Error::Reference(..) => Code::InvalidArgument,
        images::Error::Registry { source, .. } => match source.as_ref() {
            Registry::NotFound { .. } => Code::NotFound,
            Registry::Unauthorized { .. } => Code::Unauthenticated,
            Registry::Transport { .. } | Registry::Silent { .. } => Code::Unavailable,
            _ => Code::Unknown,
        },
        _ => Code::Unknown,
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        Status::new(error.code(), environment::chain(&error).to_string())
    }
}
