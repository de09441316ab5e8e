//! The networks this machine has already: addresses of its links, destinations of its routes and
//! the gateways of those, in both families. Ranges for pods and Services must keep clear of them.
//!
//! What belongs to Coracle itself (routes with our protocol mark, links with our names) is left
//! out: other clusters of this machine are known from their claims.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

use crate::names;
use crate::netlink::message::{attributes, u32_at};
use crate::netlink::route::{
    self, IFA_ADDRESS, IFA_LOCAL, PROTOCOL, RTA_DST, RTA_GATEWAY, RTA_OIF, RTA_TABLE, RTM_GETADDR,
    RTM_GETROUTE, RTN_UNICAST,
};
use crate::netlink::{Connection, Error};
use crate::subnet::Subnet;

/// The kernel's own table of local and broadcast addresses; the list of addresses has them in a better
/// form.
const RT_TABLE_LOCAL: u32 = 255;
/// Entries that the kernel made from others while routing, not configuration.
const RTM_F_CLONED: u32 = 0x200;
/// A VPN may split the default route into two halves; they lead everywhere like the whole one.
const LONGEST_DEFAULT_PREFIX: u8 = 1;

/// A range of addresses of either family; host bits are always zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpRange(IpNet);

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a range of addresses such as 10.96.0.0/12")]
pub struct IpRangeError(String);

impl IpRange {
    /// Clears the host bits of `address`. A prefix that is too long counts as the longest.
    pub fn new(address: IpAddr, prefix: u8) -> IpRange {
        let longest = IpNet::from(address).prefix_len();
        IpRange(IpNet::new_assert(address, prefix.min(longest)).trunc())
    }

    pub fn prefix(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether some address lies in both. Ranges of different families never overlap.
    pub fn overlaps(&self, other: &IpRange) -> bool {
        self.0.contains(&other.0) || other.0.contains(&self.0)
    }
}

impl From<Subnet> for IpRange {
    fn from(subnet: Subnet) -> IpRange {
        IpRange::new(subnet.address().into(), subnet.prefix())
    }
}

impl FromStr for IpRange {
    type Err = IpRangeError;

    fn from_str(text: &str) -> Result<IpRange, IpRangeError> {
        let range: IpNet = text.parse().map_err(|_| IpRangeError(text.to_owned()))?;
        Ok(IpRange(range.trunc()))
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// One network of the machine, and how to name it to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostNetwork {
    pub range: IpRange,
    /// For instance `the route 10.96.0.0/16 via 192.0.2.1 dev eth0`.
    pub description: String,
}

/// The first of the networks that `range` overlaps.
pub fn conflict<'a>(range: &IpRange, networks: &'a [HostNetwork]) -> Option<&'a HostNetwork> {
    networks
        .iter()
        .find(|network| network.range.overlaps(range))
}

/// Everything the machine has. Fails when any part of it cannot be read.
pub fn host_networks() -> Result<Vec<HostNetwork>, Error> {
    let mut connection = Connection::route()?;
    let links: BTreeMap<u32, String> = route::links(&mut connection)?
        .into_iter()
        .map(|link| (link.index, link.name))
        .collect();
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let entries = connection.dump("list routes", RTM_GETROUTE, |writer| {
            writer.raw(&[family as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        })?;
        for entry in &entries {
            found.extend(parse_route(entry, &links));
        }
    }
    for family in [libc::AF_INET, libc::AF_INET6] {
        let entries = connection.dump("list addresses", RTM_GETADDR, |writer| {
            writer.raw(&[family as u8, 0, 0, 0, 0, 0, 0, 0]);
        })?;
        for entry in &entries {
            found.extend(parse_address(entry, &links));
        }
    }
    Ok(found)
}

fn is_ours(link: &str) -> bool {
    link.strip_prefix('c')
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(id, _)| names::is_cluster_id(id))
}

/// The destination of a route, unless that is everything, and its gateway.
fn parse_route(payload: &[u8], links: &BTreeMap<u32, String>) -> Vec<HostNetwork> {
    let Some(header) = payload.get(..12) else {
        return Vec::new();
    };
    let flags = u32_at(header, 8).unwrap_or(0);
    if header[5] == PROTOCOL || header[7] != RTN_UNICAST || flags & RTM_F_CLONED != 0 {
        return Vec::new();
    }
    let (mut destination, mut gateway, mut link) = (None, None, None);
    let mut table = u32::from(header[4]);
    for (kind, value) in attributes(&payload[12..]) {
        match kind {
            RTA_DST => destination = ip(value),
            RTA_GATEWAY => gateway = ip(value),
            RTA_OIF => link = u32_at(value, 0).and_then(|index| links.get(&index)),
            RTA_TABLE => table = u32_at(value, 0).unwrap_or(table),
            _ => {}
        }
    }
    if table == RT_TABLE_LOCAL || link.is_some_and(|link| is_ours(link)) {
        return Vec::new();
    }
    let unspecified = match i32::from(header[0]) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let range = IpRange::new(destination.unwrap_or(unspecified), header[1]);
    let is_default = range.prefix() <= LONGEST_DEFAULT_PREFIX;
    let mut words = match is_default && range.prefix() == 0 {
        true => "the default route".to_owned(),
        false => format!("the route {range}"),
    };
    if let Some(gateway) = gateway {
        words.push_str(&format!(" via {gateway}"));
    }
    if let Some(link) = link {
        words.push_str(&format!(" dev {link}"));
    }
    let mut found = Vec::new();
    if !is_default {
        found.push(HostNetwork {
            range,
            description: words.clone(),
        });
    }
    found.extend(gateway.map(|gateway| HostNetwork {
        range: IpRange::new(gateway, u8::MAX),
        description: format!("the gateway of {words}"),
    }));
    found
}

