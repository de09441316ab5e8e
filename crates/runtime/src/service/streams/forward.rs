//! Connections into a pod's network namespace.

use std::{
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use environment::chain;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use nix::sched::{CloneFlags, setns};
use streaming::{
    Upgrade,
    port_forward::{self, DialFailure},
};
use tokio::sync::oneshot;

use super::SessionParts;
use crate::{
    records::SandboxPhase,
    service::{Error, sandbox_table::SandboxTable},
};

const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a port of a pod could not be reached.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error(transparent)]
    Sandbox(#[from] Error),
    #[error("sandbox container {0:?} is not running")]
    NotRunning(String),
    #[error("failed to enter the pod's network")]
    Namespace(#[source] io::Error),
    #[error(
        "failed to connect to localhost:{port} inside the pod's network: IPv4: {v4}; IPv6: {v6}"
    )]
    Connect {
        port: u16,
        v4: io::Error,
        v6: io::Error,
    },
    #[error("the connection cannot be used")]
    Adopt(#[source] io::Error),
    #[error("the dialling thread could not be started")]
    Thread(#[source] io::Error),
    #[error("the dialling thread ended")]
    Ended,
}

pub async fn run(
    parts: &SessionParts,
    sandbox: &str,
    ports: &[u16],
    io: TokioIo<Upgraded>,
    upgrade: &Upgrade,
) {
    let dial = |port: u16| {
        let (sandboxes, sandbox) = (parts.sandboxes.clone(), sandbox.to_owned());
        async move {
            let dialled = dial(&sandboxes, sandbox, port).await;
            dialled.map_err(|error| DialFailure(chain(&error).to_string()))
        }
    };
    port_forward::serve(io, upgrade, sandbox, ports, dial).await;
}

async fn dial(
    sandboxes: &SandboxTable,
    sandbox: String,
    port: u16,
) -> Result<tokio::net::TcpStream, DialError> {
    let record = sandboxes.record(&sandbox)?;
    if record.phase != SandboxPhase::Ready {
        return Err(DialError::NotRunning(sandbox));
    }
    let stream = dial_inside(record.netns, port).await?;
    stream
        .set_nonblocking(true)
        .and_then(|()| tokio::net::TcpStream::from_std(stream))
        .map_err(DialError::Adopt)
}

/// Dials on a thread of its own, which changes its network namespace and then ends.
async fn dial_inside(netns: Option<PathBuf>, port: u16) -> Result<TcpStream, DialError> {
    let (sender, receiver) = oneshot::channel();
    let dialling = std::thread::Builder::new()
        .name("port-forward".into())
        .spawn(move || {
            let entered = netns.as_deref().map(enter).unwrap_or(Ok(()));
            let connected = entered
                .map_err(DialError::Namespace)
                .and_then(|()| connect(port));
            let _ = sender.send(connected);
        });
    dialling.map_err(DialError::Thread)?;
    receiver.await.unwrap_or(Err(DialError::Ended))
}

fn enter(netns: &Path) -> io::Result<()> {
    setns(File::open(netns)?, CloneFlags::CLONE_NEWNET)?;
    Ok(())
}

fn connect(port: u16) -> Result<TcpStream, DialError> {
    let attempt = |address: IpAddr| {
        let stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), DIAL_TIMEOUT)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    attempt(Ipv4Addr::LOCALHOST.into()).or_else(|v4: io::Error| {
        let second = attempt(Ipv6Addr::LOCALHOST.into());
        second.map_err(|v6: io::Error| DialError::Connect { port, v4, v6 })
    })
}
