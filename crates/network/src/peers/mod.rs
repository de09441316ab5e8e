//! Routes to the pods of other nodes on the same link: `<their pods> via <their address>`.
//!
//! Level-triggered from the Node objects and the machine's own links. `plan` decides which ranges are
//! accepted; this file writes the routes and reports problems. A node that no link of this
//! machine reaches directly gets no route: that needs a tunnel, which is not here. When that leaves
//! this node without a pod network, its condition NetworkUnavailable says so, which keeps pods away.

mod condition;
mod plan;

#[cfg(test)]
mod kernel_tests;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use client::events::Recorder;
use client::{Change, Informers, Subscription};
use environment::Environment;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use tokio_util::sync::CancellationToken;

use crate::host_ranges::host_networks;
use crate::netlink::route::{self, Route, RouteKind};
use crate::netlink::{Connection, Error};
use crate::subnet::Subnet;
use plan::{Bounds, Peer, Plan, Refusal};

pub struct PeersConfig {
    pub informers: Informers,
    /// Has the node's own identity; writes its condition and Events.
    pub node_client: kube::Client,
    /// This node, which needs no route to itself.
    pub node_name: String,
    pub cluster_id: String,
    /// This node's pods.
    pub pod_cidr: Subnet,
    /// All nodes' pods; `None` where servers that share a store have pod ranges of their own.
    pub cluster_cidr: Option<Subnet>,
    pub service_cidr: Subnet,
    pub environment: Environment,
}

/// After a failure, or while some node cannot be reached: a link may come up any time.
const RETRY: Duration = Duration::from_secs(5);
/// Others may remove our routes.
const CHECK_PERIOD: Duration = Duration::from_secs(60);
const METRIC_BASE: u32 = 0x0200_0000;
/// More refusals than this in one round are counted, not listed.
const MOST_REPORTED: usize = 10;

/// Runs until `shutdown`; the routes stay, so that pods stay reachable while the server restarts.
pub fn run(config: PeersConfig, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
    // Boxed, so that it is compiled here, for speed, and not where it is awaited.
    Box::pin(run_until_shutdown(config, shutdown))
}

async fn run_until_shutdown(config: PeersConfig, shutdown: CancellationToken) {
    let nodes = config.informers.of::<Node>();
    let mut changes = nodes.subscribe();
    tokio::select! {
        biased;
        () = shutdown.cancelled() => return,
        () = nodes.synced() => {}
    }
    let events = Recorder::new(
        config.node_client.clone(),
        config.environment.clone(),
        "coracle-network",
        Some(&config.node_name),
    );
    let mut known = Known::default();
    let mut reported = ReportedProblems::default();
    loop {
        known.follow(&mut changes);
        let peers = known.peers.clone();
        let (own, cluster_id) = (config.node_name.clone(), config.cluster_id.clone());
        let (pods, cluster, services) = (config.pod_cidr, config.cluster_cidr, config.service_cidr);
        let outcome = tokio::task::spawn_blocking(move || {
            let bounds = Bounds {
                own: pods,
                cluster,
                services,
                host: host_networks()?,
            };
            let plan = plan::plan(peers.values(), &own, &bounds);
            let unreachable = install(&plan, metric(&cluster_id))?;
            Ok::<_, Error>((plan, unreachable))
        });
        let pause = match outcome.await {
            Ok(Ok((plan, unreachable))) => {
                reported.refusals(&plan, |name, message| {
                    tracing::warn!(node = name, "{message}");
                    if let Some(node) = nodes.get("", name) {
                        events.warning(&*node, "PodCIDRRefused", message);
                    }
                });
                reported.unreachable(&unreachable);
                let why = plan::unavailable(&plan, &unreachable);
                let own = nodes.get("", &config.node_name);
                let written = match &own {
                    // Not registered yet; its registration is a change.
                    None => Ok(()),
                    Some(own) => condition::write(&config, &events, own, why.as_deref()).await,
                };
                if let Err(error) = &written {
                    let error = environment::chain(&error);
                    tracing::warn!(%error, "the node's condition NetworkUnavailable was not written");
                }
                match unreachable.is_empty() && written.is_ok() {
                    true => CHECK_PERIOD,
                    false => RETRY,
                }
            }
            Ok(Err(error)) => {
                let error = environment::chain(&error);
                tracing::warn!(%error, "routes to other nodes could not be written");
                RETRY
            }
            Err(_) => return,
        };
        let deadline = tokio::time::Instant::now() + pause;
        // Most changes of Nodes are heartbeats, which say nothing new.
        while !known.changed {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                change = changes.next() => known.note(change),
                () = tokio::time::sleep_until(deadline) => break,
            }
        }
    }
}

/// What matters of all Nodes, kept in step with a subscription.
#[derive(Default)]
struct Known {
    peers: BTreeMap<String, Peer>,
    /// Something that matters has changed since the last round.
    changed: bool,
}

impl Known {
    fn follow(&mut self, changes: &mut Subscription<Node>) {
        while let Some(change) = changes.try_next() {
            self.note(change);
        }
        self.changed = false;
    }

