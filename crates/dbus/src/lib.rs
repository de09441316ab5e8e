//! A small D-Bus client that calls methods, receives signals and passes file descriptors over a Unix
//! socket, and the calls to systemd that are made with it. Arrays and structures are written and never
//! read, since no answer that is used has any.
//!
//! It is our own because zbus, the crate of the field, adds some ten crates (zvariant, zbus_names,
//! zbus_macros, async-broadcast, event-listener, ...) and a background task per connection to the
//! binary, for a handful of calls that short-lived processes make too.

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
    #[error("the bus sent a malformed message: {0}")]
    Protocol(&'static str),
    #[error("the bus refused the connection: {0}")]
    Refused(String),
    #[error("{name}: {text}")]
    Method { name: String, text: String },
    #[error("systemd's job for {unit} ended as {result:?}")]
    Job { unit: String, result: String },
}
