//! The node's own nf_tables table: egress of pods, and host ports as map elements that the CNI
//! plugin adds and removes. It outlives the server; setting it up again keeps the elements.

use std::net::Ipv4Addr;

use super::NodeNetwork;
use crate::names;
use crate::nft::{
    Batch, Chain, Comparison, Data, Datatype, Element, Expression, Family, FibAddress, HookPoint,
    MetaKey, Register, Rule, RuleVerdict, Set,
};
use crate::subnet::Subnet;

/// `protocol . port` on any address of the node → `pod address . port`.
pub const HOST_PORTS: &str = "host-ports";
/// `address . protocol . port` → `pod address . port`.
pub const HOST_ADDRESS_PORTS: &str = "host-address-ports";
/// `pod address . pod address` of pods with host ports: they may reach themselves through the node.
pub const HAIRPIN: &str = "hairpin";

const RTN_LOCAL: u32 = 2;

/// Brings the table to its fixed form: sets and chains are added when missing, rules replaced.
pub fn batch(network: &NodeNetwork) -> Batch {
    let mut batch = Batch::new(Family::Ipv4, names::node_table(&network.cluster_id));
    batch.add_table();
    for set in sets() {
        batch.add_set(&set);
    }
    for chain in chains() {
        batch.add_chain(&chain);
        batch.flush_chain(&chain.name);
    }
    for rule in rules(network) {
        batch.append_rule(&rule);
    }
    batch
}

/// The elements that make one host port live, as (set, element).
pub fn host_port(
    host: Option<Ipv4Addr>,
    protocol: u8,
    port: u16,
    pod: Ipv4Addr,
    pod_port: u16,
) -> (&'static str, Element) {
    let value = Element::address_port(pod, pod_port);
    match host {
        None => (
            HOST_PORTS,
            Element::value(Element::protocol_port(protocol, port), value),
        ),
        Some(address) => {
            let key = Element::address_protocol_port(address, protocol, port);
            (HOST_ADDRESS_PORTS, Element::value(key, value))
        }
    }
}

pub fn hairpin(pod: Ipv4Addr) -> Element {
    Element::key([pod.octets(), pod.octets()].concat())
}

fn sets() -> [Set; 3] {
    let target = || Some(Data::Values(vec![Datatype::Address, Datatype::Port]));
    [
        Set {
            name: HOST_PORTS.to_owned(),
            key: vec![Datatype::Protocol, Datatype::Port],
            data: target(),
            dynamic_size: None,
        },
        Set {
            name: HOST_ADDRESS_PORTS.to_owned(),
            key: vec![Datatype::Address, Datatype::Protocol, Datatype::Port],
            data: target(),
            dynamic_size: None,
        },
        Set {
            name: HAIRPIN.to_owned(),
            key: vec![Datatype::Address, Datatype::Address],
            data: None,
            dynamic_size: None,
        },
    ]
}

fn chains() -> [Chain; 5] {
    // Just before the services' chains (-100): a host port is a claim on the node's own address.
    [
        Chain::regular("host-ports"),
        Chain::base("prerouting", "nat", HookPoint::Prerouting, -101),
        Chain::base("output", "nat", HookPoint::Output, -101),
        Chain::base("postrouting", "nat", HookPoint::Postrouting, 101),
        Chain::base("loopback-guard", "filter", HookPoint::Prerouting, -300),
    ]
}

fn rules(network: &NodeNetwork) -> Vec<Rule> {
    let [r0, r1, r2] = [Register(0), Register(1), Register(2)];
    let local = [
        Expression::FibType {
            of: FibAddress::Destination,
            to: r0,
        },
        Expression::equal(r0, RTN_LOCAL.to_ne_bytes()),
    ];
    let to_host_ports = Expression::Decide(RuleVerdict::Jump("host-ports".to_owned()));
    let jump = |chain: &str| {
        Rule::new(
            chain,
            [local.as_slice(), std::slice::from_ref(&to_host_ports)].concat(),
        )
    };
    let loopback = Subnet::new(Ipv4Addr::new(127, 0, 0, 0), 8);
    let pod_links = names::link_prefix(&network.cluster_id);
    let target = Expression::DestinationNat {
        address: Register(4),
        port: Some(Register(5)),
    };

    let mut rules = vec![
        jump("prerouting"),
        jump("output"),
        Rule::new(
            "host-ports",
            vec![
                Expression::destination_address(r0),
                Expression::transport_protocol(r1),
                Expression::destination_port(r2),
                Expression::map(HOST_ADDRESS_PORTS, r0, Register(4)),
                target.clone(),
            ],
        ),
        Rule::new(
            "host-ports",
            vec![
                Expression::transport_protocol(r0),
                Expression::destination_port(r1),
                Expression::map(HOST_PORTS, r0, Register(4)),
                target,
            ],
        ),
        // A pod reaching itself through a host port must see the answer come back through the node.
        Rule::new(
            "postrouting",
            vec![
                Expression::source_address(r0),
                Expression::destination_address(r1),
                Expression::in_set(HAIRPIN, r0),
                Expression::address(network.gateway, r0),
                Expression::SourceNat { address: r0 },
            ],
        ),
    ];
    // A local process that used 127.0.0.1 to reach a host port.
    let mut from_loopback = vec![Expression::source_address(r0)];
    from_loopback.extend(Expression::within(r0, loopback, Comparison::Equal));
    from_loopback.extend(Expression::name_begins(
        MetaKey::OutgoingName,
        &pod_links,
        r0,
    ));
    from_loopback.extend([
        Expression::address(network.gateway, r0),
        Expression::SourceNat { address: r0 },
    ]);
    rules.push(Rule::new("postrouting", from_loopback));
    // Pods' traffic to the world leaves with the node's address.
    let mut egress = vec![Expression::source_address(r0)];
    egress.extend(Expression::within(r0, network.pod_cidr, Comparison::Equal));
    egress.push(Expression::destination_address(r0));
    egress.extend(Expression::within(
        r0,
        network.cluster_cidr,
        Comparison::NotEqual,
    ));
    egress.extend(Expression::not_to_loopback(r0));
    egress.push(Expression::Masquerade);
    rules.push(Rule::new("postrouting", egress));
    // Host ports on 127.0.0.1 need route_localnet on a pod's link; without this rule that would let
    // the pod send to services which the node offers to itself only.
    let mut guard = Expression::name_begins(MetaKey::IncomingName, &pod_links, r0).to_vec();
    guard.push(Expression::destination_address(r0));
    guard.extend(Expression::within(r0, loopback, Comparison::Equal));
    guard.push(Expression::Decide(RuleVerdict::Drop));
    rules.push(Rule::new("loopback-guard", guard));
    rules
}
