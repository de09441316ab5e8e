//! Connections into a pod's network namespace.

use std::{
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use nix::sched::{CloneFlags, setns};
use streaming::{Upgrade, port_forward};
use tokio::sync::oneshot;

use super::SessionParts;
use crate::records::SandboxPhase;

const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

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
            let record = sandboxes
                .record(&sandbox)
                .map_err(|error| error.to_string())?;
            if record.phase != SandboxPhase::Ready {
                return Err(format!("sandbox container {sandbox:?} is not running"));
            }
            let stream = dial_inside(record.netns, port).await?;
            let adopted = stream
                .set_nonblocking(true)
                .and_then(|()| tokio::net::TcpStream::from_std(stream));
            adopted.map_err(|error| error.to_string())
        }
    };
    port_forward::serve(io, upgrade, sandbox, ports, dial).await;
}

/// Dials on a thread of its own, which changes its network namespace and then ends.
async fn dial_inside(netns: Option<PathBuf>, port: u16) -> Result<TcpStream, String> {
    let (sender, receiver) = oneshot::channel();
    let dialling = std::thread::Builder::new()
        .name("port-forward".into())
        .spawn(move || {
            let entered = netns.as_deref().map(enter).unwrap_or(Ok(()));
            let connected = entered
                .map_err(|error| format!("failed to enter the pod's network: {error}"))
                .and_then(|()| connect(port));
            let _ = sender.send(connected);
        });
    dialling.map_err(|error| error.to_string())?;
    receiver
        .await
        .unwrap_or_else(|_| Err("the dialling thread ended".into()))
}

fn enter(netns: &Path) -> io::Result<()> {
    setns(File::open(netns)?, CloneFlags::CLONE_NEWNET)?;
    Ok(())
}

fn connect(port: u16) -> Result<TcpStream, String> {
    let attempt = |address: IpAddr| {
        let stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), DIAL_TIMEOUT)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    attempt(Ipv4Addr::LOCALHOST.into()).or_else(|first: io::Error| {
        attempt(Ipv6Addr::LOCALHOST.into()).map_err(|second: io::Error| {
            format!("failed to connect to localhost:{port} inside the pod's network: IPv4: {first}; IPv6: {second}")
        })
    })
}
