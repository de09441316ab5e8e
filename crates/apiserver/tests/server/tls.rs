//! Over real TLS: client certificates, tokens, anonymous callers, and stock kubectl.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use environment::Environment;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::harness::{Authority, Cluster};

pub fn server_config(ca: &str, certificate: &str, key: &str) -> Arc<rustls::ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap())
        .unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

struct Kubectl<'a> {
    directory: &'a Path,
    arguments: Vec<String>,
}

impl Kubectl<'_> {
    /// Output and success of one run.
    async fn run(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new("kubectl");
        command
            .env("HOME", self.directory)
            .env_remove("KUBECONFIG")
            .current_dir(self.directory)
            .args(&self.arguments)
            .args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output())
            .await
            .unwrap()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    async fn expect(&self, arguments: &[&str]) -> String {
        let (success, text) = self.run(arguments).await;
        assert!(success, "kubectl {}: {text}", arguments.join(" "));
        text
    }
}

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: nginx, ports: [{containerPort: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  containers: [{name: main, image: busybox, command: [sleep, "1"]}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_works() {
    let authority = Authority::new();
    let (server_certificate, server_key) = authority.issue("kube-apiserver", &[], true);
    let (certificate, key) = authority.issue("admin", &["system:masters"], false);
    let (jane_certificate, jane_key) = authority.issue("jane", &[], false);
    let ca = authority.pem.clone();
    let cluster = Cluster::with(authority, Environment::system()).await;
    cluster.namespace("default").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let config = server_config(&ca, &server_certificate, &server_key);
    let server = cluster.server.clone();
    let stop = shutdown.clone();
    let serving = tokio::spawn(async move { server.serve(listener, config, stop).await });

    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    for (name, content) in [
        ("ca.crt", &ca),
        ("admin.crt", &certificate),
        ("admin.key", &key),
        ("jane.crt", &jane_certificate),
        ("jane.key", &jane_key),
        ("all.yaml", &MANIFEST.to_string()),
    ] {
        std::fs::write(path(name), content).unwrap();
    }
    let base = vec![
        format!("--server=https://{address}"),
        format!("--certificate-authority={}", path("ca.crt")),
    ];
    let as_user = |name: &str| Kubectl {
        directory: directory.path(),
        arguments: [
            base.clone(),
            vec![
                format!("--client-certificate={}", path(&format!("{name}.crt"))),
                format!("--client-key={}", path(&format!("{name}.key"))),
            ],
        ]
        .concat(),
    };
    let kubectl = as_user("admin");
    let resources = kubectl.expect(&["api-resources"]).await;
    assert!(
        resources.contains("deployments") && resources.contains("configmaps"),
        "{resources}"
    );
    kubectl.expect(&["apply", "-f", "all.yaml"]).await;
    let again = kubectl.expect(&["apply", "-f", "all.yaml"]).await;
    assert!(again.contains("deployment.apps/web unchanged"), "{again}");
    let pods = kubectl.expect(&["get", "pods", "-o", "wide"]).await;
    assert!(
        pods.contains("NAME") && pods.contains("one") && pods.contains("Pending"),
        "{pods}"
    );
    let described = kubectl.expect(&["describe", "deployment", "web"]).await;
    assert!(described.contains("StrategyType:"), "{described}");
    kubectl.expect(&["describe", "pod", "one"]).await;
    kubectl
        .expect(&[
            "patch",
            "deployment",
            "web",
            "-p",
            r#"{"spec":{"replicas":3}}"#,
        ])
        .await;
    kubectl
        .expect(&["scale", "deployment", "web", "--replicas=4"])
        .await;
    let replicas = kubectl
        .expect(&[
            "get",
            "deployment",
            "web",
            "-o",
            "jsonpath={.spec.replicas}",
        ])
        .await;
    assert_eq!(replicas, "4");
    kubectl.expect(&["label", "pod", "one", "tier=front"]).await;
    let wait = kubectl
        .expect(&[
            "wait",
            "pod/one",
            "--for=jsonpath={.metadata.labels.tier}=front",
            "--timeout=120s",
        ])
        .await;
    assert!(wait.contains("condition met"), "{wait}");
    let explained = kubectl.expect(&["explain", "pod.spec.containers"]).await;
    assert!(explained.contains("FIELDS"), "{explained}");
    let whoami = kubectl.expect(&["auth", "whoami"]).await;
    assert!(whoami.contains("admin"), "{whoami}");
    let may = kubectl.expect(&["auth", "can-i", "delete", "nodes"]).await;
    assert!(may.contains("yes"), "{may}");
    let token = kubectl.expect(&["create", "token", "default"]).await;
    assert_eq!(token.trim().split('.').count(), 3);
    kubectl
        .expect(&["create", "configmap", "c", "--from-literal=a=b"])
        .await;
    kubectl
        .expect(&["delete", "pod", "one", "--timeout=120s"])
        .await;
    kubectl
        .expect(&[
            "delete",
            "-f",
            "all.yaml",
            "--ignore-not-found",
            "--cascade=background",
        ])
        .await;
    let (success, text) = kubectl.run(&["get", "pod", "one"]).await;
    assert!(
        !success && text.contains("Error from server (NotFound): pods \"one\" not found"),
        "{text}"
    );

    let (success, text) = as_user("jane").run(&["get", "pods"]).await;
    assert!(
        !success && text.contains("pods is forbidden: User \"jane\" cannot list resource \"pods\""),
        "{text}"
    );
    let with_token = |token: &str| Kubectl {
        directory: directory.path(),
        arguments: [base.clone(), vec![format!("--token={token}")]].concat(),
    };
    let issued = cluster
        .admin()
        .post(
            "/api/v1/namespaces/default/serviceaccounts/default/token",
            &api::Value::object(),
        )
        .await
        .expect(201);
    let token = issued.str_at(&["status", "token"]);
    let (success, text) = with_token(token).run(&["get", "pods"]).await;
    assert!(
        !success && text.contains("User \"system:serviceaccount:default:default\" cannot list"),
        "{text}"
    );
    let (success, text) = with_token("nonsense").run(&["get", "pods"]).await;
    assert!(
        !success && text.contains("Unauthorized") || text.contains("must be logged in"),
        "{text}"
    );
    let version = anonymous_get(address, &ca, "/version").await;
    assert!(
        version.starts_with("HTTP/1.1 200") && version.contains("v1.36.4+coracle"),
        "{version}"
    );
    let pods = anonymous_get(address, &ca, "/api/v1/pods").await;
    assert!(
        pods.starts_with("HTTP/1.1 403") && pods.contains("system:anonymous"),
        "{pods}"
    );
    // The whole body is taken in, so that the answer reaches who is still sending.
    for (credentials, code, reason) in [
        ("", "HTTP/1.1 403", "Forbidden"),
        (
            "Authorization: Bearer nonsense\r\n",
            "HTTP/1.1 401",
            "Unauthorized",
        ),
    ] {
        let body = "x".repeat(2 * 1024 * 1024);
        let request = format!(
            "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{credentials}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = exchange(address, &ca, &request).await;
        assert!(
            answer.starts_with(code) && answer.contains(reason),
            "{answer}"
        );
    }
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}

/// The whole answer to a request without credentials, over HTTP/1.1.
async fn anonymous_get(address: SocketAddr, ca: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    exchange(address, ca, &request).await
}

async fn exchange(address: SocketAddr, ca: &str, request: &str) -> String {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
