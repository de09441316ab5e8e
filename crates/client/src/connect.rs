//! Makes a `kube::Client`: over the network from a kubeconfig, or over an in-process service.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Request, Response, header};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use rustls::client::ResolvesClientCert;
use tower::{BoxError, Layer, Service, ServiceExt, util::option_layer};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection without traffic gets a keep-alive probe after this time, ...
const KEEPALIVE: Duration = Duration::from_secs(30);
/// ... and ends after this number of probes without an answer: after a minute.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// The limit for the headers of a response, including the handshake. The API server ends requests
/// after 60 s, and watches and streams respond at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(75);
/// Less than the server's 90 s, so that no request is sent on a connection that is being closed.
const IDLE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the kubeconfig is not usable")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: kube::config::KubeconfigError,
    },
    #[error("no configuration was found in {}", shown(.0))]
    Empty(Vec<PathBuf>),
    #[error("cannot create a client from the kubeconfig")]
    Client(#[from] kube::Error),
}

fn shown(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    paths.join(", ")
}

/// A client for the current context of the kubeconfig at `path`. Must run inside tokio.
pub async fn from_kubeconfig(path: impl AsRef<Path>) -> Result<kube::Client, Error> {
    from_kubeconfig_as(path, "coracle").await
}

/// Like [`from_kubeconfig`], with the name of a component. It becomes the field manager of the fields
/// that the component writes.
pub async fn from_kubeconfig_as(
    path: impl AsRef<Path>,
    component: &'static str,
) -> Result<kube::Client, Error> {
    from_config(configuration(path, component).await?)
}

/// The configuration in the current context of a kubeconfig, for a component of that name.
pub async fn configuration(
    path: impl AsRef<Path>,
    component: &'static str,
) -> Result<Config, Error> {
    settle(Kubeconfig::read_from(path)?, component).await
}

/// Like [`configuration`], for several files as kubectl reads `KUBECONFIG`: missing and empty files
/// are ignored, and the first file wins where several have the same entry.
pub async fn merged_configuration(
    paths: &[PathBuf],
    component: &'static str,
) -> Result<Config, Error> {
    let mut merged = Kubeconfig::default();
    for path in paths {
        let is_empty = match tokio::fs::read(path).await {
            Ok(bytes) => bytes.iter().all(u8::is_ascii_whitespace),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        if is_empty {
            continue;
        }
        let mut next = Kubeconfig::read_from(path).map_err(|source| Error::File {
            path: path.clone(),
            source,
        })?;
        // kubectl writes an unset context like this.
        next.current_context = next.current_context.filter(|name| !name.is_empty());
        merged = merged.merge(next)?;
    }
    if merged.contexts.is_empty() && merged.clusters.is_empty() {
        return Err(Error::Empty(paths.to_vec()));
    }
    settle(merged, component).await
}

async fn settle(kubeconfig: Kubeconfig, component: &'static str) -> Result<Config, Error> {
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
    let tls = config.rustls_https_connector_with_connector(tcp())?;
    over(config, tls)
}

/// Like [`from_config`], with a client certificate that can be replaced: every new connection asks
/// for the current one.
pub fn from_config_showing(
    config: Config,
    certificate: Arc<dyn ResolvesClientCert>,
) -> Result<kube::Client, Error> {
    install_crypto_provider();
    let mut tls = config.rustls_client_config()?;
    tls.client_auth_cert_resolver = certificate;
    let tls = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp());
    over(config, tls)
}

fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    connector
}

fn over(config: Config, connector: HttpsConnector<HttpConnector>) -> Result<kube::Client, Error> {
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

/// A client whose requests go to `service`, such as an API server in this process.
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

/// Makes ring the process's TLS provider unless there is one already.
pub fn install_crypto_provider() {
    // The only error is that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
