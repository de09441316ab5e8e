//! HTTPS listeners that cannot be filled up: time limits and connection limits for the API server
//! and the kubelet. It knows nothing of what is served.
//!
//! A connection belongs to its peer's address until a request has shown a valid credential; from
//! then on it belongs to that user. Both are bounded, see [`Bounds`], and a share of the process's
//! file descriptors is never given to connections.

mod activity;
mod bounds;
mod connection;
pub mod descriptors;
mod ledger;
mod listener;
mod watched_stream;

pub use bounds::Bounds;
pub use connection::Connected;
pub use ledger::{Counts, Ledger, Slot, TooManyConnections};
pub use listener::serve;
