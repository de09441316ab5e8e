//! Where a Service is dialled that a webhook's configuration names.

use std::net::SocketAddr;
use std::sync::Arc;

use environment::Environment;

use crate::cache::Cache;
use crate::service_endpoints::{self, ResolveError};

/// Finds where to dial for a Service. Injected, so that a node tunnel can take its place.
pub(crate) trait ResolveServices: Send + Sync {
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<Place, ResolveError>;
}

/// Where to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Address(SocketAddr),
    /// Of a Service of type ExternalName.
    Host(String, u16),
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
}

impl ResolveServices for CachedServices {
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<Place, ResolveError> {
        let service = service_endpoints::service(&self.cache, namespace, name)?;
        if service.str_at(&["spec", "type"]) == "ExternalName" {
            let host = service.str_at(&["spec", "externalName"]);
            return Ok(Place::Host(host.to_string(), port));
        }
        let port_name = service_endpoints::port_name(&service, name, port.into())?;
        let slices = service_endpoints::slices(&self.cache, namespace, name);
        // What an EndpointSlice may contain was checked when it was written: no loopback and no
        // link-local addresses.
        let accept = |address: &str, port| Some(SocketAddr::new(address.parse().ok()?, port));
        let found = service_endpoints::endpoints(&service, &slices, port_name, accept);
        let choice = self
            .environment
            .random_u64()
            .checked_rem(found.len() as u64);
        match choice {
            Some(choice) => Ok(Place::Address(found[choice as usize])),
            None => Err(ResolveError::NoEndpoints(name.to_string())),
        }
    }
}
