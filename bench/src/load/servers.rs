//! The measured servers: Coracle's API server alone, kube-apiserver on etcd, and nginx. Each is a new
//! process with a directory of its own, and is removed on drop.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::connection::{Connection, connector};
use super::drive::Target;
use super::usage::family;

const PATIENCE: Duration = Duration::from_secs(60);
const ADMINISTRATOR: &str = "bench-administrator";

/// Processes that serve one API, and how to reach it.
pub struct Server {
    pub target: Target,
    /// The processes in the order in which they are ended.
    processes: Vec<Process>,
    /// Removes what the process leaves in the kernel.
    clean: Option<(PathBuf, PathBuf)>,
    directory: tempfile::TempDir,
}

struct Process {
    child: Child,
    signal: Signal,
}

impl Process {
    fn start(command: &mut Command, log: &Path, signal: Signal) -> Result<Process> {
        let log = std::fs::File::create(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        Ok(Process { child, signal })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), self.signal);
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for process in self.processes.drain(..) {
            drop(process);
        }
        if let Some((binary, data)) = &self.clean {
            let mut command = Command::new(binary);
            let command = command.args(["down", "--delete", "--data-dir"]).arg(data);
            if let Err(problem) = command.output() {
                eprintln!("{problem}");
            }
        }
    }
}

impl Server {
    /// Coracle's API server without the components in `disable`.
    pub async fn coracle(binary: &Path, disable: &str) -> Result<Server> {
        let directory = directory()?;
        let data = directory.path().join("data");
        let mut command = Command::new(binary);
        command.args(["server", "--port", "0", "--log", "warn", "--data-dir"]);
        command.arg(&data);
        if !disable.is_empty() {
            command.args(["--disable", disable]);
        }
        let log = directory.path().join("log");
        let process = Process::start(&mut command, &log, Signal::SIGTERM)?;
        let id = process.child.id();
        let mut server = Server {
            target: Target {
                address: loopback(0),
                token: String::new(),
                processes: vec![id],
            },
            processes: vec![process],
            clean: Some((binary.to_path_buf(), data.clone())),
            directory,
        };
        let kubeconfig = data.join("kubeconfig");
        let client = server
            .wait(|| async {
                let client = client::connect::from_kubeconfig(&kubeconfig).await.ok()?;
                let request = http::Request::get("/readyz").body(Vec::new()).ok()?;
                client.request_text(request).await.ok()?;
                Some(client)
            })
            .await?;
        let config = kube::config::Kubeconfig::read_from(&kubeconfig)?;
        let url = config.clusters.first().and_then(|named| {
            let url = named.cluster.as_ref()?.server.as_ref()?;
            url.parse::<http::Uri>().ok()
        });
        let port = url.and_then(|url| url.port_u16()).context("a port")?;
        server.target.address = loopback(port);
        server.target.token = prepare(&client).await?;
        Ok(server)
    }

