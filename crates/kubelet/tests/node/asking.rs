//! What the kubelet's own server answers, asked as an administrator.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{Certificate, CertificateParams, DnType, Issuer, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The cluster's authority.
pub struct Authority {
    pub certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Authority {
        let key = new_key();
        let mut parameters = CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Authority {
            certificate: parameters.self_signed(&key).expect("a certificate"),
            issuer: Issuer::new(parameters, key),
        }
    }

    /// A certificate for somebody, or for a host of that name.
    pub fn issue(
        &self,
        name: &str,
        group: &str,
    ) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = new_key();
        let names = vec![name.to_owned()];
        let mut parameters = CertificateParams::new(names).expect("parameters");
        let subject = &mut parameters.distinguished_name;
        subject.push(DnType::CommonName, name);
        subject.push(DnType::OrganizationName, group);
        let certificate = parameters.signed_by(&key, &self.issuer);
        let chain = vec![certificate.expect("a certificate").der().clone()];
        (chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }

    pub fn roots(&self) -> rustls::RootCertStore {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("a root");
        roots
    }
}

pub fn new_key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key")
}

/// A client with a certificate of the cluster's authority.
pub struct Administrator {
    tls: Arc<rustls::ClientConfig>,
    no_certificate: rustls::ClientConfig,
}

impl Administrator {
    pub fn new(authority: &Authority) -> Administrator {
        let (chain, key) = authority.issue("admin", "system:masters");
        let tls = rustls::ClientConfig::builder()
            .with_root_certificates(authority.roots())
            .with_client_auth_cert(chain, key)
            .expect("a TLS configuration");
        Administrator {
            tls: Arc::new(tls),
            no_certificate: rustls::ClientConfig::builder()
                .with_root_certificates(authority.roots())
                .with_no_client_auth(),
        }
    }

    /// The status code, the content length and the body of the answer, in one of the two protocols.
    pub async fn ask(
        &self,
        port: u16,
        protocol: &str,
        (method, path): (http::Method, &str),
        token: Option<&str>,
    ) -> (u16, Option<String>, String) {
        let mut tls = (*self.tls).clone();
        tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        if token.is_some() {
            // Who shows a certificate is known by it.
            tls.client_auth_cert_resolver = self.no_certificate.client_auth_cert_resolver.clone();
        }
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
        let name = ServerName::try_from("localhost").expect("a name");
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
        let stream = connector.connect(name, stream.expect("a connection")).await;
        let io = TokioIo::new(stream.expect("a handshake"));
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .header("host", "localhost");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new()).expect("a request");
        let answer = if protocol == "h2" {
            let client = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
            let (mut sender, connection) = client.await.expect("a connection");
            tokio::spawn(connection);
            sender.send_request(request).await
        } else {
            let client = hyper::client::conn::http1::handshake(io);
            let (mut sender, connection) = client.await.expect("a connection");
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        let answer = answer.unwrap_or_else(|error| panic!("{protocol} {path}: {error}"));
        let code = answer.status().as_u16();
        let length = answer.headers().get("content-length");
        let length = length.map(|length| length.to_str().expect("a number").to_owned());
        let body = answer.into_body().collect().await;
        let body = body.unwrap_or_else(|error| panic!("{protocol} {path}: {error}"));
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        (code, length, body)
    }

    /// The body of the answer, which must be a good one.
    pub async fn get(&self, port: u16, path: &str) -> String {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
        let name = ServerName::try_from("localhost").expect("a name");
        let connector = tokio_rustls::TlsConnector::from(self.tls.clone());
        let stream = connector.connect(name, stream.expect("a connection")).await;
        let mut stream = stream.expect("a handshake");
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("asked");
        let mut bytes = Vec::new();
        // The other side may close the connection without a TLS notice.
        let _ = stream.read_to_end(&mut bytes).await;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(" 200 "), "{text}");
        body.to_owned()
    }
}

/// The value of a line of `/metrics`.
pub fn value(page: &str, series: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(series))?;
    line.trim().parse().ok()
}
