//! Requests of route netlink: links, addresses, routes and neighbours, as far as pods need them.

use std::net::Ipv4Addr;
use std::os::fd::RawFd;

use super::connection::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use super::message::{Writer, attributes, find, text, u16_at, u32_at};
use super::{Connection, Error, Request};
use crate::subnet::Subnet;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
pub(crate) const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const ADDR_GEN_MODE_NONE: u8 = 1;

pub(crate) const IFA_ADDRESS: u16 = 1;
pub(crate) const IFA_LOCAL: u16 = 2;

pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_OIF: u16 = 4;
pub(crate) const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
pub(crate) const RTA_TABLE: u16 = 15;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

const RT_TABLE_MAIN: u8 = 254;
/// The protocol number of our routes, by which they differ from others ("protocol 67" in listings).
pub(crate) const PROTOCOL: u8 = 67;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
pub(crate) const RTN_UNICAST: u8 = 1;
const RTN_UNREACHABLE: u8 = 7;
const RTNH_F_ONLINK: u32 = 4;
const NUD_PERMANENT: u16 = 0x80;

/// A link as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub up: bool,
    pub mtu: u32,
}

/// One end of a veth pair.
pub struct VethEnd<'a> {
    pub name: &'a str,
    pub hardware_address: [u8; 6],
}

/// An IPv4 route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub destination: Subnet,
    pub kind: RouteKind,
    pub metric: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Directly reachable through a link.
    Link {
        link: u32,
        source: Option<Ipv4Addr>,
    },
    /// Through a gateway that is taken to be reachable on that link.
    Gateway {
        link: u32,
        gateway: Ipv4Addr,
    },
    Unreachable,
}

/// A route as listed, with the fields that show whether it is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRoute {
    pub route: Route,
    pub ours: bool,
}

/// Creates a veth pair whose other end is born inside the namespace `peer_namespace`.
pub fn create_veth(
    host: &VethEnd<'_>,
    peer: &VethEnd<'_>,
    peer_namespace: RawFd,
    mtu: u32,
) -> Request {
    let what = format!("create veth {} with peer {}", host.name, peer.name);
    Request::new(what, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, |writer| {
        link_header(writer, 0, 0, 0);
        writer.text(IFLA_IFNAME, host.name);
        writer.attribute(IFLA_ADDRESS, &host.hardware_address);
        writer.number(IFLA_MTU, mtu);
        writer.nested(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "veth");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |end| {
                    link_header(end, 0, 0, 0);
                    end.text(IFLA_IFNAME, peer.name);
                    end.attribute(IFLA_ADDRESS, &peer.hardware_address);
                    end.number(IFLA_MTU, mtu);
                    end.number(IFLA_NET_NS_FD, peer_namespace as u32);
                });
            });
        });
    })
}

/// Creates a link that needs no settings (`dummy`, `bridge`).
pub fn create_link(name: &str, kind: &str) -> Request {
    Request::new(
        format!("create {kind} link {name}"),
        RTM_NEWLINK,
        NLM_F_CREATE | NLM_F_EXCL,
        |writer| {
            link_header(writer, 0, 0, 0);
            writer.text(IFLA_IFNAME, name);
            writer.nested(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, kind));
        },
    )
}

/// Brings a link of the node up, without a link-local IPv6 address: no peer uses it, and its
/// duplicate detection costs packets. A kernel without IPv6 refuses even this setting.
pub fn set_up_quietly(name: &str) -> Request {
    Request::new(format!("bring link {name} up"), RTM_NEWLINK, 0, |writer| {
        link_header(writer, 0, libc::IFF_UP as u32, libc::IFF_UP as u32);
        writer.text(IFLA_IFNAME, name);
        if std::path::Path::new("/proc/net/if_inet6").exists() {
            writer.nested(IFLA_AF_SPEC, |families| {
                families.nested(libc::AF_INET6 as u16, |inet6| {
                    inet6.attribute(IFLA_INET6_ADDR_GEN_MODE, &[ADDR_GEN_MODE_NONE]);
                });
            });
        }
    })
}

