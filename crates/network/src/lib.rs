//! The node's network: the CNI plugin, the service proxy and the cluster's DNS.
//!
//! Everything speaks netlink directly (`netlink`, `nft`); no external command is run. Kernel-visible
//! names carry the cluster id (six hex characters), so several clusters share one machine and each
//! removes exactly its own. IPv4 only for now.
#![allow(unsafe_code)]

pub mod cni;
pub mod dns;
#[cfg(test)]
mod end_to_end_tests;
pub mod host_ranges;
mod names;
pub mod netlink;
pub mod nft;
pub mod node;
pub mod peers;
pub mod proxy;
mod service_index;
mod subnet;
#[cfg(test)]
mod testing;

pub use node::NodeNetwork;
pub use subnet::{Subnet, SubnetError};
