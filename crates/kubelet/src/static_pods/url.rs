//! Static pods that a web server has (`staticPodURL`): fetched as they are, checked as those in
//! files are.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;

use super::manifest;
use crate::configuration::Configuration;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Upstream's limit of an answer.
const LONGEST: usize = 10 << 20;
/// The files in which distributions keep trusted certificates; the first that exists counts.
const TRUSTED: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{url} is not the address of a web server")]
    Address { url: String },
    #[error("{url}: {reason}")]
    Failed { url: String, reason: String },
    #[error("{url}: {status}")]
    Status { url: String, status: StatusCode },
    #[error("zero-length data received from {url}")]
    Nothing { url: String },
    #[error("{url}")]
    Content {
        url: String,
        source: manifest::Error,
    },
}

pub struct Source {
    url: String,
    headers: HeaderMap,
}

impl Source {
    pub fn new(configuration: &Configuration) -> Option<Source> {
        let url = configuration.static_pod_url.clone();
        let mut headers = HeaderMap::new();
        for (name, values) in &configuration.static_pod_url_header {
            for value in values {
                let name = HeaderName::try_from(name.as_str());
                if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value.as_str())) {
                    headers.append(name, value);
                }
            }
        }
        (!url.is_empty()).then_some(Source { url, headers })
    }

    pub async fn fetch(&self, node_name: &str) -> Result<Vec<Pod>, Error> {
        let (status, bytes) = match tokio::time::timeout(TIMEOUT, self.get()).await {
            Ok(answer) => answer?,
            Err(_) => return Err(self.failed("it did not answer in time")),
        };
        let url = self.url.clone();
        if status != StatusCode::OK {
            return Err(Error::Status { url, status });
        }
        if bytes.is_empty() {
            return Err(Error::Nothing { url });
        }
        manifest::of_url(&bytes, &self.url, node_name)
            .map_err(|source| Error::Content { url, source })
    }

    async fn get(&self) -> Result<(StatusCode, Bytes), Error> {
        let wrong = || Error::Address {
            url: self.url.clone(),
        };
        let uri: Uri = self.url.parse().map_err(|_| wrong())?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        let port = authority
            .port_u16()
            .unwrap_or(if secure { 443 } else { 80 });
        let host = authority.host().trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, port))
            .await
            .map_err(|error| self.failed(error))?;
        let mut request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
            .header("Host", authority.as_str())
            .header("Connection", "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| self.failed(error))?;
        request.headers_mut().extend(self.headers.clone());
        if !secure {
            return self.send(TokioIo::new(stream), request).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
        let stream = tokio_rustls::TlsConnector::from(trusting())
            .connect(name, stream)
            .await
            .map_err(|error| self.failed(error))?;
        self.send(TokioIo::new(stream), request).await
    }

    async fn send<T>(
        &self,
        stream: T,
        request: Request<Empty<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Error>
    where
        T: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
            .await
            .map_err(|error| self.failed(error))?;
        let exchange = async {
            let response = sender.send_request(request).await;
            let response = response.map_err(|error| self.failed(error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LONGEST).collect().await;
            let body = body.map_err(|error| self.failed(error))?;
            Ok((status, body.to_bytes()))
        };
        // The connection lives while the exchange does.
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            _ = connection => exchange.await,
        }
    }

    fn failed(&self, reason: impl ToString) -> Error {
        Error::Failed {
            url: self.url.clone(),
            reason: reason.to_string(),
        }
    }
}

/// A verifier with the certificates that this machine trusts.
fn trusting() -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    let bundle = TRUSTED.iter().find(|path| Path::new(path).exists());
    let found = bundle.map(CertificateDer::pem_file_iter);
    for certificate in found.into_iter().flatten().flatten().flatten() {
        // One that this library does not understand is not trusted.
        let _ = roots.add(certificate);
    }
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Answers one request; returns the request.
    async fn serve(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let url = format!("http://{}/pods", listener.local_addr().expect("an address"));
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).await.expect("a byte");
                request.push(byte[0]);
            }
            stream.write_all(answer.as_bytes()).await.expect("sent");
            String::from_utf8_lossy(&request).into_owned()
        });
        (url, served)
    }

    fn source(url: &str) -> Source {
        Source::new(&Configuration {
            static_pod_url: url.to_owned(),
            static_pod_url_header: [("X-Who".to_owned(), vec!["me".to_owned()])].into(),
            ..Configuration::default()
        })
        .expect("a source")
    }

    #[tokio::test]
    async fn pods_are_fetched_from_the_url_and_failures_are_errors() {
        let (url, served) = serve(
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}, \"spec\": {\"containers\": [{\"name\": \"c\", \"image\": \"a:1\"}]}}",
        )
        .await;
        let pods = source(&url).fetch("n1").await.expect("pods");
        assert_eq!(pods[0].metadata.name.as_deref(), Some("a-n1"));
        let request = served.await.expect("served");
        assert!(request.starts_with("GET /pods HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("x-who: me\r\n"), "{request}");

        let (url, _served) = serve("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
        let error = source(&url).fetch("n1").await.expect_err("not found");
        assert_eq!(error.to_string(), format!("{url}: 404 Not Found"));
        let (url, _served) = serve("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        let error = source(&url).fetch("n1").await.expect_err("empty");
        assert_eq!(
            error.to_string(),
            format!("zero-length data received from {url}")
        );
        assert!(source("ftp://x").fetch("n1").await.is_err());
    }
}
