//! A CRI client over a Unix socket. It connects on the first call and again after a broken
//! connection, so that a restarted runtime needs nothing from its callers but another try.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::Endpoint;
use tower::service_fn;

use crate::{
    calls::{Calls, Observer},
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

/// Both services of one runtime. Cheap to clone; each call takes `&mut`, so clone per task.
#[derive(Clone, Debug)]
pub struct Client {
    pub runtime: RuntimeServiceClient<Calls>,
    pub images: ImageServiceClient<Calls>,
}

impl Client {
    /// A client of the runtime listening at `socket`. Does not wait for the runtime: the first
    /// call connects, and fails with `Unavailable` if nobody listens.
    pub fn connect(socket: &Path) -> Result<Client, Error> {
        Client::new(socket, None)
    }

    /// The same, with somebody who hears of every call.
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
        let channel = Calls::new(channel, observer);
        Ok(Client {
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            images: ImageServiceClient::new(channel)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        })
    }
}
