//! Routes to the pods of other nodes on the same link: `<their pods> via <their address>`.
//!
//! Level-triggered from the Node objects. A node that no link of this machine reaches directly gets
//! no route: that needs a tunnel, which is not here.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use client::Informers;
use k8s_openapi::api::core::v1::Node;
use tokio_util::sync::CancellationToken;

use crate::netlink::route::{self, Route, RouteKind};
use crate::netlink::{Connection, Error};
use crate::subnet::Subnet;

pub struct PeersConfig {
    pub informers: Informers,
    /// This node, which needs no route to itself.
    pub node_name: String,
    pub cluster_id: String,
}

const RETRY: Duration = Duration::from_secs(5);
const METRIC_BASE: u32 = 0x0200_0000;

/// Runs until `shutdown`; the routes stay, so that pods go on while the server restarts.
pub async fn run(config: PeersConfig, shutdown: CancellationToken) {
    let nodes = config.informers.of::<Node>();
    let mut changes = nodes.subscribe();
    tokio::select! {
        biased;
        () = shutdown.cancelled() => return,
        () = nodes.synced() => {}
    }
    loop {
        while changes.try_next().is_some() {}
        let all = nodes.list();
        let wanted = plan(all.iter().map(|node| &**node), &config.node_name);
        let (metric, result) = (metric(&config.cluster_id), wanted.clone());
        let outcome = tokio::task::spawn_blocking(move || install(&result, metric)).await;
        let retry = match outcome {
            Ok(Ok(())) => Duration::MAX,
            Ok(Err(error)) => {
                tracing::warn!(%error, "routes to other nodes could not be written");
                RETRY
            }
            Err(_) => return,
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = changes.next() => {}
            () = tokio::time::sleep(retry) => {}
        }
    }
}

/// The pods of each other node, and the address of that node.
fn plan<'a>(nodes: impl Iterator<Item = &'a Node>, own: &str) -> BTreeMap<Subnet, Ipv4Addr> {
    nodes
        .filter(|node| node.metadata.name.as_deref() != Some(own))
        .filter_map(|node| {
            let pods = node.spec.as_ref()?.pod_cidr.as_ref()?.parse().ok()?;
            let addresses = node.status.as_ref()?.addresses.as_ref()?;
            let address = addresses
                .iter()
                .find(|address| address.type_ == "InternalIP")?;
            Some((pods, address.address.parse().ok()?))
        })
        .collect()
}

/// Adds what is missing and removes what is no longer wanted.
fn install(wanted: &BTreeMap<Subnet, Ipv4Addr>, metric: u32) -> Result<(), Error> {
    let mut connection = Connection::route()?;
    let links = route::addresses(&mut connection)?;
    let mut requests = Vec::new();
    for listed in installed(&mut connection, metric)? {
        let keep = match &listed.kind {
            RouteKind::Gateway { gateway, .. } => wanted.get(&listed.destination) == Some(gateway),
            _ => false,
        };
        if !keep {
            requests.push(route::delete_route(&listed));
        }
    }
    for (pods, node) in wanted {
        let link = links
            .iter()
            .find(|(_, address, prefix)| Subnet::new(*address, *prefix).contains(*node));
        match link {
            Some((_, address, _)) if address == node => {}
            Some((link, ..)) => requests.push(route::add_route(&Route {
                destination: *pods,
                kind: RouteKind::Gateway {
                    link: *link,
                    gateway: *node,
                },
                metric,
            })),
            None => {
                tracing::warn!(%pods, %node, "no link reaches this node: its pods have no route")
            }
        }
    }
    connection.pipeline(requests)
}

/// The requests that remove every route to other nodes of this cluster.
pub(crate) fn removal(
    connection: &mut Connection,
    cluster_id: &str,
) -> Result<Vec<crate::netlink::Request>, Error> {
    let routes = installed(connection, metric(cluster_id))?;
    Ok(routes.iter().map(route::delete_route).collect())
}

fn installed(connection: &mut Connection, metric: u32) -> Result<Vec<Route>, Error> {
    let routes = route::routes(connection)?;
    Ok(routes
        .into_iter()
        .filter(|listed| listed.ours && listed.route.metric == metric)
        .map(|listed| listed.route)
        .collect())
}

/// The metric carries the cluster id, so that the routes can be told from other clusters'.
fn metric(cluster_id: &str) -> u32 {
    METRIC_BASE | u32::from_str_radix(cluster_id, 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{NodeAddress, NodeSpec, NodeStatus};

    use super::*;

    fn node(name: &str, pods: Option<&str>, address: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.spec = Some(NodeSpec {
            pod_cidr: pods.map(str::to_owned),
            ..NodeSpec::default()
        });
        node.status = Some(NodeStatus {
            addresses: Some(vec![
                NodeAddress {
                    type_: "Hostname".to_owned(),
                    address: name.to_owned(),
                },
                NodeAddress {
                    type_: "InternalIP".to_owned(),
                    address: address.to_owned(),
                },
            ]),
            ..NodeStatus::default()
        });
        node
    }

    #[test]
    fn other_nodes_with_pods_get_a_route() {
        let nodes = [
            node("a", Some("10.244.0.0/24"), "192.0.2.1"),
            node("b", Some("10.244.1.0/24"), "192.0.2.2"),
            node("c", None, "192.0.2.3"),
            node("d", Some("10.244.3.0/24"), "not an address"),
        ];
        let routes = plan(nodes.iter(), "a");
        let expected = (
            "10.244.1.0/24".parse().unwrap(),
            "192.0.2.2".parse().unwrap(),
        );
        assert_eq!(routes.into_iter().collect::<Vec<_>>(), [expected]);
    }
}