    fn note(&mut self, change: Change<Node>) {
        match change {
            Change::Added(node) | Change::Modified { new: node, .. } => {
                let peer = Peer::of(&node);
                if self.peers.get(&peer.name) != Some(&peer) {
                    self.peers.insert(peer.name.clone(), peer);
                    self.changed = true;
                }
            }
            Change::Deleted(node) => {
                let name = node.metadata.name.as_deref().unwrap_or_default();
                self.changed |= self.peers.remove(name).is_some();
            }
            Change::Resynced => {}
        }
    }
}

/// The problems that have been reported, so that each is reported once.
#[derive(Default)]
struct ReportedProblems {
    refused: BTreeMap<String, (String, Refusal)>,
    unreachable: BTreeMap<Subnet, Ipv4Addr>,
}

impl ReportedProblems {
    fn refusals(&mut self, plan: &Plan, mut report: impl FnMut(&str, String)) {
        let new = plan
            .refused
            .iter()
            .filter(|(name, refusal)| self.refused.get(*name) != Some(refusal));
        let mut count = 0;
        for (name, (range, refusal)) in new {
            count += 1;
            if count <= MOST_REPORTED {
                let message =
                    format!("The pod range {range} of node {name} gets no route: {refusal}");
                report(name, message);
            }
        }
        if count > MOST_REPORTED {
            let more = count - MOST_REPORTED;
            tracing::warn!("the pod ranges of {more} more nodes get no route");
        }
        self.refused = plan.refused.clone();
    }

    fn unreachable(&mut self, unreachable: &BTreeMap<Subnet, Ipv4Addr>) {
        let new = unreachable
            .iter()
            .filter(|(range, address)| self.unreachable.get(*range) != Some(*address));
        let mut count = 0;
        for (range, address) in new {
            count += 1;
            if count <= MOST_REPORTED {
                tracing::warn!(%range, %address, "no link reaches this node: its pods have no route");
            }
        }
        if count > MOST_REPORTED {
            tracing::warn!("no link reaches {} more nodes", count - MOST_REPORTED);
        }
        self.unreachable = unreachable.clone();
    }
}

/// Adds what is missing, removes what is no longer wanted, and returns what cannot be reached.
fn install(plan: &Plan, metric: u32) -> Result<BTreeMap<Subnet, Ipv4Addr>, Error> {
    let mut connection = Connection::route()?;
    let links = route::addresses(&mut connection)?;
    let mut unreachable = BTreeMap::new();
    let mut wanted = BTreeMap::new();
    for (range, to) in &plan.routes {
        let found = links.iter().find(|(_, address, prefix)| {
            !address.is_loopback() && Subnet::new(*address, *prefix).contains(to.address)
        });
        match found {
            Some((_, address, _)) if *address == to.address => {
                unreachable.insert(*range, to.address);
            }
            Some((link, ..)) => {
                let kind = RouteKind::Gateway {
                    link: *link,
                    gateway: to.address,
                };
                wanted.insert(*range, kind);
            }
            None => {
                unreachable.insert(*range, to.address);
            }
        }
    }
    let mut requests = Vec::new();
    for listed in installed(&mut connection, metric)? {
        match wanted.get(&listed.destination) {
            Some(kind) if *kind == listed.kind => {
                wanted.remove(&listed.destination);
            }
            _ => requests.push(route::delete_route(&listed)),
        }
    }
    requests.extend(wanted.into_iter().map(|(destination, kind)| {
        route::add_route(&Route {
            destination,
            kind,
            metric,
        })
    }));
    connection.pipeline_in_parts(requests)?;
    Ok(unreachable)
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

/// The metric carries the cluster id, so that the routes differ from those of other clusters.
fn metric(cluster_id: &str) -> u32 {
    METRIC_BASE | u32::from_str_radix(cluster_id, 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn node(address: &str, heartbeat: &str) -> Change<Node> {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "b"},
            "spec": {"podCIDR": "10.244.1.0/24"},
            "status": {
                "addresses": [{"type": "InternalIP", "address": address}],
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}],
            },
        }))
        .unwrap();
        Change::Added(Arc::new(node))
    }

    #[test]
    fn node_heartbeats_cause_no_work() {
        let mut known = Known::default();
        known.note(node("192.0.2.2", "2024-01-01T00:00:00Z"));
        assert!(std::mem::take(&mut known.changed));
        known.note(node("192.0.2.2", "2024-01-01T00:05:00Z"));
        assert!(!known.changed);
        known.note(node("192.0.2.3", "2024-01-01T00:05:00Z"));
        assert!(known.changed);
    }

    #[test]
    fn a_refused_range_is_reported_once_and_many_are_counted() {
        let refused = |count: usize, range: &str| Plan {
            refused: (0..count)
                .map(|number| {
                    let refusal = (range.to_owned(), Refusal::Unreadable);
                    (format!("node-{number}"), refusal)
                })
                .collect(),
            ..Plan::default()
        };
        let mut reported = ReportedProblems::default();
        let mut messages = Vec::new();
        let mut report = |plan: &Plan| {
            messages.clear();
            reported.refusals(plan, |_, message| messages.push(message));
            messages.clone()
        };
        assert_eq!(
            report(&refused(1, "banana")),
            ["The pod range banana of node node-0 gets no route: it is not a range of addresses"]
        );
        assert!(report(&refused(1, "banana")).is_empty());
        assert_eq!(report(&refused(1, "apple")).len(), 1);
        assert_eq!(report(&refused(5000, "banana")).len(), MOST_REPORTED);
    }
}
