//! Facts about this machine that a node needs: its host name, its address, and which ports are free.

use std::net::{IpAddr, TcpListener, UdpSocket};

use anyhow::{Context, Result};

use crate::flags;
use crate::layout::Settings;

/// The host name in the form of a Node's name.
pub fn host_name() -> Result<String> {
    let name = nix::unistd::gethostname()?.to_string_lossy().to_lowercase();
    let name: String = name
        .chars()
        .map(|c| match c.is_ascii_alphanumeric() || c == '.' {
            true => c,
            false => '-',
        })
        .collect();
    let name = name.trim_matches(|c| c == '-' || c == '.');
    let name = if name.is_empty() { "coracle" } else { name };
    flags::node_name(name).with_context(|| {
        format!("the host name {name} is not a valid node name: choose one with --node-name")
    })
}

/// The address at which other machines reach this node: the one the user chose, else that of the
/// default route, else the node's gateway address.
pub fn node_address(settings: &Settings) -> Result<IpAddr> {
    let gateway = IpAddr::V4(settings.gateway()?);
    let chosen = settings.node_address.or_else(default_route_address);
    Ok(chosen.unwrap_or(gateway))
}

/// The source address of packets to other networks. Connecting a UDP socket sends nothing.
fn default_route_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified() && !address.is_loopback()).then_some(address)
}

/// Listens on a TCP port of all addresses of this machine. `purpose` is the noun before the number in
/// the error: "port" or "the kubelet's port".
pub fn listen(port: u16, purpose: &str) -> Result<TcpListener> {
    TcpListener::bind(("0.0.0.0", port))
        .with_context(|| format!("cannot listen on {purpose} {port}"))
}

/// Binds a port and releases it again, so that a port in use is reported before a start changes
/// anything.
pub fn check_port(port: u16, purpose: &str) -> Result<()> {
    listen(port, purpose).map(drop)
}
