//! An IPv4 subnet in CIDR notation.

use std::net::Ipv4Addr;
use std::str::FromStr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A network address and its prefix length; host bits are always zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subnet(Ipv4Net);

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not an IPv4 subnet like 10.244.0.0/24")]
pub struct SubnetError(String);

impl Subnet {
    /// Clears the host bits of `address`. A prefix above 32 counts as 32.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Subnet {
        Subnet(Ipv4Net::new_assert(address, prefix.min(32)).trunc())
    }

    pub fn address(&self) -> Ipv4Addr {
        self.0.addr()
    }

    pub fn prefix(&self) -> u8 {
        self.0.prefix_len()
    }

    pub fn mask(&self) -> Ipv4Addr {
        self.0.netmask()
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.0.contains(&address)
    }

    /// The first address a host may have; the gateway by convention.
    pub fn first(&self) -> Ipv4Addr {
        let first = u32::from(self.address());
        Ipv4Addr::from(first.saturating_add(u32::from(self.prefix() < 31)))
    }

    /// The last address a host may have (not the broadcast address).
    pub fn last(&self) -> Ipv4Addr {
        let top = u32::from(self.0.broadcast());
        Ipv4Addr::from(top - u32::from(self.prefix() < 31))
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Subnet {
    type Err = SubnetError;

    fn from_str(text: &str) -> Result<Subnet, SubnetError> {
        let subnet: Ipv4Net = text.parse().map_err(|_| SubnetError(text.to_owned()))?;
        Ok(Subnet(subnet.trunc()))
    }
}

impl Serialize for Subnet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Subnet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Subnet, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_know_their_bounds_and_members() {
        let subnet: Subnet = "10.244.3.77/24".parse().unwrap();
        assert_eq!(subnet.to_string(), "10.244.3.0/24");
        assert_eq!(subnet.first(), Ipv4Addr::new(10, 244, 3, 1));
        assert_eq!(subnet.last(), Ipv4Addr::new(10, 244, 3, 254));
        assert!(subnet.contains(Ipv4Addr::new(10, 244, 3, 255)));
        assert!(!subnet.contains(Ipv4Addr::new(10, 244, 4, 0)));
        let all: Subnet = "1.2.3.4/0".parse().unwrap();
        assert!(all.contains(Ipv4Addr::BROADCAST));
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "::/0", "x/8"] {
            assert!(bad.parse::<Subnet>().is_err(), "{bad}");
        }
    }
}
