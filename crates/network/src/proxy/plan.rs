//! From Services and EndpointSlices to what the kernel should know: which address leads to which
//! endpoints. Pure; nothing here speaks to the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint as SliceEndpoint, EndpointSlice};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const SCTP: u8 = 132;

/// An address and port, or a node port, at which clients reach a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frontend {
    Address {
        address: Ipv4Addr,
        protocol: u8,
        port: u16,
    },
    /// On the node's own addresses (`Ranges::node_addresses`).
    NodePort { protocol: u8, port: u16 },
}

impl Frontend {
    pub fn protocol(&self) -> u8 {
        match self {
            Frontend::Address { protocol, .. } | Frontend::NodePort { protocol, .. } => *protocol,
        }
    }
}

/// The address and port of a pod (or another backend) behind a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    pub address: Ipv4Addr,
    pub port: u16,
}

/// The endpoints behind a frontend, sorted; none means that connections are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backends {
    pub endpoints: Vec<Endpoint>,
    /// Clients stay with their endpoint as long as they come back within this time.
    pub affinity_seconds: Option<u32>,
}

/// What entitles a Service to a frontend. The strongest right comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// The node's own resolver answers at the address of the DNS Service.
    Resolver,
    /// The API server gave the ClusterIP or the node port to this Service alone.
    Allocated,
    /// A load balancer wrote the address into the Service's status.
    LoadBalancer,
    /// The Service's author named the address among its `externalIPs`.
    ExternalIp,
}

impl Right {
    /// Whether the whole address is the Service's, regardless of its ports.
    pub fn owns_address(self) -> bool {
        matches!(self, Right::Resolver | Right::Allocated)
    }
}

/// Everything one Service asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePlan {
    pub frontends: BTreeMap<Frontend, Backends>,
    /// The rights to addresses other than the ClusterIP.
    pub rights: BTreeMap<Ipv4Addr, Right>,
    /// When the Service was created, in seconds since the epoch.
    pub created: i64,
    /// UIDs of the pods among the endpoints.
    pub pods: BTreeSet<String>,
}

impl ServicePlan {
    /// By what right the Service asks for the frontend.
    pub fn right(&self, frontend: &Frontend) -> Right {
        let lent = match frontend {
            Frontend::Address { address, .. } => self.rights.get(address),
            Frontend::NodePort { .. } => None,
        };
        lent.copied().unwrap_or(Right::Allocated)
    }
}

/// Over this many endpoints the rest of a Service's is not used (upstream has no such number; a
/// slice set this large would not fit one node anyway).
const MOST_ENDPOINTS: usize = 10_000;
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;

/// What the Service wants on the node called `node`. `None` when it has no virtual address.
pub fn plan<'a>(
    service: &Service,
    slices: impl IntoIterator<Item = &'a EndpointSlice> + Clone,
    node: &str,
) -> Option<ServicePlan> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    let cluster_ip: Ipv4Addr = spec.cluster_ip.as_deref()?.parse().ok()?;
    let affinity_seconds = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
        let configured = spec
            .session_affinity_config
            .as_ref()
            .and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
        configured
            .unwrap_or(DEFAULT_AFFINITY_SECONDS)
            .clamp(1, 86_400) as u32
    });
    let internal_only_local = spec.internal_traffic_policy.as_deref() == Some("Local");
    let external_only_local = spec.external_traffic_policy.as_deref() == Some("Local");

    let mut rights: BTreeMap<Ipv4Addr, Right> = spec
        .external_ips
        .iter()
        .flatten()
        .filter_map(|ip| Some((ip.parse().ok()?, Right::ExternalIp)))
        .collect();
    let ingress = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    for ingress in ingress.into_iter().flatten() {
        if ingress.ip_mode.as_deref() != Some("Proxy")
            && let Some(address) = ingress.ip.as_deref().and_then(|ip| ip.parse().ok())
        {
            rights.insert(address, Right::LoadBalancer);
        }
    }
    rights.remove(&cluster_ip);

    let created = service.metadata.creation_timestamp.as_ref();
    let mut plan = ServicePlan {
        created: created.map_or(i64::MAX, |time| time.0.as_second()),
        ..ServicePlan::default()
    };
    for port in spec.ports.iter().flatten() {
        let (Some(protocol), Some(number)) = (
            protocol_number(port.protocol.as_deref()),
            port_number(port.port),
        ) else {
            continue;
        };
        let mut backends = |only_local: bool| {
            let (endpoints, pods) = endpoints_of(port, slices.clone(), only_local.then_some(node));
            plan.pods.extend(pods);
            Backends {
                endpoints,
                affinity_seconds,
            }
        };
        let internal = backends(internal_only_local);
        let node_port = port.node_port.and_then(port_number);
        let external =
            (node_port.is_some() || !rights.is_empty()).then(|| backends(external_only_local));
        plan.frontends.insert(
            Frontend::Address {
                address: cluster_ip,
                protocol,
                port: number,
            },
            internal,
        );
        let Some(external) = external else { continue };
        for address in rights.keys() {
            let frontend = Frontend::Address {
                address: *address,
                protocol,
                port: number,
            };
            plan.frontends.insert(frontend, external.clone());
        }
        if let Some(port) = node_port {
            plan.frontends
                .insert(Frontend::NodePort { protocol, port }, external);
        }
    }
    plan.rights = rights;
    Some(plan)
}

