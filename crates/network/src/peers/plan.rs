//! Which pod ranges of other nodes are believed, and whether this node has a pod network. Pure.
//!
//! A Node object is written by the node it describes. So a range is believed only if the cluster
//! could have given it: it lies inside the cluster's pod range, is as large as this node's own,
//! and meets neither this node's range, nor an older node's, nor a network of this machine.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::core::v1::Node;

use crate::host_ranges::{HostNetwork, IpRange, conflict};
use crate::subnet::Subnet;

pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// What matters of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// When it was created, in seconds since the epoch.
    pub created: i64,
    pub name: String,
    pub ranges: Vec<String>,
    pub address: Option<Ipv4Addr>,
    /// Its own condition says that it has no pod network.
    pub unavailable: bool,
}

impl Peer {
    pub fn of(node: &Node) -> Peer {
        let created = node.metadata.creation_timestamp.as_ref();
        let spec = node.spec.as_ref();
        let mut ranges: Vec<String> = spec
            .and_then(|spec| spec.pod_cidrs.clone())
            .unwrap_or_default();
        let single = spec.and_then(|spec| spec.pod_cidr.clone());
        ranges.extend(single.filter(|single| !ranges.contains(single)));
        let addresses = node.status.iter().flat_map(|status| &status.addresses);
        let address = addresses
            .flatten()
            .filter(|address| address.type_ == "InternalIP")
            .find_map(|address| address.address.parse().ok());
        Peer {
            created: created.map_or(i64::MAX, |time| time.0.as_second()),
            name: node.metadata.name.clone().unwrap_or_default(),
            ranges,
            address,
            unavailable: condition(node).is_some_and(|condition| condition.status == "True"),
        }
    }

    /// Older nodes come first; of two with the same age, the first by name.
    fn age(&self) -> (i64, &str) {
        (self.created, &self.name)
    }
}

/// The condition NetworkUnavailable of a node.
pub fn condition(node: &Node) -> Option<&k8s_openapi::api::core::v1::NodeCondition> {
    let status = node.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == NETWORK_UNAVAILABLE)
}

/// What this node knows by itself.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// This node's pods.
    pub own: Subnet,
    /// All nodes' pods; `None` where several servers have ranges of their own.
    pub cluster: Option<Subnet>,
    pub services: Subnet,
    pub host: Vec<HostNetwork>,
}

/// Why a range of another node is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Unreadable,
    NotForPods,
    Size { expected: u8 },
    OutsideCluster { cluster: Subnet },
    Services { services: Subnet },
    OfThisNode,
    OfOlderNode { name: String },
    OfThisMachine { network: String },
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unreadable => write!(formatter, "it is not a range of addresses"),
            Refusal::NotForPods => write!(formatter, "it holds addresses that no pod can have"),
            Refusal::Size { expected } => {
                write!(
                    formatter,
                    "the nodes of this cluster have a /{expected} each"
                )
            }
            Refusal::OutsideCluster { cluster } => {
                write!(
                    formatter,
                    "it lies outside the cluster's pod range {cluster}"
                )
            }
            Refusal::Services { services } => {
                write!(formatter, "it overlaps the service range {services}")
            }
            Refusal::OfThisNode => write!(formatter, "it is the range of this node"),
            Refusal::OfOlderNode { name } => write!(formatter, "it is the range of node {name}"),
            Refusal::OfThisMachine { network } => write!(formatter, "it overlaps {network}"),
        }
    }
}

/// A believed range and the node behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub node: String,
    pub address: Ipv4Addr,
    /// It is older than this node, and its own condition says that it has a pod network.
    pub established: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub routes: BTreeMap<Subnet, Destination>,
    /// By node: the range, and why it is not believed.
    pub refused: BTreeMap<String, (String, Refusal)>,
}

/// Which ranges of the other nodes to route, and which to refuse.
pub fn plan<'a>(peers: impl Iterator<Item = &'a Peer>, own: &str, bounds: &Bounds) -> Plan {
    let mut peers: Vec<&Peer> = peers.collect();
    peers.sort_by(|a, b| a.age().cmp(&b.age()));
    let mut plan = Plan::default();
    let mut established = true;
    for peer in peers {
        if peer.name == own {
            established = false;
            continue;
        }
        let Some(address) = peer.address else {
            continue;
        };
        for text in &peer.ranges {
            match believe(text, bounds, &plan.routes) {
                Ok(None) => {}
                Ok(Some(range)) => {
                    let destination = Destination {
                        node: peer.name.clone(),
                        address,
                        established: established && !peer.unavailable,
                    };
                    plan.routes.insert(range, destination);
                }
                Err(refusal) => {
                    let refused = (text.clone(), refusal);
                    plan.refused.insert(peer.name.clone(), refused);
                }
            }
        }
    }
    plan
}

