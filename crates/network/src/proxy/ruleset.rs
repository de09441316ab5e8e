//! The fixed part of the service table: chains, maps and rules that do not depend on any Service,
//! and the chains that pick an endpoint, of which there is one per number of endpoints.
//!
//! ```text
//! prerouting, output ─► services: protocol . port           ─vmap node-ports► node-pick-2
//!                                 address . protocol . port ─vmap services──► pick-3
//! pick-3: dnat to (address . protocol . port . random mod 3) ─map endpoints─► address . port
//! ```
//! So a change of endpoints is a change of map elements only, and rules stay as they are. Services
//! with client affinity need sets that packets fill, and have chains of their own (`sticky`).

use std::net::Ipv4Addr;

use crate::names;
use crate::nft::{
    Batch, Chain, Comparison, CtDirection, CtKey, Data, Datatype, Element, Expression, Family,
    HookPoint, Register, Rule, RuleVerdict, Set,
};
use crate::subnet::Subnet;

pub const SERVICES: &str = "services";
pub const NODE_PORTS: &str = "node-ports";
/// The node's addresses on which node ports answer.
pub const NODE_ADDRESSES: &str = "node-addresses";
/// The keys of `node-ports` as a set, to recognise such connections after translation.
pub const NODE_PORT_KEYS: &str = "node-port-keys";
/// `address . protocol . port . index` → `address . port`; the address is 0.0.0.0 for node ports.
pub const ENDPOINTS: &str = "endpoints";
/// `address . protocol . port . index` → the endpoint's chain, for services with affinity.
pub const STICKY: &str = "sticky";
/// `endpoint . endpoint`: a pod that reached itself through its service.
pub const HAIRPIN: &str = "hairpin";
/// External addresses of services as `address . protocol . port`, to recognise such connections
/// after translation.
pub const EXTERNAL_KEYS: &str = "external-keys";
/// External addresses of services without endpoints.
pub const CLOSED: &str = "closed";
/// Node ports of services without endpoints.
pub const CLOSED_NODE_PORTS: &str = "closed-node-ports";

const IPS_DST_NAT: u32 = 0x20;

/// The addresses the fixed rules speak of.
#[derive(Clone, Debug)]
pub struct Ranges {
    pub cluster_id: String,
    pub services: Subnet,
    pub pods: Subnet,
    /// The source address that a pod sees when it reaches itself through a Service.
    pub gateway: Ipv4Addr,
    /// Where node ports answer: the node's primary address, as upstream's nftables mode has it by
    /// default. Never a loopback address.
    pub node_addresses: Vec<Ipv4Addr>,
}

/// A chain that picks one of `count` endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pick {
    pub node_port: bool,
    pub count: u32,
}

impl Pick {
    pub fn chain(&self) -> String {
        let prefix = if self.node_port { "node-pick" } else { "pick" };
        format!("{prefix}-{}", self.count)
    }

    /// The chain and its rule.
    pub fn add(&self, batch: &mut Batch) {
        let chain = self.chain();
        batch.add_chain(&Chain::regular(&chain));
        batch.append_rule(&self.choose(&chain));
    }

    pub fn remove(&self, batch: &mut Batch) {
        let chain = self.chain();
        batch.flush_chain(&chain);
        batch.delete_chain(&chain);
    }

    fn choose(&self, chain: &str) -> Rule {
        let address = if self.node_port {
            Expression::address(Ipv4Addr::UNSPECIFIED, Register(0))
        } else {
            Expression::destination_address(Register(0))
        };
        let expressions = vec![
            address,
            Expression::transport_protocol(Register(1)),
            Expression::destination_port(Register(2)),
            Expression::Random {
                modulus: self.count,
                to: Register(3),
            },
            Expression::Map {
                map: ENDPOINTS.to_owned(),
                from: Register(0),
                to: Register(4),
            },
            Expression::DestinationNat {
                address: Register(4),
                port: Some(Register(5)),
            },
        ];
        Rule::new(chain, expressions)
    }
}

/// An empty service table in place of what the table had before. The table is added first so
/// that its deletion cannot fail.
pub fn replace(ranges: &Ranges) -> Batch {
    let mut batch = Batch::new(Family::Ipv4, names::proxy_table(&ranges.cluster_id));
    batch.add_table();
    batch.delete_table();
    batch.add_table();
    for set in sets() {
        batch.add_set(&set);
    }
    for chain in chains() {
        batch.add_chain(&chain);
    }
    for rule in rules(ranges) {
        batch.append_rule(&rule);
    }
    let addresses: Vec<Element> = ranges
        .node_addresses
        .iter()
        .map(|address| Element::key(address.octets().to_vec()))
        .collect();
    batch.add_elements(NODE_ADDRESSES, &addresses);
    batch
}

fn sets() -> Vec<Set> {
    use Datatype::{Address, Mark, Port, Protocol};
    let set = |name: &str, key: &[Datatype], data: Option<Data>| Set {
        name: name.to_owned(),
        key: key.to_vec(),
        data,
        dynamic_size: None,
    };
    let target = || Some(Data::Values(vec![Address, Port]));
    vec![
        set(SERVICES, &[Address, Protocol, Port], Some(Data::Verdicts)),
        set(NODE_PORTS, &[Protocol, Port], Some(Data::Verdicts)),
        set(NODE_PORT_KEYS, &[Protocol, Port], None),
        set(NODE_ADDRESSES, &[Address], None),
        set(ENDPOINTS, &[Address, Protocol, Port, Mark], target()),
        set(
            STICKY,
            &[Address, Protocol, Port, Mark],
            Some(Data::Verdicts),
        ),
        set(HAIRPIN, &[Address, Address], None),
        set(EXTERNAL_KEYS, &[Address, Protocol, Port], None),
        set(CLOSED, &[Address, Protocol, Port], None),
        set(CLOSED_NODE_PORTS, &[Protocol, Port], None),
    ]
}

