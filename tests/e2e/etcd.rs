//! Real etcd members for one test, on loopback, each with its own directory; killed on drop.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use serde_json::{Value, json};

use crate::cluster::eventually;

pub struct Etcd {
    directory: tempfile::TempDir,
    members: Vec<Member>,
    is_secure: bool,
}

struct Member {
    client: u16,
    peer: u16,
    process: Option<Child>,
}

impl Etcd {
    /// Starts `count` members and waits until they have a leader.
    pub fn start(count: usize) -> Etcd {
        crate::slots::wait_for_slot();
        // Another process may have taken a port since it was chosen.
        for _ in 0..5 {
            let mut etcd = Etcd {
                directory: tempfile::Builder::new()
                    .prefix("coracle-etcd-")
                    .tempdir()
                    .expect("temporary directory"),
                members: Vec::new(),
                is_secure: false,
            };
            for _ in 0..count {
                let (client, peer) = (free_port(), free_port());
                etcd.members.push(Member {
                    client,
                    peer,
                    process: None,
                });
            }
            (0..count).for_each(|index| etcd.restart(index));
            let served = eventually("etcd to serve or end", || {
                let healthy = etcd.request("GET", "/health", "");
                if healthy.is_some_and(|text| text.contains("true")) {
                    return Some(true);
                }
                let processes = etcd.members.iter_mut();
                let mut ended = processes
                    .filter_map(|member| member.process.as_mut()?.try_wait().expect("etcd"));
                ended.next().map(|_| false)
            });
            if served {
                return etcd;
            }
        }
        panic!("etcd does not start (scripts/setup test installs it)");
    }

    /// The value of `--etcd-endpoints`.
    pub fn endpoints(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        let urls = self.members.iter();
        let urls: Vec<_> = urls
            .map(|member| format!("{scheme}://127.0.0.1:{}", member.client))
            .collect();
        urls.join(",")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Kills a member with SIGKILL.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.members[index].process.take() {
            process.kill().expect("kill");
            process.wait().expect("wait");
        }
    }

    pub fn restart(&mut self, index: usize) {
        let cluster: Vec<String> = self.members.iter().enumerate().map(initial).collect();
        let scheme = if self.is_secure { "https" } else { "http" };
        let member = &self.members[index];
        let client = format!("{scheme}://127.0.0.1:{}", member.client);
        let peer = format!("http://127.0.0.1:{}", member.peer);
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(&format!("m{index}.log")))
            .expect("log");
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("m{index}")])
            .arg("--data-dir")
            .arg(self.path(&format!("m{index}")))
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.join(",")]);
        if self.is_secure {
            command
                .arg("--client-cert-auth")
                .arg("--trusted-ca-file")
                .arg(self.path("ca.pem"))
                .arg("--cert-file")
                .arg(self.path("server.pem"))
                .arg("--key-file")
                .arg(self.path("server.key"));
        }
        let process = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn()
            .expect("etcd starts (scripts/setup test installs it)");
        self.members[index].process = Some(process);
    }

    /// Sends a request to etcd's JSON gateway. `None` means that there is no response.
    pub fn call(&self, path: &str, body: &Value) -> Option<Value> {
        let text = self.request("POST", path, &body.to_string())?;
        serde_json::from_str(&text).ok()
    }

    /// The keys below a prefix, in the gateway's format.
    pub fn items(&self, prefix: &str, revision: u64) -> Value {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().expect("a prefix") += 1;
        let asked = json!({
            "key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end),
            "revision": revision.to_string(),
        });
        eventually("etcd to answer", || self.call("/v3/kv/range", &asked))
    }

    /// Makes etcd require a client certificate and a user: `ca.pem`, `client.pem`, `client.key` and
    /// `credentials` are in its directory.
    pub fn secure(&mut self) {
        for (path, body) in [
            ("user/add", json!({"name": "root", "password": "a:secret"})),
            ("role/add", json!({"name": "root"})),
            ("user/grant", json!({"user": "root", "role": "root"})),
            ("enable", json!({})),
        ] {
            let answer = self.call(&format!("/v3/auth/{path}"), &body);
            let answer = answer.expect("etcd answers");
            assert!(answer.get("error").is_none(), "{path}: {answer}");
        }
        std::fs::write(self.path("credentials"), "root:a:secret\n").expect("written");
        certificates(self.directory.path());
        self.kill(0);
        self.is_secure = true;
        self.restart(0);
        let port = self.members[0].client;
        eventually("etcd to listen again", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
    }

    /// Uses HTTP/1.0, so that the response is not chunked.
    fn request(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.members[0].client)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .ok()?;
        let head = format!(
            "{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + body).as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, content) = answer.split_once("\r\n\r\n")?;
        Some(content.to_owned())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            self.kill(index);
        }
    }
}

fn initial((index, member): (usize, &Member)) -> String {
    format!("m{index}=http://127.0.0.1:{}", member.peer)
}

/// A port that is free at the moment and not in the ephemeral range: a connection with that port would
/// prevent the restart of a member.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() * 37 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + (number % 10_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn certificates(directory: &Path) {
    let authority_key = KeyPair::generate().expect("key");
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&authority_key).expect("authority");
    let issuer = Issuer::new(parameters, authority_key);
    let write = |name: &str, text: String| {
        std::fs::write(directory.join(name), text).expect("written");
    };
    write("ca.pem", authority.pem());
    for name in ["server", "client"] {
        let key = KeyPair::generate().expect("key");
        let mut parameters = CertificateParams::default();
        let loopback = std::net::Ipv4Addr::LOCALHOST.into();
        parameters.subject_alt_names = vec![SanType::IpAddress(loopback)];
        // etcd's own gateway uses the server's certificate as a client.
        parameters.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = parameters.signed_by(&key, &issuer).expect("certificate");
        write(&format!("{name}.pem"), certificate.pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
}
