//! A CRI client over a Unix socket. It connects on the first call and again after a broken
//! connection, so that a restarted runtime needs nothing from its callers but another try.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::Endpoint;
use tower::service_fn;

use crate::{
    calls::{Calls, Observer},
    deadline::{Deadlined, Limit},
    v1::{image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient},
};

/// Messages up to this size are accepted (upstream's limit).
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the endpoint for {socket} could not be built")]
    Endpoint {
        socket: PathBuf,
        #[source]
        source: tonic::transport::Error,
    },
}

/// How a call goes: within its time, and heard of.
pub type Calling = Deadlined<Calls>;

/// Both services of one runtime. Cheap to clone; each call takes `&mut`, so clone per task.
#[derive(Clone, Debug)]
pub struct Client {
    pub runtime: RuntimeServiceClient<Calling>,
    pub images: ImageServiceClient<Calling>,
    limit: Limit,
}

impl Client {
    /// A client of the runtime listening at `socket`. Does not wait for the runtime: the first
    /// call connects, and fails with `Unavailable` if no process listens.
    pub fn connect(socket: &Path) -> Result<Client, Error> {
        Client::new(socket, None)
    }

    /// The same, with an observer of every call.
    pub fn observed(socket: &Path, observer: Arc<dyn Observer>) -> Result<Client, Error> {
        Client::new(socket, Some(observer))
    }

    fn new(socket: &Path, observer: Option<Arc<dyn Observer>>) -> Result<Client, Error> {
        let path = socket.to_path_buf();
        let endpoint = Endpoint::try_from("http://runtime").map_err(|source| Error::Endpoint {
            socket: path.clone(),
            source,
        })?;
        let channel = endpoint.connect_with_connector_lazy(service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }));
        let limit = Limit::default();
        let channel = Deadlined::new(Calls::new(channel, observer), limit.clone());
        Ok(Client {
            limit,
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            images: ImageServiceClient::new(channel)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        })
    }

    /// How long an ordinary call may take, for this client and all its clones.
    pub fn set_deadline(&self, deadline: Duration) {
        self.limit.set(deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{v1, with_time};

    #[tokio::test]
    async fn a_runtime_that_hangs_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("cri.sock");
        // The kernel accepts connections, and no process ever reads from them.
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
        let client = Client::connect(&socket).expect("a client");
        client.set_deadline(Duration::from_millis(20));
        let mut runtime = client.runtime.clone();
        let answer = runtime.status(v1::StatusRequest::default()).await;
        let status = answer.expect_err("nobody answers");
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
        assert_eq!(status.message(), "context deadline exceeded");
        let stop = with_time(
            v1::StopContainerRequest::default(),
            Duration::from_millis(1),
        );
        let answer = runtime.stop_container(stop).await;
        let status = answer.expect_err("nobody answers");
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    }
}
