//! The form in which errors of the runtime appear in statuses and events.

/// A gRPC error that is printed as Go prints it.
#[derive(Debug, thiserror::Error)]
#[error("{}", rpc_error(.0))]
pub struct RpcError(pub tonic::Status);

/// A gRPC error as Go prints it.
pub fn rpc_error(status: &tonic::Status) -> String {
    format!(
        "rpc error: code = {:?} desc = {}",
        status.code(),
        status.message()
    )
}
