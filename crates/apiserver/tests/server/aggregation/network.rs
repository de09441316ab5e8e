//! Over real connections to the API server: upgrades, and front proxies before it.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::extension::{Extension, Loopback, ROOT, front_proxy};
use super::{API_SERVICE, available};
use crate::harness::{Authority, Cluster};

struct Served {
    cluster: Cluster,
    address: SocketAddr,
    users: Authority,
    proxies: Authority,
    loopback: Arc<Loopback>,
}

/// An API server that listens.
async fn serve() -> Served {
    let loopback = Arc::new(Loopback::default());
    let (proxies, config) = front_proxy(loopback.clone());
    let users = Authority::new();
    let (certificate, key) = users.issue("kube-apiserver", &[], true);
    let both = [&users.pem, &proxies.pem].map(|pem| pem.to_string());
    let issuing = Authority {
        pem: users.pem.clone(),
        issuer: Authority::new().issuer,
    };
    let cluster = Cluster::aggregating(issuing, config).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    for pem in both {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        roots.add(certificate).unwrap();
    }
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()
            .unwrap();
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let server = cluster.server.clone();
    tokio::spawn(async move {
        let served = server.serve(listener, Arc::new(tls), CancellationToken::new());
        served.await.unwrap();
    });
    Served {
        cluster,
        address,
        users,
        proxies,
        loopback,
    }
}

/// A connection that shows this certificate.
async fn connect(served: &Served, shown: (String, String)) -> TlsStream<TcpStream> {
    let (certificate, key) = shown;
    let mut roots = rustls::RootCertStore::empty();
    let trusted = CertificateDer::from_pem_slice(served.users.pem.as_bytes()).unwrap();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let stream = TcpStream::connect(served.address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, stream).await.unwrap()
}

/// Reads up to the end of `wanted`.
async fn read_to(stream: &mut TlsStream<TcpStream>, wanted: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(wanted.as_bytes()) {
        read.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(read).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_connection_carries_bytes_both_ways() {
    let served = serve().await;
    let admin = served.cluster.admin();
    let extension = Extension::start(&served.proxies, "api.wardle.svc").await;
    extension
        .register(&admin, &served.loopback, "10.9.0.1")
        .await;
    available(&admin, API_SERVICE, "True", "Passed").await;
    let shown = served.users.issue("root", &["system:masters"], false);
    let mut stream = connect(&served, shown).await;
    let request = format!(
        "POST {ROOT}/flunders/a/exec HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\n\
         upgrade: SPDY/3.1\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_to(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for text in ["hello", "again"] {
        stream.write_all(text.as_bytes()).await.unwrap();
        assert_eq!(read_to(&mut stream, text).await, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_front_proxy_may_say_who_the_user_is() {
    let served = serve().await;
    let ask = async |shown: (String, String)| {
        let mut stream = connect(&served, shown).await;
        let request = "GET /api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                       x-remote-user: alice\r\nx-remote-group: system:masters\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        read_to(&mut stream, "\r\n").await
    };
    let proxy = served.proxies.issue("front-proxy-client", &[], false);
    assert!(ask(proxy).await.starts_with("HTTP/1.1 200 "));
    let other = served.proxies.issue("other", &[], false);
    assert!(ask(other).await.starts_with("HTTP/1.1 401 "));
    let user = served.users.issue("front-proxy-client", &[], false);
    assert!(ask(user).await.starts_with("HTTP/1.1 403 "));
}
