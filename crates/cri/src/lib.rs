//! The node-side contract: CRI v1 gRPC types, client and server code, and a client over a Unix
//! socket. It decides nothing: what to run is the kubelet's, how to run it the runtime's.

pub mod calls;
pub mod client;
mod deadline;

/// The generated types of package `runtime.v1`, with `runtime_service_client`,
/// `runtime_service_server`, `image_service_client` and `image_service_server`.
#[allow(clippy::all)]
#[allow(clippy::disallowed_methods)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

pub use client::{Calling, Client, Error};
pub use deadline::{Deadlined, with_time};

/// Names the registry and the user; never the password or a token.
impl std::fmt::Debug for v1::AuthConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("server_address", &self.server_address)
            .finish_non_exhaustive()
    }
}
