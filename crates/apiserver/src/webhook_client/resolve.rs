//! From a Service to one of its endpoints, as the watch cache knows them: it works wherever the
//! server runs, also where no Service address is routed.

use std::net::SocketAddr;
use std::sync::Arc;

use api::Value;
use environment::Environment;

use crate::cache::{Cache, CachedObject, key_of};

/// Who carries a Service's endpoint in its label.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Finds where to dial for a Service. Injected, so that a node tunnel can stand in its place.
pub(crate) trait ResolveServices: Send + Sync {
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<Place, ResolveError>;
}

/// Where to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Address(SocketAddr),
    /// Of a Service that only stands for a name elsewhere.
    Host(String, u16),
}

/// Why a Service leads nowhere, in upstream's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("service {0:?} not found")]
    NotFound(String),
    #[error("no service port {port} found for service {name:?}")]
    NoPort { name: String, port: u16 },
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
}

/// Services and EndpointSlices as the watch cache has them.
pub(crate) struct CachedServices {
    cache: Arc<Cache>,
    environment: Environment,
}

impl CachedServices {
    pub fn new(cache: Arc<Cache>, environment: Environment) -> CachedServices {
        CachedServices { cache, environment }
    }

    /// The slices of a Service, those of its first address family first.
    fn slices(&self, namespace: &str, name: &str, family: &str) -> Vec<Value> {
        let kind = self.cache.named("discovery.k8s.io", "endpointslices");
        let snapshot = self.cache.snapshot(&kind);
        let prefix = format!("{namespace}/");
        let of_service = |entry: &&Arc<CachedObject>| entry.label(SERVICE_NAME) == Some(name);
        let mut slices: Vec<Value> = snapshot
            .range(&prefix, "")
            .filter(of_service)
            .filter_map(|entry| entry.object().ok())
            .collect();
        slices.sort_by_key(|slice| slice.str_at(&["addressType"]) != family);
        slices
    }
}

impl ResolveServices for CachedServices {
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<Place, ResolveError> {
        let services = self.cache.named("", "services");
        let service = services.get(&key_of(namespace, name));
        let service = service.and_then(|entry| entry.object().ok());
        let service = service.ok_or_else(|| ResolveError::NotFound(name.to_string()))?;
        if service.str_at(&["spec", "type"]) == "ExternalName" {
            let host = service.str_at(&["spec", "externalName"]);
            return Ok(Place::Host(host.to_string(), port));
        }
        let mut ports = service.list_at(&["spec", "ports"]).iter();
        let known = ports.find(|known| known.i64_at(&["port"]) == Some(port.into()));
        let known = known.ok_or_else(|| ResolveError::NoPort {
            name: name.to_string(),
            port,
        })?;
        let families = service.list_at(&["spec", "ipFamilies"]);
        let family = families.first().and_then(Value::as_str);
        let slices = self.slices(namespace, name, family.unwrap_or("IPv4"));
        for slice in &slices {
            let ready = ready_addresses(slice, known.str_at(&["name"]));
            if let Some(count) = std::num::NonZeroU64::new(ready.len() as u64) {
                let choice = self.environment.random_u64() % count;
                return Ok(Place::Address(ready[choice as usize]));
            }
        }
        Err(ResolveError::NoEndpoints(name.to_string()))
    }
}

/// The addresses of the endpoints that take calls at the port of this name. What an EndpointSlice
/// may contain was checked when it was written: no loopback and no link-local addresses.
fn ready_addresses(slice: &Value, port: &str) -> Vec<SocketAddr> {
    let mut ports = slice.list_at(&["ports"]).iter();
    let known = ports.find(|known| known.str_at(&["name"]) == port);
    let number = known.and_then(|known| known.i64_at(&["port"]));
    let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else {
        return Vec::new();
    };
    let endpoints = slice.list_at(&["endpoints"]).iter();
    let ready = endpoints.filter(|endpoint| {
        let ready = endpoint.at(&["conditions", "ready"]);
        ready.and_then(Value::as_bool).unwrap_or(true)
    });
    let first = ready.filter_map(|endpoint| endpoint.list_at(&["addresses"]).first()?.as_str());
    first
        .filter_map(|address| Some(SocketAddr::new(address.parse().ok()?, number)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ready_endpoints_of_the_named_port_are_dialled() {
        let slice = api::document!({
            "ports": [{"name": "metrics", "port": 9090}, {"name": "https", "port": 8443}],
            "endpoints": [
                {"addresses": ["10.1.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.1.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.1.0.3", "10.1.0.4"]},
            ],
        });
        let found: Vec<String> = ready_addresses(&slice, "https")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, ["10.1.0.1:8443", "10.1.0.3:8443"]);
        assert!(ready_addresses(&slice, "grpc").is_empty());
    }
}
