//! Channels to etcd's members: one per endpoint, connecting when first used and again when broken.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::transport::{Channel, Endpoint, Uri};

use super::Tls;
use crate::Error;

const CONNECT: Duration = Duration::from_secs(2);
/// A silent connection is asked for a sign of life this often (etcd allows no less than 5 s) and
/// given up when none comes.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(5);

/// `endpoint` is `http://host:port` or `https://host:port`; without a scheme, TLS decides.
pub fn channel(endpoint: &str, tls: Option<&Tls>) -> Result<Channel, Error> {
    let wrong = |why: &str| Error::Refused(format!("etcd endpoint {endpoint:?}: {why}"));
    let uri: Uri = match (endpoint.contains("://"), tls) {
        (true, _) => endpoint.parse(),
        (false, Some(_)) => format!("https://{endpoint}").parse(),
        (false, None) => format!("http://{endpoint}").parse(),
    }
    .map_err(|_| wrong("not a URL"))?;
    let host = uri.host().ok_or_else(|| wrong("no host"))?;
    let host = host.trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(2379);
    let secure = match (uri.scheme_str(), tls) {
        (Some("http"), _) => None,
        (Some("https"), Some(tls)) => {
            let name = ServerName::try_from(host.clone()).map_err(|_| wrong("no host"))?;
            Some((connector(tls)?, name))
        }
        (Some("https"), None) => return Err(wrong("https needs a certificate authority")),
        _ => return Err(wrong("neither http nor https")),
    };
    // The connector below adds TLS itself: tonic sees a plain address and the true origin.
    let plain = Uri::builder()
        .scheme("http")
        .authority(uri.authority().map_or("", |authority| authority.as_str()))
        .path_and_query("/")
        .build()
        .map_err(|_| wrong("not a URL"))?;
    let connector = tower::service_fn(move |_: Uri| {
        let (host, secure) = (host.clone(), secure.clone());
        async move {
            match tokio::time::timeout(CONNECT, dial(&host, port, secure)).await {
                Ok(result) => result,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        }
    });
    Ok(Endpoint::from(plain)
        .origin(uri)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_ANSWER)
        .keep_alive_while_idle(true)
        .connect_with_connector_lazy(connector))
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn dial(
    host: &str,
    port: u16,
    secure: Option<(TlsConnector, ServerName<'static>)>,
) -> io::Result<TokioIo<Box<dyn Stream>>> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let stream: Box<dyn Stream> = match secure {
        None => Box::new(stream),
        Some((connector, name)) => Box::new(connector.connect(name, stream).await?),
    };
    Ok(TokioIo::new(stream))
}

fn connector(tls: &Tls) -> Result<TlsConnector, Error> {
    let wrong = |what: &str, problem: String| Error::Refused(format!("etcd {what}: {problem}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(tls.authority_pem.as_bytes()) {
        certificate
            .map_err(|problem| problem.to_string())
            .and_then(|der| roots.add(der).map_err(|problem| problem.to_string()))
            .map_err(|problem| wrong("certificate authority", problem))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|problem| wrong("TLS", problem.to_string()))?
        .with_root_certificates(roots);
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain: Vec<_> = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
                .collect::<Result<_, _>>()
                .map_err(|problem| wrong("client certificate", problem.to_string()))?;
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
                .map_err(|problem| wrong("client key", problem.to_string()))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|problem| wrong("client certificate", problem.to_string()))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