/// The usable endpoints of one port: the ready ones, or, when there is none, those that still serve
/// while they terminate. With `only_on`, just those of that node.
fn endpoints_of<'a>(
    port: &ServicePort,
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
    only_on: Option<&str>,
) -> (Vec<Endpoint>, BTreeSet<String>) {
    let wanted_name = port.name.as_deref().unwrap_or("");
    let wanted_protocol = port.protocol.as_deref().unwrap_or("TCP");
    let (mut ready, mut draining) = (BTreeMap::new(), BTreeMap::new());
    for slice in slices
        .into_iter()
        .filter(|slice| slice.address_type == "IPv4")
    {
        let number = slice.ports.iter().flatten().find_map(|candidate| {
            let matches = candidate.name.as_deref().unwrap_or("") == wanted_name
                && candidate.protocol.as_deref().unwrap_or("TCP") == wanted_protocol;
            matches.then(|| candidate.port.and_then(port_number))?
        });
        let Some(number) = number else { continue };
        let endpoints = slice.endpoints.iter().flatten();
        for endpoint in endpoints
            .filter(|endpoint| only_on.is_none() || endpoint.node_name.as_deref() == only_on)
        {
            let group = match state(endpoint) {
                State::Ready => &mut ready,
                State::Draining => &mut draining,
                State::Unusable => continue,
            };
            // Upstream, too, uses the first address only: all of an endpoint's are equivalent.
            if let Some(address) = endpoint
                .addresses
                .first()
                .and_then(|address| address.parse().ok())
            {
                let pod = endpoint
                    .target_ref
                    .as_ref()
                    .filter(|target| target.kind.as_deref() == Some("Pod"));
                group.insert(
                    Endpoint {
                        address,
                        port: number,
                    },
                    pod.and_then(|pod| pod.uid.clone()),
                );
            }
        }
    }
    let chosen = if ready.is_empty() { draining } else { ready };
    let mut pods = BTreeSet::new();
    let endpoints = chosen
        .into_iter()
        .take(MOST_ENDPOINTS)
        .map(|(endpoint, pod)| {
            pods.extend(pod);
            endpoint
        })
        .collect();
    (endpoints, pods)
}

enum State {
    Ready,
    Draining,
    Unusable,
}

/// A missing condition counts as true, except `terminating`.
fn state(endpoint: &SliceEndpoint) -> State {
    let Some(conditions) = &endpoint.conditions else {
        return State::Ready;
    };
    let ready = conditions.ready.unwrap_or(true);
    match (
        ready,
        conditions.serving.unwrap_or(ready),
        conditions.terminating.unwrap_or(false),
    ) {
        (true, _, _) => State::Ready,
        (false, true, true) => State::Draining,
        _ => State::Unusable,
    }
}

fn protocol_number(name: Option<&str>) -> Option<u8> {
    match name.unwrap_or("TCP") {
        "TCP" => Some(TCP),
        "UDP" => Some(UDP),
        "SCTP" => Some(SCTP),
        _ => None,
    }
}

fn port_number(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|number| *number > 0)
}
