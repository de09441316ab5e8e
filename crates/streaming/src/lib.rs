//! The wire protocols of exec, attach and port-forward: Kubernetes' WebSocket channels, SPDY/3.1,
//! and SPDY inside WebSocket; server and client side, and the passing on of upgraded connections.
//!
//! It knows frames, streams and sessions. It knows no pod, no container and no API object: what
//! runs at the end of a session is the caller's.

mod headers;
pub mod port_forward;
pub mod proxy;
pub mod remote_command;
pub mod spdy;
mod streams;
pub mod upgrade;
pub mod websocket;

pub use streams::{Closed, Sink, Source};
pub use upgrade::Upgrade;