    /// kube-apiserver with its defaults, on an etcd that syncs to disk.
    pub async fn upstream(kube_apiserver: &Path) -> Result<Server> {
        let directory = directory()?;
        let place = |name: &str| directory.path().join(name);
        let ports = [free_port()?, free_port()?, free_port()?];
        let [client, peer] = [0, 1].map(|index| format!("http://127.0.0.1:{}", ports[index]));
        let etcd = Process::start(
            Command::new("etcd")
                .arg("--data-dir")
                .arg(place("etcd"))
                .args(["--listen-client-urls", &client])
                .args(["--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer])
                .args(["--initial-advertise-peer-urls", &peer])
                .args(["--initial-cluster", &format!("default={peer}")]),
            &place("etcd-log"),
            Signal::SIGKILL,
        )?;
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        std::fs::write(place("key"), key.serialize_pem())?;
        std::fs::write(place("public"), key.public_key_pem())?;
        let user = format!("{ADMINISTRATOR},administrator,0,system:masters\n");
        std::fs::write(place("tokens"), user)?;
        let process = Process::start(
            Command::new(kube_apiserver)
                .args(["--etcd-servers", &client, "--bind-address", "127.0.0.1"])
                .args(["--secure-port", &ports[2].to_string()])
                .arg("--cert-dir")
                .arg(directory.path())
                .arg("--token-auth-file")
                .arg(place("tokens"))
                .arg("--service-account-signing-key-file")
                .arg(place("key"))
                .arg("--service-account-key-file")
                .arg(place("public"))
                .args(["--service-account-issuer", "https://bench"])
                .args(["--service-cluster-ip-range", "10.108.0.0/16"])
                .args(["--authorization-mode", "Node,RBAC"]),
            &place("log"),
            Signal::SIGKILL,
        )?;
        let ids = vec![process.child.id(), etcd.child.id()];
        let mut server = Server {
            target: Target {
                address: loopback(ports[2]),
                token: String::new(),
                processes: ids,
            },
            processes: vec![process, etcd],
            clean: None,
            directory,
        };
        let url = format!("https://127.0.0.1:{}", ports[2]);
        let mut config = kube::Config::new(url.parse()?);
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(ADMINISTRATOR.to_string().into());
        let client = client::connect::from_config(config)?;
        server
            .wait(|| async {
                let path = "/api/v1/namespaces/default";
                let request = http::Request::get(path).body(Vec::new()).ok()?;
                client.request_text(request).await.ok()
            })
            .await?;
        server.target.token = prepare(&client).await?;
        Ok(server)
    }

    /// nginx with as many workers as there are cores, serving `body` as a file at `path`.
    pub async fn nginx(path: &str, body: &[u8], token: &str) -> Result<Server> {
        let directory = directory()?;
        let place = |name: &str| directory.path().join(name);
        let file = place("root").join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().context("a directory")?)?;
        std::fs::write(&file, body)?;
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let certificate = rcgen::CertificateParams::new(vec!["localhost".to_string()])?;
        std::fs::write(place("certificate"), certificate.self_signed(&key)?.pem())?;
        std::fs::write(place("key"), key.serialize_pem())?;
        let port = free_port()?;
        let configuration = format!(
            "daemon off; user root; worker_processes auto; pid pid; error_log log crit;
            events {{ worker_connections 1024; }}
            http {{
              access_log off; keepalive_requests 1000000000; tcp_nodelay on; open_file_cache max=8;
              default_type application/json;
              client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
              uwsgi_temp_path uwsgi; scgi_temp_path scgi;
              server {{
                listen 127.0.0.1:{port} ssl; root root;
                ssl_certificate certificate; ssl_certificate_key key;
              }}
            }}"
        );
        std::fs::write(place("configuration"), configuration)?;
        let process = Process::start(
            Command::new("nginx").arg("-p").arg(directory.path()).args([
                "-e",
                "log",
                "-c",
                "configuration",
            ]),
            &place("log"),
            Signal::SIGQUIT,
        )?;
        let id = process.child.id();
        let target = Target {
            address: loopback(port),
            token: token.to_string(),
            processes: Vec::new(),
        };
        let mut server = Server {
            target: target.clone(),
            processes: vec![process],
            clean: None,
            directory,
        };
        let request = target.request("GET", path, "", "");
        server
            .wait(|| async {
                let tls = connector().ok()?;
                let mut connection = Connection::open(target.address, &tls).await.ok()?;
                let answer = connection.exchange(&request).await.ok()?;
                (answer.code == 200).then_some(())
            })
            .await?;
        server.target.processes = family(id);
        Ok(server)
    }

    /// Sends requests until there is a response.
    async fn wait<T, F>(&mut self, ask: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Option<T>>,
    {
        let asking = async {
            loop {
                if let Some(answer) = ask().await {
                    return Some(answer);
                }
                for process in &mut self.processes {
                    if let Ok(Some(_)) = process.child.try_wait() {
                        return None;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, asking).await {
            Ok(Some(answer)) => Ok(answer),
            _ => {
                let log = std::fs::read(self.directory.path().join("log")).unwrap_or_default();
                let end = &log[log.len().saturating_sub(2000)..];
                bail!("a server did not start:\n{}", String::from_utf8_lossy(end))
            }
        }
    }
}

/// Creates the namespaces, and an account that may do everything. Returns its token.
async fn prepare(client: &kube::Client) -> Result<String> {
    for name in ["bench", "bench-500", "bench-watch"] {
        let body = json!({"metadata": {"name": name}});
        post(client, "/api/v1/namespaces", body).await?;
    }
    for namespace in ["bench", "bench-watch"] {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        post(client, &path, json!({"metadata": {"name": "default"}})).await?;
    }
    let binding = json!({
        "metadata": {"name": "bench"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "bench"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    post(client, path, binding).await?;
    let path = "/api/v1/namespaces/bench/serviceaccounts/default/token";
    let token = post(client, path, json!({"spec": {"expirationSeconds": 7200}})).await?;
    let token = token["status"]["token"].as_str().context("a token")?;
    // kube-apiserver creates its roles, and observes bindings, a while after it starts to serve.
    let question = json!({"spec": {
        "user": "system:serviceaccount:bench:default",
        "resourceAttributes": {"verb": "create", "resource": "configmaps", "namespace": "bench"},
    }});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for _ in 0..600 {
        let answer = post(client, path, question.clone()).await?;
        if answer["status"]["allowed"] == true {
            return Ok(token.to_string());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    bail!("the account of the benchmark may not create")
}

async fn post(client: &kube::Client, path: &str, body: Value) -> Result<Value> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&body)?)?;
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(Value::Null),
        other => other.with_context(|| path.to_string()),
    }
}

fn directory() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new()
        .prefix("coracle-bench-")
        .tempdir()?)
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(loopback(0))?;
    Ok(listener.local_addr()?.port())
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
