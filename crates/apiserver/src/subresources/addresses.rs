//! Which addresses the server dials for others. Users write addresses into the status of nodes, pods
//! and EndpointSlices; without a check they could have the server speak to itself, to what only
//! listens to its own machine, or to a Service that leads back to it.

use std::net::{IpAddr, SocketAddr};

use api::Status;

use crate::server::Server;

/// Where a kubelet listens, if it may be dialled with the server's own client certificate.
pub(super) fn of_kubelet(
    server: &Server,
    address: IpAddr,
    port: u16,
) -> Result<SocketAddr, Status> {
    let address = address.to_canonical();
    // A machine without a network of its own has its kubelet on the loopback address.
    let allowed = is_proxyable(address) || address.is_loopback();
    // The API servers of a cluster listen on one port, on whichever of their addresses.
    let is_own = port == server.advertise.port();
    match allowed && !is_own && !server.services.is_service_address(address) {
        true => Ok(SocketAddr::new(address, port)),
        false => Err(not_allowed()),
    }
}

/// Where a pod or something on a node listens, if it may be dialled, with no certificate.
pub(crate) fn of_backend(server: &Server, address: &str, port: u16) -> Result<SocketAddr, Status> {
    let address: IpAddr = address.parse().map_err(|_| not_allowed())?;
    let place = SocketAddr::new(address.to_canonical(), port);
    match is_proxyable(place.ip()) && place != server.advertise {
        true => Ok(place),
        false => Err(not_allowed()),
    }
}

/// Upstream proxies to global unicast addresses only.
fn is_proxyable(address: IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

fn not_allowed() -> Status {
    Status::bad_request("address not allowed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_one_other_machine_are_proxied_to() {
        for address in [
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert!(!is_proxyable(address.to_canonical()), "{address}");
        }
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        assert!(!is_proxyable(mapped.to_canonical()));
        for address in ["10.244.0.2", "192.168.1.1", "2001:db8::1"] {
            assert!(is_proxyable(address.parse().unwrap()), "{address}");
        }
    }
}
