//! The API server in process, over the real store engine on a simulated disk.

mod access;
mod addresses;
mod admission;
mod apply;
mod bad_input;
mod caches;
mod fine_print;
mod growth;
mod harness;
mod lifecycle;
mod lists;
mod namespaces;
mod nodes;
mod patches;
mod pod_security;
mod protobuf;
mod resource_limits;
mod several;
mod subresources;
mod tls;
mod versions;
mod watches;
