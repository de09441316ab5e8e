//! What a node needs before its first pod: the link with the gateway address, routes that keep
//! service traffic on the machine, the table for egress and host ports, and an accept in foreign
//! forward chains that drop by default. And the removal of all of it, pods' links included.
//!
//! Not here: global sysctls (`ip_forward` is claimed by the caller) and service rules (`proxy`).

pub(crate) mod foreign;
pub mod table;

#[cfg(test)]
mod kernel_tests;

use std::net::Ipv4Addr;

use crate::names;
use crate::netlink::route::{self, Link, Route, RouteKind};
use crate::netlink::{self, Connection};
use crate::nft::{self, Batch, Transaction};
use crate::subnet::Subnet;

/// The addresses of one node of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNetwork {
    /// Six lower-case hex characters.
    pub cluster_id: String,
    /// This node's pods.
    pub pod_cidr: Subnet,
    /// All nodes' pods; traffic inside it is never masqueraded.
    pub cluster_cidr: Subnet,
    pub service_cidr: Subnet,
    pub dns_ip: Ipv4Addr,
    /// The pods' default gateway, an address of this node inside `pod_cidr`.
    pub gateway: Ipv4Addr,
    /// Of pod links; by default that of the link with the default route, else 1500.
    pub mtu: Option<u32>,
}

impl NodeNetwork {
    /// A one-node cluster: the gateway is the first address of the pods' range.
    pub fn new(
        cluster_id: impl Into<String>,
        pod_cidr: Subnet,
        service_cidr: Subnet,
        dns_ip: Ipv4Addr,
    ) -> NodeNetwork {
        NodeNetwork {
            cluster_id: cluster_id.into(),
            pod_cidr,
            cluster_cidr: pod_cidr,
            service_cidr,
            dns_ip,
            gateway: pod_cidr.first(),
            mtu: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is not a cluster id of six lower-case hex characters")]
    ClusterId(String),
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    #[error(transparent)]
    Nft(#[from] nft::Error),
}

/// Behind every route a user would set by hand, and behind our own route through the gateway link.
const UNREACHABLE_METRIC_BASE: u32 = 0x0100_0000;
const SERVICE_METRIC: u32 = 0x0080_0000;

/// Sets the node's network up; asked again, it only adds what is missing.
///
/// Two routes cover the service range. The one through the gateway link lets local processes begin
/// a connection (the address is translated only after the first routing decision); packets that no
/// rule translates end there. The unreachable one behind it holds should that link vanish. So no
/// packet for a service ever leaves the machine.
pub fn setup(network: &NodeNetwork) -> Result<(), Error> {
    check_id(&network.cluster_id)?;
    let mut connection = Connection::route()?;
    let link = ensure_gateway_link(&mut connection, &names::gateway_link(&network.cluster_id))?;
    connection.pipeline(vec![
        route::add_address(link.index, network.gateway, 32),
        route::set_up_quietly(&link.name),
        route::add_route(&Route {
            destination: network.service_cidr,
            kind: RouteKind::Link {
                link: link.index,
                source: Some(network.gateway),
            },
            metric: SERVICE_METRIC,
        }),
        route::add_route(&Route {
            destination: network.service_cidr,
            kind: RouteKind::Unreachable,
            metric: unreachable_metric(&network.cluster_id),
        }),
    ])?;
    let mut netfilter = Connection::netfilter()?;
    table::batch(network).commit(&mut netfilter)?;
    foreign::accept_pods(&mut netfilter, &network.cluster_id, network.pod_cidr)?;
    Ok(())
}

/// Removes every link, route, table and foreign rule that carries the id. Asked again, it finds
/// nothing and succeeds.
pub fn remove_all(cluster_id: &str) -> Result<(), Error> {
    check_id(cluster_id)?;
    let mut connection = Connection::route()?;
    let metric = unreachable_metric(cluster_id);
    let mut requests: Vec<_> = route::routes(&mut connection)?
        .into_iter()
        .filter(|listed| listed.ours && listed.route.metric == metric)
        .map(|listed| route::delete_route(&listed.route))
        .collect();
    requests.extend(crate::peers::removal(&mut connection, cluster_id)?);
    let prefix = names::link_prefix(cluster_id);
    requests.extend(
        route::links(&mut connection)?
            .iter()
            .filter(|link| link.name.starts_with(&prefix))
            .map(|link| route::delete_link(&link.name)),
    );
    connection.pipeline_in_parts(requests)?;

    let mut netfilter = Connection::netfilter()?;
    let ours = [
        names::proxy_table(cluster_id),
        names::node_table(cluster_id),
    ];
    let mut transaction = Transaction::default();
    for table in nft::tables(&mut netfilter)? {
        if ours.contains(&table.name) {
            let mut batch = Batch::new(table.family, table.name);
            batch.delete_table();
            transaction.push(batch);
        }
    }
    transaction.commit(&mut netfilter)?;
    foreign::remove(&mut netfilter, cluster_id)?;
    Ok(())
}

/// The MTU pods get when none is configured.
pub fn default_mtu() -> Result<u32, Error> {
    const FALLBACK: u32 = 1500;
    let mut connection = Connection::route()?;
    let default = route::routes(&mut connection)?
        .into_iter()
        .filter(|listed| listed.route.destination.prefix() == 0)
        .min_by_key(|listed| listed.route.metric);
    let Some(RouteKind::Gateway { link, .. } | RouteKind::Link { link, .. }) =
        default.map(|listed| listed.route.kind)
    else {
        return Ok(FALLBACK);
    };
    let links = route::links(&mut connection)?;
    Ok(links
        .iter()
        .find(|found| found.index == link)
        .map_or(FALLBACK, |found| found.mtu))
}

/// A dummy link, or where the kernel has none a bridge without ports, which serves as well: only
/// its address matters.
fn ensure_gateway_link(connection: &mut Connection, name: &str) -> Result<Link, Error> {
    if let Some(link) = route::find_link(connection, name)? {
        return Ok(link);
    }
    match connection.request(route::create_link(name, "dummy")) {
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => {
            connection.request(route::create_link(name, "bridge").tolerate(&[libc::EEXIST]))?;
        }
        Err(error) if error.errno() == Some(libc::EEXIST) => {}
        outcome => outcome?,
    }
    route::find_link(connection, name)?.ok_or_else(|| {
        Error::Netlink(netlink::Error::Refused {
            what: format!("look up link {name}"),
            errno: libc::ENODEV,
        })
    })
}

/// The metric carries the cluster id, so that the route differs from those of other clusters.
fn unreachable_metric(cluster_id: &str) -> u32 {
    UNREACHABLE_METRIC_BASE | u32::from_str_radix(cluster_id, 16).unwrap_or(0)
}

fn check_id(cluster_id: &str) -> Result<(), Error> {
    if names::is_cluster_id(cluster_id) {
        Ok(())
    } else {
        Err(Error::ClusterId(cluster_id.to_owned()))
    }
}
