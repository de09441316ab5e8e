//! Makes a `kube::Client`: over the network from a kubeconfig, or over an in-process service.

use std::{path::Path, time::Duration};

use http::{HeaderValue, Request, Response, header};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use tower::{BoxError, Layer, Service, ServiceExt, util::option_layer};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A silent peer is asked after this time whether it is still there ...
const KEEPALIVE: Duration = Duration::from_secs(30);
/// ... again and again, and given up when it has not answered so often: after a minute.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// An answer begins before this: the API server ends what takes longer than 60 s, and watches and
/// streams begin at once. The handshake is part of it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(75);
/// Less than the server's own 90 s, so that no request meets a connection that is being closed.
const IDLE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the kubeconfig could not be used")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("the client could not be set up")]
    Client(#[from] kube::Error),
}

/// A client for the current context of the kubeconfig at `path`. Must run inside tokio.
pub async fn from_kubeconfig(path: impl AsRef<Path>) -> Result<kube::Client, Error> {
    from_kubeconfig_as(path, "coracle").await
}

/// As [`from_kubeconfig`], under the name of a component: servers tell by it who owns the fields
/// that it writes.
pub async fn from_kubeconfig_as(
    path: impl AsRef<Path>,
    component: &'static str,
) -> Result<kube::Client, Error> {
    from_config(configuration(path, component).await?)
}

/// What the current context of a kubeconfig says, for a component of that name.
pub async fn configuration(
    path: impl AsRef<Path>,
    component: &'static str,
) -> Result<Config, Error> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    let agent = HeaderValue::from_static(component);
    config.headers.push((header::USER_AGENT, agent));
    Ok(config)
}

/// A client over HTTPS. Unlike kube's own stack it sends small packets at once (TCP_NODELAY): a
/// request must not wait for the acknowledgement of the one before. Proxies are not used.
pub fn from_config(config: Config) -> Result<kube::Client, Error> {
    install_crypto_provider();
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let service = HttpClient::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .build::<_, Body>(connector)
        .map_future(|answer| async move {
            match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
                Ok(answer) => answer.map_err(BoxError::from),
                Err(_) => Err("the server did not answer in time".into()),
            }
        });
    let service = option_layer(config.auth_layer()?)
        .layer(service)
        .map_err(BoxError::from);
    let service = config.extra_headers_layer()?.layer(service);
    let service = config.base_uri_layer().layer(service);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

/// A client whose requests go to `service`, e.g. an API server in this process.
pub fn from_service<S, B>(service: S) -> kube::Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: hyper::body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    kube::Client::new(service, "default")
}

/// Makes ring the process's TLS provider unless one is chosen already.
pub fn install_crypto_provider() {
    // An error only says that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
