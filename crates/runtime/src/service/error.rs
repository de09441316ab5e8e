//! What can go wrong inside the server, and the gRPC code each becomes at the edge.

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
    #[error("{path}: {source}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("serving: {0}")]
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
    #[error("failed to setup network for sandbox {sandbox:?}: {source}")]
    Network {
        sandbox: String,
        #[source]
        source: cni::Error,
    },
    #[error("failed to destroy network for sandbox {sandbox:?}: {source}")]
    NetworkRemoval {
        sandbox: String,
        #[source]
        source: cni::Error,
    },
    #[error("{what}: {source}")]
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
    /// Whoever asked for the pull says which image it was.
    #[error("{0}")]
    Pull(#[source] Arc<images::Error>),
    #[error("systemd does not make or change a cgroup: {0}")]
    Systemd(#[source] dbus::Error),
    #[error("{0}")]
    Interrupted(String),
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
        // The chain is printed once, at the edge.
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            let more = error.to_string();
            if !message.contains(&more) {
                message.push_str(": ");
                message.push_str(&more);
            }
            cause = error.source();
        }
        Status::new(error.code(), message)
    }
}
