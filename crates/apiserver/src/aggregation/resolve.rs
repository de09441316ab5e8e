//! The endpoints of the Service behind an APIService, kept until the Service or one of its slices
//! changes.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::extension_servers::{Remote, ServiceReference};
use crate::server::Server;
use crate::service_endpoints::{self, ResolveError};
use crate::subresources::addresses;

/// The endpoints that take requests, those of the Service's first address family if it has some.
pub(super) fn endpoints(
    server: &Server,
    remote: &Remote,
) -> Result<Arc<Vec<SocketAddr>>, ResolveError> {
    if let Some(known) = &*remote.lasting.endpoints.lock() {
        return Ok(known.clone());
    }
    let found = Arc::new(find(server, &remote.specification.service)?);
    *remote.lasting.endpoints.lock() = Some(found.clone());
    Ok(found)
}

/// One of the endpoints, chosen at random.
pub(super) fn endpoint(server: &Server, remote: &Remote) -> Result<SocketAddr, ResolveError> {
    let found = endpoints(server, remote)?;
    let choice = server.environment.random_u64() % (found.len() as u64).max(1);
    let name = &remote.specification.service.name;
    let chosen = found.get(choice as usize).copied();
    chosen.ok_or_else(|| ResolveError::NoEndpoints(name.clone()))
}

fn find(server: &Server, reference: &ServiceReference) -> Result<Vec<SocketAddr>, ResolveError> {
    let (namespace, name) = (&reference.namespace, &reference.name);
    let service = service_endpoints::service(&server.cache, namespace, name)?;
    let kind = service.str_at(&["spec", "type"]);
    if !matches!(kind, "ClusterIP" | "LoadBalancer" | "NodePort") {
        return Err(ResolveError::Type(kind.to_string()));
    }
    let port_name = service_endpoints::port_name(&service, name, reference.port.into())?;
    let slices = service_endpoints::slices(&server.cache, namespace, name);
    // Users write slices: one must not lead the server to itself or to its own machine.
    let accept = |address: &str, port| addresses::of_backend(server, address, port).ok();
    let found = service_endpoints::endpoints(&service, &slices, port_name, accept);
    match found.is_empty() {
        true => Err(ResolveError::NoEndpoints(name.clone())),
        false => Ok(found),
    }
}
