//! Netlink: messages as bytes (`message`), a blocking connection (`connection`), the requests for
//! links, addresses, routes and neighbours (`route`) and tracked connections (`conntrack`).
//! The nf_tables codec is in `crate::nft`.
//!
//! It is our own because we use about twenty requests and need them blocking, on a thread inside a
//! pod's namespace; the rtnetlink crates are asynchronous and bring a codec of every attribute.

mod connection;
pub mod conntrack;
pub mod message;
pub mod route;

pub use connection::{Connection, Reply, Request};

/// What can go wrong in a conversation with the kernel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot open a netlink socket")]
    Open(#[source] std::io::Error),
    #[error("netlink transfer failed")]
    Transfer(#[source] std::io::Error),
    #[error("{what}: {}", std::io::Error::from_raw_os_error(*errno))]
    Refused { what: String, errno: i32 },
    #[error("{what}: the kernel's answer is malformed")]
    Malformed { what: String },
    #[error("a batch of {bytes} bytes is over the limit")]
    TooLarge { bytes: usize },
}

impl Error {
    /// The kernel's error number, when the kernel refused a request.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Refused { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}
