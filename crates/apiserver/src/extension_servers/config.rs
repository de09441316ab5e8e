//! What an operator decides about aggregation.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::net::TcpStream;

/// How this server meets extension API servers, and who may speak for users to this one.
#[derive(Clone)]
pub struct AggregationConfig {
    /// Without it, requests are passed on without a client certificate, and no front proxy is
    /// believed here.
    pub front_proxy: Option<FrontProxy>,
    pub dialer: Arc<dyn DialServices>,
}

/// The certificate by which extension API servers recognize this server, and the authority behind
/// it. The same authority signs for front proxies before this server.
#[derive(Clone)]
pub struct FrontProxy {
    pub ca_pem: String,
    /// The common names that may say who the user is; none for all that the authority signed.
    pub allowed_names: Vec<String>,
    pub certificate_pem: String,
    pub key_pem: String,
}

/// Opens connections to the endpoints of Services: directly, or through a node's tunnel.
pub trait DialServices: Send + Sync {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>>;
}

/// Connects from this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectDialer;

impl DialServices for DirectDialer {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect(address))
    }
}

impl Default for AggregationConfig {
    fn default() -> AggregationConfig {
        AggregationConfig {
            front_proxy: None,
            dialer: Arc::new(DirectDialer),
        }
    }
}

/// How extension servers recognize front proxies and users.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// Signs the certificates of users.
    pub client_ca_pem: String,
    /// The authority of front proxies, and the names of those that may speak for users.
    pub front_proxy: Option<(String, Vec<String>)>,
}
