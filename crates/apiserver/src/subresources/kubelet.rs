//! Where kubelets listen.

use std::net::IpAddr;

use api::{Status, Value};

use super::addresses;
use crate::context::Context;

/// Where a node's kubelet listens. Every way to a kubelet begins here: what a node's status says is
/// checked before anything is dialled.
pub(crate) async fn locate(context: &Context, node: &str) -> Result<(IpAddr, u16), Status> {
    let nodes = context.server.cache.named("", "nodes");
    let node = context
        .server
        .objects
        .find(&nodes.resource, "", node)
        .await?;
    let node = node.object()?;
    let addresses = node.at(&["status", "addresses"]).and_then(Value::as_array);
    let address = addresses
        .into_iter()
        .flatten()
        .find(|address| address.str_at(&["type"]) == "InternalIP")
        .and_then(|address| address.str_at(&["address"]).parse().ok());
    let port = node
        .at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"])
        .and_then(Value::as_i64)
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0)
        .unwrap_or(10250);
    match address {
        Some(address) => {
            let place = addresses::of_kubelet(&context.server, address, port)?;
            Ok((place.ip(), place.port()))
        }
        None => Err(Status::internal(format_args!(
            "no preferred addresses found; known addresses: []"
        ))),
    }
}
