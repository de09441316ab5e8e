//! The runtime with real containers: a server process of `examples/node`, a real CRI client, an
//! image made of busybox-static on the spot, Debian's CNI plugins. Needs root.

mod exposure;
mod faults;
mod image;
mod images;
mod isolation;
mod leaks;
mod lifecycle;
mod network;
mod proxy;
mod pulls;
mod recovery;
mod registry;
mod security;
mod server;
mod soak;
mod streams;
mod volumes;
