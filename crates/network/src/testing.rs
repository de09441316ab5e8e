//! Network namespaces for tests: each belongs to a thread and ends with its last descriptor, so
//! nothing is left behind, also when a test fails.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};

use crate::cni::{self, Variables};
use crate::node::{self, NodeNetwork};

pub const CLUSTER: &str = "7e57ed";
/// How long an answer may take on a slow and busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// After this long a datagram is sent again.
pub const RESEND: Duration = Duration::from_millis(500);

/// Runs `test` on a thread of its own in a fresh network namespace that forwards packets.
pub fn in_fresh_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("these tests need root");
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        run(&["ip", "link", "set", "lo", "up"]);
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Another namespace, held by a descriptor.
pub struct Namespace(File);

impl Namespace {
    pub fn new() -> Namespace {
        let thread = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Namespace(thread.join().unwrap())
    }

    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs `work` inside, on a thread of its own.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
                    work()
                })
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// A pod made by the real plugin, with a server that answers with its name and the client's address.
pub struct Pod {
    pub name: String,
    pub address: Ipv4Addr,
    pub namespace: Namespace,
}

pub struct Host {
    pub network: NodeNetwork,
    pub directory: tempfile::TempDir,
}

impl Host {
    pub fn new() -> Host {
        let network = NodeNetwork {
            mtu: Some(1400),
            ..NodeNetwork::new(
                CLUSTER,
                "10.244.0.0/24".parse().unwrap(),
                "10.96.0.0/16".parse().unwrap(),
                Ipv4Addr::new(10, 96, 0, 10),
            )
        };
        node::setup(&network).unwrap();
        Host {
            network,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub fn configuration(&self, version: &str) -> serde_json::Value {
        serde_json::json!({
            "cniVersion": version, "name": "test", "type": "coracle-cni", "clusterId": CLUSTER,
            "podCidr": self.network.pod_cidr, "clusterCidr": self.network.cluster_cidr,
            "serviceCidr": self.network.service_cidr, "dnsIp": self.network.dns_ip,
            "gateway": self.network.gateway, "mtu": 1400, "stateDir": self.state(),
        })
    }

    pub fn state(&self) -> PathBuf {
        self.directory.path().join("cni")
    }

    pub fn call(
        &self,
        command: &str,
        name: &str,
        namespace: &str,
        configuration: &serde_json::Value,
    ) -> Result<String, cni::Error> {
        let variables = Variables {
            command: Some(command.to_owned()),
            container: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            interface: Some("eth0".to_owned()),
        };
        cni::answer(&variables, configuration.to_string().as_bytes())
    }

    pub fn pod(&self, name: &str) -> Pod {
        self.pod_with(name, &self.configuration("1.0.0"))
    }

    pub fn pod_with(&self, name: &str, configuration: &serde_json::Value) -> Pod {
        let namespace = Namespace::new();
        let result = self
            .call("ADD", name, &namespace.path(), configuration)
            .unwrap();
        let result: serde_json::Value = serde_json::from_str(&result).unwrap();
        let address = result["ips"][0]["address"].as_str().unwrap();
        let address = address.strip_suffix("/32").unwrap().parse().unwrap();
        Pod {
            name: name.to_owned(),
            address,
            namespace,
        }
    }
}

impl Pod {
    /// Answers every TCP connection and UDP datagram on the port with `<name> <client address>`.
    pub fn serve(&self, port: u16) {
        let name = self.name.clone();
        let (tcp, udp) = self.namespace.run(|| {
            let tcp = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
            (tcp, UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
        });
        let udp_name = name.clone();
        std::thread::spawn(move || {
            while let Ok((mut stream, client)) = tcp.accept() {
                let _ = write!(stream, "{name} {}", client.ip());
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((_, client)) = udp.recv_from(&mut buffer) {
                let _ = udp.send_to(format!("{udp_name} {}", client.ip()).as_bytes(), client);
            }
        });
    }
}

/// Connects and reads the server's line.
pub fn ask_tcp(address: Ipv4Addr, port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((address, port)), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

pub fn ask_udp(address: Ipv4Addr, port: u16) -> std::io::Result<String> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((address, port))?;
    ask_again(&socket)
}

/// Asks on a connected socket until there is an answer. A datagram may get lost while a link comes
/// up, as anywhere; nobody but us sends it again.
pub fn ask_again(socket: &UdpSocket) -> std::io::Result<String> {
    socket.set_read_timeout(Some(RESEND))?;
    let mut buffer = [0; 64];
    for _ in 0..PATIENCE.as_millis() / RESEND.as_millis() {
        socket.send(b"?")?;
        match socket.recv(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            outcome => return Ok(String::from_utf8_lossy(&buffer[..outcome?]).into_owned()),
        }
    }
    Err(std::io::ErrorKind::TimedOut.into())
}

/// Runs a command in the thread's namespace and returns its output.
pub fn run(command: &[&str]) -> String {
    let output = Command::new(command[0])
        .args(&command[1..])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The ruleset as the `nft` tool reads it: the oracle for our codec.
pub fn ruleset() -> String {
    run(&["nft", "list", "ruleset"])
}

pub fn first_entry(directory: &Path) -> Option<PathBuf> {
    Some(std::fs::read_dir(directory).ok()?.next()?.ok()?.path())
}
