//! A range of IPv4 addresses that Services get theirs from.

use std::net::Ipv4Addr;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub network: u32,
    pub bits: u8,
}

impl Range {
    /// An IPv4 range of a size that can be used for Services.
    pub fn parse(text: &str) -> Option<Range> {
        let (network, bits) = text.split_once('/')?;
        let network: Ipv4Addr = network.parse().ok()?;
        let bits: u8 = bits.parse().ok().filter(|bits| (8..=30).contains(bits))?;
        let mask = u32::MAX << (32 - u32::from(bits));
        Some(Range {
            network: u32::from(network) & mask,
            bits,
        })
    }

    pub fn size(self) -> u32 {
        1u32.checked_shl(32 - u32::from(self.bits))
            .unwrap_or(u32::MAX)
    }

    /// Neither the network's nor the broadcast address.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(self.network);
        offset > 0 && offset < self.size() - 1
    }
}
