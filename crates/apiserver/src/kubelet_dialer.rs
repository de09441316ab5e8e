//! Connections to kubelets that show who we are.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::{Error, KubeletClient};

/// For the connection and its TLS handshake.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// A kubelet begins its answer this soon.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens connections to kubelets.
pub(crate) struct KubeletDialer {
    connector: tokio_rustls::TlsConnector,
}

impl KubeletDialer {
    pub fn new(client: &KubeletClient) -> Result<KubeletDialer, Error> {
        let wrong = |problem: String| Error::Configuration(format!("kubelet client: {problem}"));
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(client.ca_pem.as_bytes()) {
            let certificate = certificate.map_err(|problem| wrong(problem.to_string()))?;
            roots
                .add(certificate)
                .map_err(|problem| wrong(problem.to_string()))?;
        }
        let chain = CertificateDer::pem_slice_iter(client.certificate_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|problem| wrong(problem.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(client.key_pem.as_bytes())
            .map_err(|problem| wrong(problem.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder
                    .with_root_certificates(roots)
                    .with_client_auth_cert(chain, key)
            })
            .map_err(|problem| wrong(problem.to_string()))?;
        Ok(KubeletDialer {
            connector: tokio_rustls::TlsConnector::from(Arc::new(config)),
        })
    }

    /// A connection that has shown who we are.
    pub async fn connect(
        &self,
        address: IpAddr,
        port: u16,
    ) -> Result<TlsStream<TcpStream>, std::io::Error> {
        let dialling = async {
            let stream = TcpStream::connect((address, port)).await?;
            let _ = stream.set_nodelay(true);
            let name = ServerName::IpAddress(address.into());
            self.connector.connect(name, stream).await
        };
        tokio::time::timeout(DIAL_TIMEOUT, dialling).await?
    }

    pub async fn get(
        &self,
        address: IpAddr,
        port: u16,
        path: &str,
    ) -> Result<Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
        let stream = self.connect(address, port).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::get(path)
            .header("host", format!("{address}:{port}"))
            .body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request);
        Ok(tokio::time::timeout(ANSWER_TIMEOUT, answer).await??)
    }
}
