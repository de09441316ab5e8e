//! SPDY/3.1 as Kubernetes uses it: many streams on one connection that was an HTTP/1.1 request.
//! There is no flow control by window: the other implementations neither send nor honour window
//! updates, so the transport's own back-pressure is the flow control, as it is with them.

mod connection;
mod decode_error;
mod dictionary;
mod frame;
mod header_block;
mod open_streams;

pub use crate::headers::Headers;
pub use connection::{Connection, Error, Incoming, Stream};
pub use decode_error::DecodeError;
pub use frame::{Decoder, Encoder, Event};
pub use open_streams::Role;
