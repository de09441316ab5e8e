//! A client made from a kubeconfig speaks TLS with the server it trusts and shows its certificate.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).expect("a certificate");
        Authority {
            issuer: Issuer::new(parameters, key),
            certificate,
        }
    }

    /// Certificate and key in PEM.
    fn issue(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let parameters = CertificateParams::new(names).expect("parameters");
        let certificate = parameters.signed_by(&key, &self.issuer).expect("signed");
        (certificate.pem(), key.serialize_pem())
    }
}

/// Serves one ConfigMap to whoever shows a certificate of the authority; gives the port.
async fn serve(authority: &Authority) -> u16 {
    let (certificate, key) = authority.issue(&["127.0.0.1"]);
    let mut roots = RootCertStore::empty();
    roots
        .add(authority.certificate.der().clone())
        .expect("a root");
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
        .build()
        .expect("a verifier");
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
    let config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)
        .expect("a server configuration");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                    let name = request.uri().path().rsplit('/').next().unwrap_or_default();
                    let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
                    Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(body))))
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    port
}

fn kubeconfig(port: u16, server: &Authority, user: &Authority) -> tempfile::NamedTempFile {
    let encode = |pem: &str| BASE64_STANDARD.encode(pem);
    let (certificate, key) = user.issue(&["admin"]);
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters:\n- name: c\n  cluster:\n    server: https://127.0.0.1:{port}\n    certificate-authority-data: {}\n\
         contexts:\n- name: c\n  context: {{cluster: c, user: u}}\n\
         users:\n- name: u\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n",
        encode(&server.certificate.pem()),
        encode(&certificate),
        encode(&key),
    );
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    file
}

async fn get(file: &tempfile::NamedTempFile) -> kube::Result<ConfigMap> {
    let client = client::connect::from_kubeconfig(file.path()).await;
    let client = client.expect("a client");
    Api::<ConfigMap>::default_namespaced(client)
        .get("hello")
        .await
}

#[tokio::test]
async fn a_client_trusts_only_the_certificate_authority_of_its_kubeconfig() {
    client::connect::install_crypto_provider();
    let (ours, foreign) = (Authority::new(), Authority::new());
    let port = serve(&ours).await;
    let map = get(&kubeconfig(port, &ours, &ours))
        .await
        .expect("an object");
    assert_eq!(map.metadata.name.as_deref(), Some("hello"));
    let wrong_server = get(&kubeconfig(port, &foreign, &ours)).await;
    assert!(wrong_server.is_err_and(|error| client::retry::is_transient(&error)));
    let wrong_user = get(&kubeconfig(port, &ours, &foreign)).await;
    assert!(wrong_user.is_err());
    let missing = client::connect::from_kubeconfig("/nonexistent/kubeconfig").await;
    assert!(matches!(
        missing,
        Err(client::connect::Error::Kubeconfig(_))
    ));
}
