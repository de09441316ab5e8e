//! The test kit: a whole cluster in this process, on a fake node, within milliseconds; and the
//! seeded simulation that crashes its parts at any moment. For tests only.

pub mod cluster;
pub mod fake_node;
pub mod network;
pub mod pki;
pub mod simulation;
pub mod swap;

pub use cluster::{Builder, Cluster, Part};
pub use fake_node::{FakeNode, Machine};
pub use network::{Faults, Network};
