//! The test kit: a whole cluster with fake nodes in this process, which starts within milliseconds,
//! and the seeded simulation that crashes its components at any moment. For tests only.

pub mod cluster;
pub mod fake_node;
pub mod network;
pub mod pki;
pub mod simulation;
pub mod swap;

pub use cluster::{Builder, Cluster, Crash, Part};
pub use fake_node::{FakeNode, Machine};
pub use network::{Faults, Network};

/// Waits until `find` returns something. `what` names it in the panic message.
pub async fn eventually<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = find().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(120), looking)
        .await
        .unwrap_or_else(|_| panic!("waited too long for: {what}"))
}
