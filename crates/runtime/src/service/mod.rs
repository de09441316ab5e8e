//! The CRI server: gRPC on a Unix socket over the runtime's parts.

mod assembly;
mod bundles;
mod container_table;
mod containers;
mod deadline;
mod error;
mod events;
mod execution;
mod exits;
mod features;
mod host;
mod image_api;
mod image_volumes;
mod images;
mod mapped;
mod metrics;
mod pause_process;
mod pod_network;
mod pull_trace;
mod recovery;
mod runtime_api;
mod sandbox_options;
mod sandbox_table;
mod sandboxes;
mod stats;
mod stop_signal;
mod streams;
mod table;
mod tasks;
mod views;

pub use error::Error;

use std::{io, time::Duration};

use cri::v1::{
    image_service_server::ImageServiceServer, runtime_service_server::RuntimeServiceServer,
};
use environment::Environment;
use futures::{Stream, future::BoxFuture};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::{config::Config, run_files, sys};
use assembly::{Assembly, assemble};

/// How long the server waits at its end for calls under way and for clients that keep connections.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Serves CRI until `shutdown`. It takes over the pods that an earlier server left running, and leaves
/// all pods running when it ends.
pub fn serve(
    config: Config,
    environment: Environment,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), Error>> {
    // Boxed, so that all of it is compiled here, for speed: the body of an async function is compiled
    // where it is awaited.
    Box::pin(serve_all(config, environment, shutdown))
}

async fn serve_all(
    config: Config,
    environment: Environment,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    // Containers' users must be able to pass through their directories, and nobody else may write to
    // files of ours; the umask of a shell or a unit may not ensure that.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let socket = config.socket.clone();
    let failed = |source| Error::File {
        path: socket.clone(),
        source,
    };
    if let Some(parent) = socket.parent() {
        run_files::create_directory(parent).map_err(failed)?;
    }
    let Assembly {
        host,
        recovery,
        streams,
        runtime_api,
        image_api,
    } = assemble(config, environment, shutdown.child_token())?;
    recovery.run().await?;
    let listener = sys::listen(&socket).map_err(failed)?;
    run_files::make_private(&socket).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let incoming = connections(UnixListener::from_std(listener).map_err(failed)?);
    let listener = streams.listen().await.map_err(failed)?;
    tokio::spawn(streams::serve(streams, listener, shutdown.child_token()));
    tracing::info!(socket = %socket.display(), "the container runtime listens");
    let served = tonic::transport::Server::builder()
        .layer(deadline::Deadlines)
        .add_service(RuntimeServiceServer::new(runtime_api))
        .add_service(ImageServiceServer::new(image_api))
        .serve_with_incoming_shutdown(incoming, shutdown.clone().cancelled_owned());
    let too_late = async {
        shutdown.cancelled().await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    let outcome = tokio::select! {
        biased;
        served = served => served.map_err(Error::Transport),
        // Every call can be repeated at the next server.
        () = too_late => Ok(()),
    };
    let _ = tokio::task::spawn_blocking(move || host.remove_empty_cgroups()).await;
    outcome
}
