//! Asking the node's own name servers, as the question came, under a fresh id.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use environment::Environment;
use hickory_proto::op::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout, timeout_at};

/// Per server, and for all of them together. Below the 5 s after which resolvers ask again.
const SERVER_TIMEOUT: Duration = Duration::from_millis(1500);
const TOTAL_TIMEOUT: Duration = Duration::from_secs(4);
const REREAD_AFTER: Duration = Duration::from_secs(5);
const MOST_SERVERS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

pub struct Forwarder {
    resolv_conf: PathBuf,
    /// Addresses that lead to ourselves, who must never be asked: ours, and the DNS Service's.
    own: Vec<IpAddr>,
    environment: Environment,
    servers: Mutex<Option<(Instant, Vec<SocketAddr>)>>,
}

impl Forwarder {
    pub fn new(resolv_conf: PathBuf, own: Vec<IpAddr>, environment: Environment) -> Forwarder {
        Forwarder {
            resolv_conf,
            own,
            environment,
            servers: Mutex::new(None),
        }
    }

    /// The first server's answer to `question` (a whole message), under the question's id; `None`
    /// when no server answers in time.
    pub async fn ask(&self, question: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let own_id: [u8; 2] = question.get(..2)?.try_into().ok()?;
        let deadline = Instant::now() + TOTAL_TIMEOUT;
        for server in self.servers().await {
            let mut bytes = question.to_vec();
            let mut id = [0; 2];
            self.environment.fill(&mut id);
            bytes[..2].copy_from_slice(&id);
            let attempt = async {
                match transport {
                    Transport::Udp => ask_udp(server, &bytes).await,
                    Transport::Tcp => ask_tcp(server, &bytes).await,
                }
            };
            let patience = deadline.min(Instant::now() + SERVER_TIMEOUT);
            if let Ok(Ok(mut answer)) = timeout_at(patience, attempt).await {
                answer[..2].copy_from_slice(&own_id);
                return Some(answer);
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        None
    }

    async fn servers(&self) -> Vec<SocketAddr> {
        let lock = || {
            self.servers
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
        };
        if let Some((read, servers)) = &*lock()
            && read.elapsed() < REREAD_AFTER
        {
            return servers.clone();
        }
        let content = timeout(SERVER_TIMEOUT, tokio::fs::read_to_string(&self.resolv_conf)).await;
        let content = content.ok().and_then(Result::ok).unwrap_or_default();
        let mut servers = name_servers(&content);
        servers.retain(|server| !self.own.contains(&server.ip()));
        *lock() = Some((Instant::now(), servers.clone()));
        servers
    }
}

/// The servers of a resolv.conf; like the C library, at most three.
pub fn name_servers(resolv_conf: &str) -> Vec<SocketAddr> {
    resolv_conf
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next()? == "nameserver").then(|| words.next())?
        })
        .filter_map(|text| text.split('%').next()?.parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, 53))
        .take(MOST_SERVERS)
        .collect()
}

async fn ask_udp(server: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let any: SocketAddr = if server.is_ipv4() {
        (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = vec![0; 65_535];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if answers(question, &buffer[..length]) {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

async fn ask_tcp(server: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let mut framed = (question.len() as u16).to_be_bytes().to_vec();
    framed.extend_from_slice(question);
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await?;
    if answers(question, &buffer) {
        Ok(buffer)
    } else {
        Err(std::io::ErrorKind::InvalidData.into())
    }
}

/// Same id, same question: anything else was sent by someone guessing.
fn answers(question: &[u8], answer: &[u8]) -> bool {
    if answer.len() < 12 || answer[..2] != question[..2] || answer[2] & 0x80 == 0 {
        return false;
    }
    match (Message::from_vec(question), Message::from_vec(answer)) {
        (Ok(question), Ok(answer)) => question.queries == answer.queries,
        // An answer with records we cannot read is still the client's to judge.
        _ => true,
    }
}