pub fn set_up(link: u32) -> Request {
    Request::new(format!("bring link {link} up"), RTM_NEWLINK, 0, |writer| {
        link_header(writer, link, libc::IFF_UP as u32, libc::IFF_UP as u32);
    })
}

pub fn delete_link(name: &str) -> Request {
    Request::new(format!("delete link {name}"), RTM_DELLINK, 0, |writer| {
        link_header(writer, 0, 0, 0);
        writer.text(IFLA_IFNAME, name);
    })
    .tolerate(&[libc::ENODEV])
}

pub fn find_link(connection: &mut Connection, name: &str) -> Result<Option<Link>, Error> {
    let payload = connection.get(&format!("look up link {name}"), RTM_GETLINK, |writer| {
        link_header(writer, 0, 0, 0);
        writer.text(IFLA_IFNAME, name);
    })?;
    Ok(payload.and_then(|payload| parse_link(&payload)))
}

pub fn links(connection: &mut Connection) -> Result<Vec<Link>, Error> {
    let entries = connection.dump("list links", RTM_GETLINK, |writer| {
        link_header(writer, 0, 0, 0)
    })?;
    Ok(entries
        .iter()
        .filter_map(|payload| parse_link(payload))
        .collect())
}

pub fn add_address(link: u32, address: Ipv4Addr, prefix: u8) -> Request {
    let what = format!("add address {address}/{prefix}");
    Request::new(what, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, |writer| {
        address_header(writer, link, prefix);
        writer.attribute(IFA_LOCAL, &address.octets());
        writer.attribute(IFA_ADDRESS, &address.octets());
    })
}

/// The IPv4 addresses of the namespace as (link, address, prefix length).
pub fn addresses(connection: &mut Connection) -> Result<Vec<(u32, Ipv4Addr, u8)>, Error> {
    let entries = connection.dump("list addresses", RTM_GETADDR, |writer| {
        address_header(writer, 0, 0)
    })?;
    Ok(entries
        .iter()
        .filter_map(|payload| {
            let rest = payload.get(8..)?;
            let address = find(rest, IFA_LOCAL).or_else(|| find(rest, IFA_ADDRESS))?;
            Some((u32_at(payload, 4)?, ipv4(address)?, *payload.get(1)?))
        })
        .collect())
}

/// Adds the route, replacing one with the same destination and metric.
pub fn add_route(route: &Route) -> Request {
    let what = format!("add route to {}", route.destination);
    Request::new(what, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, |writer| {
        write_route(writer, route)
    })
}

pub fn delete_route(route: &Route) -> Request {
    let what = format!("delete route to {}", route.destination);
    Request::new(what, RTM_DELROUTE, 0, |writer| write_route(writer, route)).tolerate(&[
        libc::ESRCH,
        libc::ENODEV,
        libc::ENOENT,
    ])
}

