//! From a Service to its endpoints, as the watch cache knows them: it works wherever the server
//! runs, also where no Service address is routed. Admission webhooks, extension API servers and the
//! proxy to Services are reached this way.

use std::net::SocketAddr;

use api::Value;

use crate::cache::{Cache, key_of};

/// The label of an EndpointSlice that names its Service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Why a Service leads nowhere, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("service {0:?} not found")]
    NotFound(String),
    #[error("unsupported service type {0:?}")]
    Type(String),
    #[error("no service port {port} found for service {name:?}")]
    NoPort { name: String, port: i64 },
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
}

pub(crate) fn service(cache: &Cache, namespace: &str, name: &str) -> Result<Value, ResolveError> {
    let entry = cache.named("", "services").get(&key_of(namespace, name));
    let service = entry.and_then(|entry| entry.object().ok());
    service.ok_or_else(|| ResolveError::NotFound(name.to_string()))
}

/// The name of a port of the Service, by which its EndpointSlices know the port.
pub(crate) fn port_name<'a>(
    service: &'a Value,
    name: &str,
    port: i64,
) -> Result<&'a str, ResolveError> {
    let mut ports = service.list_at(&["spec", "ports"]).iter();
    match ports.find(|known| known.i64_at(&["port"]) == Some(port)) {
        Some(known) => Ok(known.str_at(&["name"])),
        None => Err(ResolveError::NoPort {
            name: name.to_string(),
            port,
        }),
    }
}

/// The EndpointSlices of a Service. This looks at all slices of its namespace.
pub(crate) fn slices(cache: &Cache, namespace: &str, name: &str) -> Vec<Value> {
    let kind = cache.named("discovery.k8s.io", "endpointslices");
    let snapshot = cache.snapshot(&kind);
    let prefix = format!("{namespace}/");
    let of_namespace = snapshot.range(&prefix, "");
    of_namespace
        .filter(|entry| entry.label(SERVICE_NAME) == Some(name))
        .filter_map(|entry| entry.object().ok())
        .collect()
}

/// The number of the port that has this name in a slice.
pub(crate) fn slice_port(slice: &Value, name: &str) -> Option<u16> {
    let mut ports = slice.list_at(&["ports"]).iter();
    let found = ports.find(|port| port.str_at(&["name"]) == name && port.has(&["port"]))?;
    u16::try_from(found.i64_at(&["port"])?).ok()
}

/// The endpoints of a slice that take requests.
pub(crate) fn ready(slice: &Value) -> impl Iterator<Item = &Value> {
    let endpoints = slice.list_at(&["endpoints"]).iter();
    endpoints.filter(|endpoint| {
        let ready = endpoint.at(&["conditions", "ready"]);
        ready.and_then(Value::as_bool).unwrap_or(true)
    })
}

/// The address at which an endpoint is dialled.
pub(crate) fn first_address(endpoint: &Value) -> Option<&str> {
    endpoint.list_at(&["addresses"]).first()?.as_str()
}

/// The ready endpoints of a port, those of the Service's first address family if there are some.
/// `accept` says which addresses may be dialled.
pub(crate) fn endpoints(
    service: &Value,
    slices: &[Value],
    port_name: &str,
    accept: impl Fn(&str, u16) -> Option<SocketAddr>,
) -> Vec<SocketAddr> {
    let families = service.list_at(&["spec", "ipFamilies"]);
    let family = families.first().and_then(Value::as_str).unwrap_or("IPv4");
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for slice in slices {
        let Some(number) = slice_port(slice, port_name) else {
            continue;
        };
        let addresses = ready(slice).filter_map(first_address);
        let accepted = addresses.filter_map(|address| accept(address, number));
        match slice.str_at(&["addressType"]) == family {
            true => first.extend(accepted),
            false => others.extend(accepted),
        }
    }
    if first.is_empty() { others } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ready_endpoints_of_the_named_port_and_first_family_are_dialled() {
        let service = api::document!({"spec": {"ipFamilies": ["IPv6", "IPv4"],
            "ports": [{"name": "https", "port": 443}]}});
        assert_eq!(port_name(&service, "s", 443), Ok("https"));
        let missing = port_name(&service, "s", 444).unwrap_err().to_string();
        assert_eq!(missing, "no service port 444 found for service \"s\"");
        let slice = |family: &str, addresses: [&str; 3]| {
            let [ready, unready, unknown] = addresses;
            api::document!({
                "addressType": family,
                "ports": [{"name": "metrics", "port": 9090}, {"name": "https", "port": 8443}],
                "endpoints": [
                    {"addresses": [ready], "conditions": {"ready": true}},
                    {"addresses": [unready], "conditions": {"ready": false}},
                    {"addresses": [unknown, "192.0.2.9"]},
                ],
            })
        };
        let old = slice("IPv4", ["10.1.0.1", "10.1.0.2", "10.1.0.3"]);
        let new = slice("IPv6", ["fd00::1", "fd00::2", "fd00::3"]);
        let found = |slices: &[Value], port: &str| -> Vec<String> {
            let accept = |address: &str, port| Some(SocketAddr::new(address.parse().ok()?, port));
            let found = endpoints(&service, slices, port, accept).into_iter();
            found.map(|address| address.to_string()).collect()
        };
        let both = [old.clone(), new];
        assert_eq!(found(&both, "https"), ["[fd00::1]:8443", "[fd00::3]:8443"]);
        assert_eq!(found(&[old], "https"), ["10.1.0.1:8443", "10.1.0.3:8443"]);
        assert!(found(&both, "grpc").is_empty());
    }
}
