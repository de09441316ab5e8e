//! A small D-Bus client: enough to call methods, hear signals and pass file descriptors over a
//! Unix socket, and what is asked of systemd with it. Arrays and structures are written and never
//! read: no answer that is looked at has any.

mod connection;
mod message;
pub mod slice;
pub mod systemd;

pub use connection::Connection;
pub use message::{Kind, Message, Value};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the bus cannot be reached")]
    Io(#[from] std::io::Error),
    #[error("the bus said something that is not D-Bus: {0}")]
    Protocol(&'static str),
    #[error("the bus did not let us in: {0}")]
    Refused(String),
    #[error("{name}: {text}")]
    Method { name: String, text: String },
    #[error("systemd's job for {unit} ended as {result:?}")]
    Job { unit: String, result: String },
}