pub fn routes(connection: &mut Connection) -> Result<Vec<ListedRoute>, Error> {
    let entries = connection.dump("list routes", RTM_GETROUTE, |writer| {
        writer.raw(&[libc::AF_INET as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    })?;
    Ok(entries
        .iter()
        .filter_map(|payload| parse_route(payload))
        .collect())
}

/// A neighbour that is never asked for and never expires.
pub fn add_neighbour(link: u32, address: Ipv4Addr, hardware_address: [u8; 6]) -> Request {
    let what = format!("add neighbour {address}");
    Request::new(what, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, |writer| {
        let mut header = [0u8; 12];
        header[0] = libc::AF_INET as u8;
        header[4..8].copy_from_slice(&link.to_ne_bytes());
        header[8..10].copy_from_slice(&NUD_PERMANENT.to_ne_bytes());
        writer.raw(&header);
        writer.attribute(NDA_DST, &address.octets());
        writer.attribute(NDA_LLADDR, &hardware_address);
    })
}

fn link_header(writer: &mut Writer, index: u32, flags: u32, change: u32) {
    let mut header = [0u8; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    writer.raw(&header);
}

fn address_header(writer: &mut Writer, link: u32, prefix: u8) {
    let mut header = [0u8; 8];
    header[0] = libc::AF_INET as u8;
    header[1] = prefix;
    header[4..8].copy_from_slice(&link.to_ne_bytes());
    writer.raw(&header);
}

fn write_route(writer: &mut Writer, route: &Route) {
    let (scope, kind, flags) = match route.kind {
        RouteKind::Link { .. } => (RT_SCOPE_LINK, RTN_UNICAST, 0),
        RouteKind::Gateway { .. } => (RT_SCOPE_UNIVERSE, RTN_UNICAST, RTNH_F_ONLINK),
        RouteKind::Unreachable => (RT_SCOPE_UNIVERSE, RTN_UNREACHABLE, 0),
    };
    let prefix = route.destination.prefix();
    let mut header = [
        libc::AF_INET as u8,
        prefix,
        0,
        0,
        RT_TABLE_MAIN,
        PROTOCOL,
        scope,
        kind,
        0,
        0,
        0,
        0,
    ];
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    writer.raw(&header);
    if prefix > 0 {
        writer.attribute(RTA_DST, &route.destination.address().octets());
    }
    if route.metric > 0 {
        writer.number(RTA_PRIORITY, route.metric);
    }
    match &route.kind {
        RouteKind::Link { link, source } => {
            writer.number(RTA_OIF, *link);
            if let Some(source) = source {
                writer.attribute(RTA_PREFSRC, &source.octets());
            }
        }
        RouteKind::Gateway { link, gateway } => {
            writer.number(RTA_OIF, *link);
            writer.attribute(RTA_GATEWAY, &gateway.octets());
        }
        RouteKind::Unreachable => {}
    }
}

fn parse_link(payload: &[u8]) -> Option<Link> {
    let rest = payload.get(16..)?;
    Some(Link {
        index: u32_at(payload, 4)?,
        name: text(find(rest, IFLA_IFNAME)?),
        up: u32_at(payload, 8)? & libc::IFF_UP as u32 != 0,
        mtu: find(rest, IFLA_MTU)
            .and_then(|mtu| u32_at(mtu, 0))
            .unwrap_or(0),
    })
}

fn parse_route(payload: &[u8]) -> Option<ListedRoute> {
    let header = payload.get(..12)?;
    if header[4] != RT_TABLE_MAIN || u16_at(header, 0)? as u8 != libc::AF_INET as u8 {
        return None;
    }
    let (mut destination, mut link, mut gateway, mut source, mut metric) =
        (Ipv4Addr::UNSPECIFIED, 0, None, None, 0);
    for (kind, value) in attributes(&payload[12..]) {
        match kind {
            RTA_DST => destination = ipv4(value)?,
            RTA_OIF => link = u32_at(value, 0)?,
            RTA_GATEWAY => gateway = ipv4(value),
            RTA_PREFSRC => source = ipv4(value),
            RTA_PRIORITY => metric = u32_at(value, 0)?,
            _ => {}
        }
    }
    let kind = match (header[7], gateway) {
        (RTN_UNREACHABLE, _) => RouteKind::Unreachable,
        (RTN_UNICAST, Some(gateway)) => RouteKind::Gateway { link, gateway },
        (RTN_UNICAST, None) => RouteKind::Link { link, source },
        _ => return None,
    };
    let route = Route {
        destination: Subnet::new(destination, header[1]),
        kind,
        metric,
    };
    Some(ListedRoute {
        route,
        ours: header[5] == PROTOCOL,
    })
}

fn ipv4(bytes: &[u8]) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?))
}
