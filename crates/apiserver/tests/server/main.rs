//! The API server in process, over the real store engine on a simulated disk.

mod access;
mod admission;
mod bad_input;
mod harness;
mod lifecycle;
mod lists;
mod patches;
mod protobuf;
mod subresources;
mod tls;
mod versions;
mod watches;