fn chains() -> Vec<Chain> {
    vec![
        Chain::regular("services"),
        Chain::regular("unserved"),
        Chain::base("prerouting", "nat", HookPoint::Prerouting, -100),
        Chain::base("output", "nat", HookPoint::Output, -100),
        Chain::base("postrouting", "nat", HookPoint::Postrouting, 100),
        Chain::base("filter-input", "filter", HookPoint::Input, 0),
        Chain::base("filter-forward", "filter", HookPoint::Forward, 0),
        Chain::base("filter-output", "filter", HookPoint::Output, 0),
    ]
}

fn rules(ranges: &Ranges) -> Vec<Rule> {
    let [r0, r1, r2] = [Register(0), Register(1), Register(2)];
    let key = || {
        vec![
            Expression::destination_address(r0),
            Expression::transport_protocol(r1),
            Expression::destination_port(r2),
        ]
    };
    let jump = |from: &str, to: &str| {
        Rule::new(
            from,
            vec![Expression::Decide(RuleVerdict::Jump(to.to_owned()))],
        )
    };
    let mut rules = vec![
        jump("prerouting", "services"),
        jump("output", "services"),
        jump("filter-input", "unserved"),
        jump("filter-forward", "unserved"),
        jump("filter-output", "unserved"),
    ];

    // A node port was given to one Service; no externalIP that names the node takes it away.
    let on_node_address = [
        Expression::destination_address(r0),
        Expression::in_set(NODE_ADDRESSES, r0),
    ];
    let mut by_node_port = on_node_address.to_vec();
    by_node_port.extend([
        Expression::transport_protocol(r0),
        Expression::destination_port(r1),
        Expression::verdict_map(NODE_PORTS, r0),
    ]);
    rules.push(Rule::new("services", by_node_port));
    let mut by_address = key();
    by_address.push(Expression::verdict_map(SERVICES, r0));
    rules.push(Rule::new("services", by_address));

    rules.push(Rule::new(
        "postrouting",
        vec![
            Expression::source_address(r0),
            Expression::destination_address(r1),
            Expression::in_set(HAIRPIN, r0),
            Expression::address(ranges.gateway, r0),
            Expression::SourceNat { address: r0 },
        ],
    ));

    // A client that is no pod of ours, sent on to something that is no pod of ours: the answer must
    // come back through this node. (Answers of local pods do so by themselves.)
    let mut passing = vec![
        Expression::Ct {
            key: CtKey::Status,
            direction: None,
            to: r0,
        },
        Expression::Bitwise {
            from: r0,
            to: r0,
            mask: IPS_DST_NAT.to_ne_bytes().to_vec(),
            xor: vec![0; 4],
        },
        Expression::not_equal(r0, 0u32.to_ne_bytes()),
        Expression::source_address(r0),
    ];
    passing.extend(Expression::within(r0, ranges.pods, Comparison::NotEqual));
    passing.push(Expression::destination_address(r0));
    passing.extend(Expression::within(r0, ranges.pods, Comparison::NotEqual));
    passing.extend(Expression::not_to_loopback(r0));
    let original = |key: CtKey, to: Register| Expression::Ct {
        key,
        direction: Some(CtDirection::Original),
        to,
    };
    let mut by_service = passing.clone();
    by_service.push(original(CtKey::DestinationAddress, r0));
    by_service.extend(Expression::within(r0, ranges.services, Comparison::Equal));
    by_service.push(Expression::Masquerade);
    rules.push(Rule::new("postrouting", by_service));
    let mut by_external_address = passing.clone();
    by_external_address.extend([
        original(CtKey::DestinationAddress, r0),
        original(CtKey::Protocol, r1),
        original(CtKey::DestinationPort, r2),
        Expression::in_set(EXTERNAL_KEYS, r0),
        Expression::Masquerade,
    ]);
    rules.push(Rule::new("postrouting", by_external_address));
    let mut by_port = passing;
    by_port.extend([
        original(CtKey::DestinationAddress, r0),
        Expression::in_set(NODE_ADDRESSES, r0),
        original(CtKey::Protocol, r0),
        original(CtKey::DestinationPort, r1),
        Expression::in_set(NODE_PORT_KEYS, r0),
        Expression::Masquerade,
    ]);
    rules.push(Rule::new("postrouting", by_port));

    // A packet that is still addressed to a service here was not translated: there is no such service,
    // or it has no endpoints.
    let mut unserved = vec![Expression::destination_address(r0)];
    unserved.extend(Expression::within(r0, ranges.services, Comparison::Equal));
    unserved.push(Expression::RejectPort);
    rules.push(Rule::new("unserved", unserved));
    let mut closed = key();
    closed.extend([Expression::in_set(CLOSED, r0), Expression::RejectPort]);
    rules.push(Rule::new("unserved", closed));
    let mut closed_port = on_node_address.to_vec();
    closed_port.extend([
        Expression::transport_protocol(r0),
        Expression::destination_port(r1),
        Expression::in_set(CLOSED_NODE_PORTS, r0),
        Expression::RejectPort,
    ]);
    rules.push(Rule::new("unserved", closed_port));
    rules
}
