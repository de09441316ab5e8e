//! The CRI server: gRPC on a Unix socket over the runtime's parts.

mod containers;
mod deadline;
mod error;
mod events;
mod execution;
mod exits;
mod features;
mod image_api;
mod image_volumes;
mod mapped;
mod metrics;
mod pull_trace;
mod recovery;
mod runtime_api;
mod sandboxes;
mod state;
mod stats;
mod streams;

pub use error::Error;
pub use stats::usage_of;

use std::{fs, io, os::unix::fs::PermissionsExt, time::Duration};

use cri::v1::{
    image_service_server::ImageServiceServer, runtime_service_server::RuntimeServiceServer,
};
use environment::Environment;
use futures::Stream;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::{config::Config, sys};
use state::Runtime;

/// How long calls under way, and clients that do not notice, hold up our end.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// A connection could not be accepted, mostly because descriptors ran out: try again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The connections that `listener` accepts. Failures are waited out here: tonic would try again at
/// once, and again, while nothing can have changed.
fn connections(listener: UnixListener) -> impl Stream<Item = io::Result<UnixStream>> {
    futures::stream::unfold(listener, |listener| async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Some((Ok(stream), listener)),
                Err(error) => {
                    tracing::warn!(%error, "a CRI connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

/// Serves CRI until `shutdown`. Finds again what an earlier server left running; leaves everything
/// running when it ends.
pub async fn serve(
    config: Config,
    environment: Environment,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    // Directories for containers are made to be passed through, and nothing of ours to be written by
    // others; a shell's or a unit's umask may say otherwise.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let socket = config.socket.clone();
    let failed = |source| Error::File {
        path: socket.clone(),
        source,
    };
    if let Some(parent) = socket.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let runtime = Runtime::open(config, environment, shutdown.child_token())?;
    runtime.recover().await?;
    let listener = sys::listen(&socket).map_err(failed)?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let incoming = connections(UnixListener::from_std(listener).map_err(failed)?);
    let streams = streams::listen(&runtime).await.map_err(failed)?;
    tokio::spawn(streams::serve(
        runtime.clone(),
        streams,
        shutdown.child_token(),
    ));
    tracing::info!(socket = %socket.display(), "the container runtime listens");
    let served = tonic::transport::Server::builder()
        .layer(deadline::Deadlines)
        .add_service(RuntimeServiceServer::new(runtime.clone()))
        .add_service(ImageServiceServer::new(runtime.clone()))
        .serve_with_incoming_shutdown(incoming, shutdown.clone().cancelled_owned());
    let too_late = async {
        shutdown.cancelled().await;
        tokio::time::sleep(LAST_CALLS).await;
    };
    let outcome = tokio::select! {
        biased;
        served = served => served.map_err(Error::Transport),
        // Every call can be repeated at the next server.
        () = too_late => Ok(()),
    };
    let _ = tokio::task::spawn_blocking(move || runtime.leave_cgroups()).await;
    outcome
}