/// The range, if it is believed; `None` for one of IPv6, which pods do not have.
fn believe(
    text: &str,
    bounds: &Bounds,
    older: &BTreeMap<Subnet, Destination>,
) -> Result<Option<Subnet>, Refusal> {
    let range: IpRange = text.parse().map_err(|_| Refusal::Unreadable)?;
    let Ok(subnet) = text.parse::<Subnet>() else {
        return Ok(None);
    };
    if NOT_FOR_PODS
        .iter()
        .any(|(address, prefix)| IpRange::new(IpAddr::V4(*address), *prefix).overlaps(&range))
    {
        return Err(Refusal::NotForPods);
    }
    if subnet.prefix() != bounds.own.prefix() {
        return Err(Refusal::Size {
            expected: bounds.own.prefix(),
        });
    }
    if let Some(cluster) = bounds.cluster
        && !(cluster.contains(subnet.address()) && cluster.prefix() <= subnet.prefix())
    {
        return Err(Refusal::OutsideCluster { cluster });
    }
    let services = IpRange::from(bounds.services);
    if services.overlaps(&range) {
        return Err(Refusal::Services {
            services: bounds.services,
        });
    }
    // All ranges are equally large: those that overlap are equal.
    if subnet == bounds.own {
        return Err(Refusal::OfThisNode);
    }
    if let Some(holder) = older.get(&subnet) {
        return Err(Refusal::OfOlderNode {
            name: holder.node.clone(),
        });
    }
    match conflict(&range, &bounds.host) {
        None => Ok(Some(subnet)),
        Some(network) => Err(Refusal::OfThisMachine {
            network: network.description.clone(),
        }),
    }
}

