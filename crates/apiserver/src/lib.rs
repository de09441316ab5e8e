//! The API server: filter chain → generic verb handlers → admission → registry → store and watch
//! cache. One path for all kinds; what is truly a kind's own lives in `api::strategy`.
//!
//! It does not know what a scheduler, a controller or a kubelet is: they are identities that ask.

mod body;
mod identity;
mod in_process;

use std::net::SocketAddr;
use std::sync::Arc;

use environment::Environment;
use store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use body::Body;
pub use identity::Identity;
pub use in_process::InProcess;

/// What the server needs to know and is given.
pub struct Config {
    pub store: Arc<dyn Store>,
    pub environment: Environment,
    pub timelines: trace::Timelines,
    /// Client certificates signed by these are believed.
    pub client_ca_pem: String,
    /// PKCS#8 ECDSA P-256; signs and verifies ServiceAccount tokens.
    pub service_account_key_pem: String,
    /// The `iss` of ServiceAccount tokens, and their default audience.
    pub issuer: String,
    /// The CIDR ClusterIPs come from.
    pub service_range: String,
    pub dns_service_ip: String,
    /// Where the `kubernetes` Service leads.
    pub advertise: SocketAddr,
    /// How to reach kubelets for logs; without it, pod logs answer 503.
    pub kubelet_client: Option<KubeletClient>,
    pub cluster_domain: String,
}

/// The certificate the API server shows to kubelets, and the authority that signed theirs.
#[derive(Clone)]
pub struct KubeletClient {
    pub ca_pem: String,
    pub certificate_pem: String,
    pub key_pem: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the store failed")]
    Store(#[from] store::Error),
    #[error("configuration: {0}")]
    Configuration(String),
    #[error("listening")]
    Listen(#[source] std::io::Error),
    #[error("setting up the cluster's first objects: {0}")]
    Bootstrap(#[source] api::Status),
}

/// A running API server. Cheap to clone.
#[derive(Clone)]
pub struct ApiServer {}

impl ApiServer {
    /// Fills the caches from the store and makes the cluster's first objects where they lack.
    pub async fn start(_config: Config) -> Result<ApiServer, Error> {
        Ok(ApiServer {})
    }

    /// Serves HTTPS until `shutdown`, then lets requests in flight end.
    pub async fn serve(
        &self,
        _listener: TcpListener,
        _tls: Arc<rustls::ServerConfig>,
        _shutdown: CancellationToken,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// A transport for a component of this process that acts as `identity`. Its requests pass the
    /// same authorization and admission as those from the network.
    pub fn in_process(&self, identity: Identity) -> InProcess {
        InProcess::new(self.clone(), identity)
    }

    pub(crate) async fn handle(
        &self,
        _request: http::Request<body::RequestBody>,
        _identity: Identity,
    ) -> http::Response<Body> {
        http::Response::new(Body::empty())
    }
}
