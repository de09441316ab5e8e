//! Connections over real TLS: HEAD in both protocols, and many peers that only sit there.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use environment::Environment;
use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::harness::{Authority, Cluster};
use crate::tls::server_config;

struct Listening {
    cluster: Cluster,
    address: SocketAddr,
    ca: String,
    administrator: (String, String),
    _shutdown: tokio_util::sync::DropGuard,
}

async fn listen() -> Listening {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("kube-apiserver", &[], true);
    let administrator = authority.issue("admin", &["system:masters"], false);
    let ca = authority.pem.clone();
    let cluster = Cluster::with(authority, Environment::system()).await;
    cluster.namespace("default").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let config = server_config(&ca, &certificate, &key);
    let (server, stop) = (cluster.server.clone(), shutdown.clone());
    tokio::spawn(async move { server.serve(listener, config, stop).await });
    Listening {
        cluster,
        address,
        ca,
        administrator,
        _shutdown: shutdown.drop_guard(),
    }
}

impl Listening {
    async fn connect(&self, protocol: &str, as_administrator: bool) -> TlsStream<TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.ca.as_bytes()).unwrap();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let (certificate, key) = &self.administrator;
        let mut config = match as_administrator {
            true => config
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap(),
            false => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.unwrap()
    }

    /// Code, told length and body of the answer.
    async fn ask(
        &self,
        stream: TlsStream<TcpStream>,
        protocol: &str,
        (method, path): (Method, &str),
        token: Option<&str>,
    ) -> (u16, Option<String>, Bytes) {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .header("host", "localhost");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let io = TokioIo::new(stream);
        let response = if protocol == "h2" {
            let client = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
            let (mut sender, connection) = client.await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        let response = response.unwrap_or_else(|problem| panic!("{protocol} {path}: {problem}"));
        let code = response.status().as_u16();
        let length = response.headers().get("content-length");
        let length = length.map(|length| length.to_str().unwrap().to_string());
        let body = response.into_body().collect().await;
        let body = body.unwrap_or_else(|problem| panic!("{protocol} {path}: {problem}"));
        (code, length, body.to_bytes())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_is_answered_as_upstream_does_in_both_protocols() {
    let listening = listen().await;
    let config_map = api::document!({"metadata": {"name": "c"}});
    let admin = listening.cluster.admin();
    let path = "/api/v1/namespaces/default/configmaps";
    admin.post(path, &config_map).await.expect(201);
    for protocol in ["h2", "http/1.1"] {
        for (path, code) in [
            ("/readyz", 200),
            ("/livez/ping", 200),
            ("/healthz", 200),
            ("/metrics", 200),
            ("/openapi/v2", 200),
            ("/openapi/v3", 200),
            ("/openapi/v3/api/v1", 200),
            ("/apis", 200),
            ("/apis/apps", 200),
            ("/", 200),
            ("/nowhere", 404),
            ("/api/v1/nowheres", 404),
            ("/apis/nowhere/v1", 404),
            ("/version", 405),
            ("/openid/v1/jwks", 405),
            ("/.well-known/openid-configuration", 405),
            ("/api", 405),
            ("/api/v1", 405),
            ("/apis/apps/v1", 405),
            ("/api/v1/pods", 405),
            ("/api/v1/pods?watch=true", 405),
            ("/api/v1/namespaces/default/configmaps/c", 405),
            ("/api/v1/namespaces/default/pods/p/log?follow=true", 405),
            ("/api/v1/namespaces/default/pods/p/exec", 405),
            ("/api/v1/namespaces/default/pods/p/proxy/", 404),
            ("/api/v1/nodes/n/proxy/healthz", 404),
        ] {
            let stream = listening.connect(protocol, true).await;
            let answer = listening.ask(stream, protocol, (Method::HEAD, path), None);
            let (answered, length, body) = answer.await;
            assert_eq!(answered, code, "{protocol} {path}");
            assert!(body.is_empty(), "{protocol} {path}");
            assert!(
                length.is_some_and(|length| length != "0"),
                "{protocol} {path}"
            );
        }
        // The verb of a path that is no resource is "head", which nobody else is allowed.
        let stream = listening.connect(protocol, false).await;
        let answer = listening.ask(stream, protocol, (Method::HEAD, "/readyz"), None);
        assert_eq!(answer.await.0, 403);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthenticated_connections_are_bounded_and_the_oldest_is_closed() {
    let listening = listen().await;
    let mut user = listening.connect("http/1.1", true).await;
    let mut strangers = Vec::new();
    for _ in 0..300 {
        strangers.push(listening.connect("http/1.1", false).await);
    }
    // One more than is allowed closes the first; these are closed for certain.
    for stranger in &mut strangers[..40] {
        let patience = std::time::Duration::from_secs(60);
        let closed = tokio::time::timeout(patience, stranger.read(&mut [0])).await;
        let closed = closed.expect("the oldest are closed, and not for their silence alone");
        assert!(closed.is_err() || closed.is_ok_and(|length| length == 0));
    }
    let issued = listening.cluster.admin();
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let issued = issued.post(path, &api::Value::object()).await.expect(201);
    let token = issued.str_at(&["status", "token"]).to_string();
    let stream = listening.connect("http/1.1", false).await;
    let path = (Method::GET, "/apis");
    let (code, ..) = listening.ask(stream, "http/1.1", path, Some(&token)).await;
    assert_eq!(code, 200);
    // Who has shown a certificate is no stranger.
    let waited = tokio::time::timeout(std::time::Duration::ZERO, user.read(&mut [0])).await;
    assert!(waited.is_err(), "still open");
    let metrics = listening
        .ask(user, "http/1.1", (Method::GET, "/metrics"), None)
        .await;
    let metrics = String::from_utf8(metrics.2.to_vec()).unwrap();
    let value = |series: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("{series} in {metrics}"))
            .trim()
            .parse::<u64>()
            .unwrap()
    };
    assert!(value("coracle_apiserver_connections{authenticated=\"false\"}") <= 256);
    assert!(value("coracle_apiserver_connections{authenticated=\"true\"}") >= 1);
    assert!(value("coracle_apiserver_connections_closed_total{reason=\"evicted\"}") >= 45);
}
