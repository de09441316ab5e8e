//! From a Service to its endpoints, as the watch cache knows them: it works wherever the server
//! runs, also where no Service address is routed.

use std::net::SocketAddr;
use std::sync::Arc;

use api::Value;

use crate::cache::key_of;
use crate::extension_servers::{Remote, ServiceReference};
use crate::server::Server;
use crate::subresources::addresses;

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Why a Service leads nowhere, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResolveError {
    #[error("service \"{0}\" not found")]
    NotFound(String),
    #[error("unsupported service type {0:?}")]
    Type(String),
    #[error("no service port {port} found for service {name:?}")]
    NoPort { name: String, port: u16 },
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
}

/// The Service, if it is there.
pub(super) fn service(server: &Server, reference: &ServiceReference) -> Option<Value> {
    let services = server.cache.named("", "services");
    let entry = services.get(&key_of(&reference.namespace, &reference.name))?;
    entry.object().ok()
}

/// The name of the Service's port, if it has that port.
pub(super) fn port_name(service: &Value, port: u16) -> Option<&str> {
    let mut ports = service.list_at(&["spec", "ports"]).iter();
    let found = ports.find(|known| known.i64_at(&["port"]) == Some(port.into()))?;
    Some(found.str_at(&["name"]))
}

/// The EndpointSlices of a Service. This looks at all slices of its namespace, so what is found is
/// kept until one of them changes.
pub(super) fn slices(server: &Server, reference: &ServiceReference) -> Vec<Value> {
    let kind = server.cache.named("discovery.k8s.io", "endpointslices");
    let snapshot = server.cache.snapshot(&kind);
    let prefix = format!("{}/", reference.namespace);
    let of_namespace = snapshot.range(&prefix, "");
    of_namespace
        .filter(|entry| entry.label(SERVICE_NAME) == Some(reference.name.as_str()))
        .filter_map(|entry| entry.object().ok())
        .collect()
}

/// The number of the port that has this name in a slice.
pub(super) fn slice_port(slice: &Value, name: &str) -> Option<u16> {
    let mut ports = slice.list_at(&["ports"]).iter();
    let found = ports.find(|port| port.str_at(&["name"]) == name && port.has(&["port"]))?;
    u16::try_from(found.i64_at(&["port"])?).ok()
}

/// Whether an endpoint takes requests.
pub(super) fn is_ready(endpoint: &Value) -> bool {
    let ready = endpoint.at(&["conditions", "ready"]);
    ready.and_then(Value::as_bool).unwrap_or(true)
}

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
    let ServiceReference { name, port, .. } = reference;
    let service = service(server, reference);
    let service = service.ok_or_else(|| ResolveError::NotFound(name.clone()))?;
    let kind = service.str_at(&["spec", "type"]);
    if !matches!(kind, "ClusterIP" | "LoadBalancer" | "NodePort") {
        return Err(ResolveError::Type(kind.to_string()));
    }
    let port_name = port_name(&service, *port).ok_or_else(|| ResolveError::NoPort {
        name: name.clone(),
        port: *port,
    })?;
    let families = service.list_at(&["spec", "ipFamilies"]);
    let family = families.first().and_then(Value::as_str).unwrap_or("IPv4");
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for slice in slices(server, reference) {
        let Some(number) = slice_port(&slice, port_name) else {
            continue;
        };
        let ready = slice.list_at(&["endpoints"]).iter();
        for endpoint in ready.filter(|endpoint| is_ready(endpoint)) {
            let address = endpoint.list_at(&["addresses"]).first();
            let address = address.and_then(Value::as_str).unwrap_or_default();
            // Users write slices: one must not lead the server to itself or to its own machine.
            let Ok(address) = addresses::of_backend(server, address, number) else {
                continue;
            };
            match slice.str_at(&["addressType"]) == family {
                true => first.push(address),
                false => others.push(address),
            }
        }
    }
    let found = if first.is_empty() { others } else { first };
    match found.is_empty() {
        true => Err(ResolveError::NoEndpoints(name.clone())),
        false => Ok(found),
    }
}