/// This network, loopback, link-local, multicast and reserved addresses.
const NOT_FOR_PODS: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// Why this node has no pod network, if it has none: most of the nodes that were there before it,
/// and have one, cannot be reached. Neither a node that joins later nor a single older one that
/// lies about its address can make the others unavailable.
pub fn unavailable(plan: &Plan, unreachable: &BTreeMap<Subnet, Ipv4Addr>) -> Option<String> {
    const NAMED: usize = 3;
    let established = plan.routes.iter().filter(|(_, to)| to.established);
    let (lost, reached): (Vec<_>, Vec<_>) =
        established.partition(|(range, _)| unreachable.contains_key(*range));
    if lost.len() <= reached.len() {
        return None;
    }
    let mut nodes: Vec<String> = lost
        .iter()
        .take(NAMED)
        .map(|(_, to)| format!("{} ({})", to.node, to.address))
        .collect();
    if lost.len() > NAMED {
        nodes.push(format!("{} more", lost.len() - NAMED));
    }
    Some(format!(
        "no link of this machine reaches the nodes {} directly: pods here and there cannot reach each other, because routes through a router are not supported yet",
        nodes.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn peer(name: &str, created: i64, range: &str) -> Peer {
        Peer {
            created,
            name: name.to_owned(),
            ranges: vec![range.to_owned()],
            address: Some(Ipv4Addr::new(192, 0, 2, created as u8)),
            unavailable: false,
        }
    }

    fn bounds() -> Bounds {
        Bounds {
            own: "10.244.0.0/24".parse().unwrap(),
            cluster: Some("10.244.0.0/16".parse().unwrap()),
            services: "10.244.96.0/20".parse().unwrap(),
            host: vec![HostNetwork {
                range: "10.244.200.0/22".parse().unwrap(),
                description: "the route 10.244.200.0/22 dev eth1".to_owned(),
            }],
        }
    }

    #[test]
    fn a_node_is_read_from_its_object() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "b", "creationTimestamp": "1970-01-01T00:00:07Z"},
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00::/64"]},
            "status": {
                "addresses": [
                    {"type": "Hostname", "address": "192.0.2.9"},
                    {"type": "InternalIP", "address": "fd00::7"},
                    {"type": "InternalIP", "address": "192.0.2.7"},
                ],
                "conditions": [{"type": "NetworkUnavailable", "status": "True"}],
            },
        }))
        .unwrap();
        let expected = Peer {
            ranges: vec!["10.244.1.0/24".to_owned(), "fd00::/64".to_owned()],
            unavailable: true,
            ..peer("b", 7, "")
        };
        assert_eq!(Peer::of(&node), expected);
        assert_eq!(Peer::of(&Node::default()).address, None);
    }

    #[test]
    fn only_pod_ranges_inside_the_cluster_range_are_accepted() {
        use Refusal::*;
        let cluster: Subnet = "10.244.0.0/16".parse().unwrap();
        let services: Subnet = "10.244.96.0/20".parse().unwrap();
        for (range, refusal) in [
            ("10.244.1.0/24", None),
            ("10.244.255.0/24", None),
            ("fd00::/64", None),
            ("banana", Some(Unreadable)),
            ("0.0.0.0/0", Some(NotForPods)),
            ("0.0.0.0/1", Some(NotForPods)),
            ("128.0.0.0/1", Some(NotForPods)),
            ("127.0.0.0/24", Some(NotForPods)),
            ("169.254.169.0/24", Some(NotForPods)),
            ("224.0.0.0/24", Some(NotForPods)),
            ("10.244.0.0/16", Some(Size { expected: 24 })),
            ("10.244.2.0/23", Some(Size { expected: 24 })),
            ("10.244.0.128/25", Some(Size { expected: 24 })),
            ("8.8.8.0/24", Some(OutsideCluster { cluster })),
            ("10.245.0.0/24", Some(OutsideCluster { cluster })),
            ("10.244.97.0/24", Some(Services { services })),
            ("10.244.0.0/24", Some(OfThisNode)),
            (
                "10.244.201.0/24",
                Some(OfThisMachine {
                    network: "the route 10.244.200.0/22 dev eth1".to_owned(),
                }),
            ),
        ] {
            let plan = plan([peer("b", 2, range)].iter(), "a", &bounds());
            let refused = plan.refused.get("b").map(|(_, refusal)| refusal.clone());
            assert_eq!(refused, refusal, "{range}");
            let routed = refusal.is_none() && !range.contains(':');
            assert_eq!(plan.routes.len(), usize::from(routed), "{range}");
        }
        // Servers that share a store have pod ranges of their own.
        let several = Bounds {
            cluster: None,
            ..bounds()
        };
        let plan = plan([peer("b", 2, "10.243.0.0/24")].iter(), "a", &several);
        assert_eq!(plan.routes.len(), 1);
    }

    #[test]
    fn a_range_belongs_to_the_older_of_two_nodes() {
        let (old, new) = (peer("z", 1, "10.244.1.0/24"), peer("b", 2, "10.244.1.0/24"));
        for order in [[&old, &new], [&new, &old]] {
            let plan = plan(order.into_iter(), "a", &bounds());
            assert_eq!(plan.routes[&"10.244.1.0/24".parse().unwrap()].node, "z");
            let older = Refusal::OfOlderNode {
                name: "z".to_owned(),
            };
            assert_eq!(plan.refused["b"].1, older);
        }
        // Created within the same second: the first by name.
        let twins = [peer("b", 1, "10.244.1.0/24"), old];
        let plan = plan(twins.iter(), "a", &bounds());
        assert_eq!(plan.routes[&"10.244.1.0/24".parse().unwrap()].node, "b");
    }

    #[test]
    fn a_node_is_unavailable_when_it_cannot_reach_most_of_those_before_it() {
        let own = peer("own", 5, "10.244.0.0/24");
        let check = |peers: &[Peer], lost: &[&str], expected: bool| {
            let peers = peers.iter().chain([&own]);
            let plan = plan(peers, "own", &bounds());
            let unreachable = plan
                .routes
                .iter()
                .filter(|(_, to)| lost.contains(&to.node.as_str()))
                .map(|(range, to)| (*range, to.address))
                .collect();
            let why = unavailable(&plan, &unreachable);
            assert_eq!(
                why.is_some(),
                expected,
                "{peers:?} {lost:?}",
                peers = plan.routes
            );
            why
        };
        let (first, second) = (
            peer("first", 1, "10.244.1.0/24"),
            peer("second", 2, "10.244.2.0/24"),
        );
        let later = peer("later", 9, "10.244.9.0/24");
        let why = check(std::slice::from_ref(&first), &["first"], true).unwrap();
        assert!(why.contains("first (192.0.2.1)"), "{why}");
        check(std::slice::from_ref(&first), &[], false);
        check(&[first.clone(), later.clone()], &["later"], false);
        check(&[first.clone(), second.clone()], &["first", "second"], true);
        check(&[first.clone(), second.clone()], &["second"], false);
        // A node that has no pod network itself proves nothing.
        let lonely = Peer {
            unavailable: true,
            ..second
        };
        check(&[first.clone(), lonely.clone()], &["second"], false);
        check(&[first, lonely], &["first"], true);
        check(&[later], &["later"], false);
    }
}
