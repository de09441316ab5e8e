//! What the kubelet's own server answers, asked as an administrator.

use std::sync::Arc;

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
}

impl Administrator {
    pub fn new(authority: &Authority) -> Administrator {
        let (chain, key) = authority.issue("admin", "system:masters");
        let tls = rustls::ClientConfig::builder()
            .with_root_certificates(authority.roots())
            .with_client_auth_cert(chain, key)
            .expect("a TLS configuration");
        Administrator { tls: Arc::new(tls) }
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
        // The other side may close without a word of farewell.
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