fn parse_address(payload: &[u8], links: &BTreeMap<u32, String>) -> Option<HostNetwork> {
    let (mut local, mut peer) = (None, None);
    for (kind, value) in attributes(payload.get(8..)?) {
        match kind {
            IFA_LOCAL => local = ip(value),
            IFA_ADDRESS => peer = ip(value),
            _ => {}
        }
    }
    let address = local.or(peer)?;
    let link = links.get(&u32_at(payload, 4)?);
    if link.is_some_and(|link| is_ours(link)) {
        return None;
    }
    let prefix = *payload.get(1)?;
    let place = link.map(|link| format!(" on {link}")).unwrap_or_default();
    Some(HostNetwork {
        range: IpRange::new(address, prefix),
        description: format!("the address {address}/{prefix}{place}"),
    })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Host, in_fresh_namespace, run};

    fn range(text: &str) -> IpRange {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_overlap_by_prefix_and_not_by_text() {
        for (a, b, overlap) in [
            ("10.244.0.0/16", "10.244.0.0/16", true),
            ("10.244.0.0/16", "10.244.7.9/32", true),
            ("10.240.0.0/12", "10.244.0.0/16", true),
            ("10.244.0.0/16", "10.245.0.0/16", false),
            ("10.96.0.0/12", "10.112.0.0/12", false),
            ("0.0.0.0/0", "192.0.2.0/24", true),
            ("fd00::/64", "fd00::1/128", true),
            ("fd00::/64", "fd00:0:0:1::/64", false),
            ("::/0", "10.0.0.0/8", false),
        ] {
            assert_eq!(range(a).overlaps(&range(b)), overlap, "{a} {b}");
            assert_eq!(range(b).overlaps(&range(a)), overlap, "{b} {a}");
        }
        assert_eq!(range("10.244.3.77/24").to_string(), "10.244.3.0/24");
        assert_eq!(range("fd00::77/64").to_string(), "fd00::/64");
        for bad in [
            "",
            "banana",
            "10.0.0.0",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/+8",
        ] {
            assert!(bad.parse::<IpRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_machines_networks_are_found_and_ours_are_not_among_them() {
        in_fresh_namespace(|| {
            for arguments in [
                "link add up0 type veth peer name up1",
                "link set up1 up",
                "address add 192.0.2.2/24 dev up0",
                "address add fd00:5::2/64 dev up0 nodad",
                "link set up0 up",
                "route add 10.200.0.0/16 via 192.0.2.9",
                "route add default via 10.96.0.1 dev up0 onlink",
                "route add 0.0.0.0/1 via 192.0.2.7",
                "route add 100.64.0.0/10 dev up0 table 52",
                "route add blackhole 10.50.0.0/16",
            ] {
                let words = std::iter::once("ip").chain(arguments.split(' '));
                run(&words.collect::<Vec<_>>());
            }
            let host = Host::new();
            let _pod = host.pod("a");
            let networks = host_networks().unwrap();
            let met = |text: &str| {
                let found = conflict(&range(text), &networks);
                found.map(|network| network.description.clone())
            };
            for (wanted, description) in [
                (
                    "10.192.0.0/12",
                    Some("the route 10.200.0.0/16 via 192.0.2.9 dev up0"),
                ),
                (
                    "10.96.0.0/12",
                    Some("the gateway of the default route via 10.96.0.1 dev up0"),
                ),
                ("192.0.2.128/25", Some("the route 192.0.2.0/24 dev up0")),
                ("100.100.0.0/16", Some("the route 100.64.0.0/10 dev up0")),
                ("fd00:5::/112", Some("the route fd00:5::/64 dev up0")),
                ("127.1.0.0/16", Some("the address 127.0.0.1/8 on lo")),
                // Default routes lead everywhere, and a blackhole route leads nowhere.
                ("10.50.0.0/16", None),
                ("172.16.0.0/12", None),
                ("2001:db8::/32", None),
                // Our own.
                ("10.244.0.0/16", None),
                ("10.97.0.0/16", None),
            ] {
                assert_eq!(
                    met(wanted).as_deref(),
                    description,
                    "{wanted}: {networks:?}"
                );
            }
        });
    }
}
