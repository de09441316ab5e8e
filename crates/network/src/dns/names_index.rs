//! What `zone` looks names up in: Services with their endpoints, and addresses with their names.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use client::{Change, ObjectKey};
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::service_index::ServiceIndex;

/// An endpoint as DNS sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedEndpoint {
    /// The pod's hostname, or its address with dashes.
    pub name: String,
    pub address: Ipv4Addr,
}

/// A port that SRV records speak of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedPort {
    pub name: String,
    /// Lower case.
    pub protocol: String,
    pub number: u16,
}

/// The addresses that a Service's name resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    ClusterIp {
        address: Ipv4Addr,
        ports: Vec<NamedPort>,
    },
    Headless {
        endpoints: BTreeMap<NamedEndpoint, BTreeSet<NamedPort>>,
    },
    External {
        name: String,
    },
}

#[derive(Default)]
pub struct NamesIndex {
    index: ServiceIndex,
    targets: BTreeMap<ObjectKey, Target>,
    pods: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// Address → Services that use it as their own or for an endpoint of a headless one.
    addresses: BTreeMap<Ipv4Addr, BTreeSet<ObjectKey>>,
}

impl NamesIndex {
    pub fn target(&self, namespace: &str, service: &str) -> Option<&Target> {
        self.targets.get(&ObjectKey::new(namespace, service))
    }

    pub fn knows_namespace(&self, namespace: &str) -> bool {
        self.index.knows_namespace(namespace)
    }

    /// (labels before the Service, Service) of an address.
    pub fn names_of(&self, address: Ipv4Addr) -> Vec<(Option<String>, ObjectKey)> {
        let services = self.addresses.get(&address).into_iter().flatten();
        services
            .filter_map(|key| match self.targets.get(key)? {
                Target::ClusterIp { .. } => Some((None, key.clone())),
                Target::Headless { endpoints } => {
                    let endpoint = endpoints
                        .keys()
                        .find(|endpoint| endpoint.address == address)?;
                    Some((Some(endpoint.name.clone()), key.clone()))
                }
                Target::External { .. } => None,
            })
            .collect()
    }

    /// Returns the UIDs of pods that became endpoints.
    pub fn note_service(&mut self, change: Change<Service>) -> Vec<String> {
        let key = self.index.note_service(change);
        key.map(|key| self.refresh(&key)).unwrap_or_default()
    }

    /// Returns the UIDs of pods that became endpoints.
    pub fn note_slice(&mut self, change: Change<EndpointSlice>) -> Vec<String> {
        let keys = self.index.note_slice(change);
        keys.iter().flat_map(|key| self.refresh(key)).collect()
    }

    fn refresh(&mut self, key: &ObjectKey) -> Vec<String> {
        for address in self.targets.remove(key).iter().flat_map(addresses_of) {
            if let Some(services) = self.addresses.get_mut(&address) {
                services.remove(key);
                if services.is_empty() {
                    self.addresses.remove(&address);
                }
            }
        }
        let target = self
            .index
            .service(key)
            .and_then(|service| target_of(service, self.index.slices(key)));
        let Some(target) = target else {
            self.pods.remove(key);
            return Vec::new();
        };
        for address in addresses_of(&target) {
            self.addresses
                .entry(address)
                .or_default()
                .insert(key.clone());
        }
        self.targets.insert(key.clone(), target);
        let pods: BTreeSet<String> = self
            .index
            .slices(key)
            .flat_map(ready)
            .filter_map(|endpoint| endpoint.target_ref.as_ref()?.uid.clone())
            .collect();
        let known = self
            .pods
            .insert(key.clone(), pods.clone())
            .unwrap_or_default();
        pods.difference(&known).cloned().collect()
    }
}

fn addresses_of(target: &Target) -> Vec<Ipv4Addr> {
    match target {
        Target::ClusterIp { address, .. } => vec![*address],
        Target::Headless { endpoints } => {
            endpoints.keys().map(|endpoint| endpoint.address).collect()
        }
        Target::External { .. } => Vec::new(),
    }
}

fn target_of<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a EndpointSlice>,
) -> Option<Target> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return Some(Target::External {
            name: spec.external_name.clone()?,
        });
    }
    match spec.cluster_ip.as_deref()? {
        "None" => Some(Target::Headless {
            endpoints: endpoints_of(slices),
        }),
        address => Some(Target::ClusterIp {
            address: address.parse().ok()?,
            ports: spec
                .ports
                .iter()
                .flatten()
                .filter_map(service_port)
                .collect(),
        }),
    }
}

fn endpoints_of<'a>(
    slices: impl Iterator<Item = &'a EndpointSlice>,
) -> BTreeMap<NamedEndpoint, BTreeSet<NamedPort>> {
    let mut endpoints: BTreeMap<NamedEndpoint, BTreeSet<NamedPort>> = BTreeMap::new();
    for slice in slices.filter(|slice| slice.address_type == "IPv4") {
        let ports: Vec<NamedPort> = slice
            .ports
            .iter()
            .flatten()
            .filter_map(|port| {
                named_port(
                    port.name.as_deref(),
                    port.protocol.as_deref(),
                    port.port.unwrap_or(0),
                )
            })
            .collect();
        for endpoint in ready(slice) {
            for address in endpoint
                .addresses
                .iter()
                .filter_map(|address| address.parse::<Ipv4Addr>().ok())
            {
                let name = match endpoint.hostname.as_deref() {
                    Some(hostname) if !hostname.is_empty() => hostname.to_lowercase(),
                    _ => address.to_string().replace('.', "-"),
                };
                endpoints
                    .entry(NamedEndpoint { name, address })
                    .or_default()
                    .extend(ports.iter().cloned());
            }
        }
    }
    endpoints
}

fn ready(
    slice: &EndpointSlice,
) -> impl Iterator<Item = &k8s_openapi::api::discovery::v1::Endpoint> {
    slice.endpoints.iter().flatten().filter(|endpoint| {
        endpoint
            .conditions
            .as_ref()
            .is_none_or(|conditions| conditions.ready.unwrap_or(true))
    })
}

fn service_port(port: &ServicePort) -> Option<NamedPort> {
    named_port(port.name.as_deref(), port.protocol.as_deref(), port.port)
}

fn named_port(name: Option<&str>, protocol: Option<&str>, number: i32) -> Option<NamedPort> {
    Some(NamedPort {
        name: name.unwrap_or_default().to_lowercase(),
        protocol: protocol.unwrap_or("TCP").to_lowercase(),
        number: u16::try_from(number).ok().filter(|number| *number > 0)?,
    })
}
