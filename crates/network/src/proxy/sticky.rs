//! Services with client affinity. Each endpoint of such a frontend has a set of the clients that
//! were sent to it and a chain that adds to the set; the frontend's chain looks into the sets first
//! and picks only for newcomers. When an endpoint leaves, its set leaves with it.

use std::net::Ipv4Addr;

use super::plan::{Backends, Endpoint, Frontend};
use super::ruleset::STICKY;
use crate::nft::{Batch, Chain, Datatype, Element, Expression, Register, Rule, RuleVerdict, Set};

/// Clients remembered per endpoint; over this, newcomers are not remembered.
const MOST_CLIENTS: u32 = 65_536;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    frontend: Frontend,
    seconds: u32,
    endpoints: Vec<Endpoint>,
}

impl Sticky {
    /// `None` for frontends without affinity or without endpoints.
    pub fn of(frontend: &Frontend, backends: &Backends) -> Option<Sticky> {
        let seconds = backends.affinity_seconds?;
        let endpoints = backends.endpoints.clone();
        (!endpoints.is_empty()).then_some(Sticky {
            frontend: *frontend,
            seconds,
            endpoints,
        })
    }

    pub fn chain(&self) -> String {
        // The time is part of the name: other rules, other chains.
        match self.frontend {
            Frontend::Address {
                address,
                protocol,
                port,
            } => {
                format!("sticky-{}s-{address}/{protocol}/{port}", self.seconds)
            }
            Frontend::NodePort { protocol, port } => {
                format!("sticky-{}s-node/{protocol}/{port}", self.seconds)
            }
        }
    }

    /// Names the endpoint's chain and its set.
    fn endpoint_chain(&self, endpoint: &Endpoint) -> String {
        format!("{}/{}/{}", self.chain(), endpoint.address, endpoint.port)
    }

    /// The elements by which newcomers are spread.
    pub fn elements(&self) -> impl Iterator<Item = Element> + '_ {
        self.endpoints.iter().enumerate().map(|(index, endpoint)| {
            let key = [
                frontend_key(&self.frontend).as_slice(),
                &(index as u32).to_ne_bytes(),
            ]
            .concat();
            Element::verdict(key, RuleVerdict::Goto(self.endpoint_chain(endpoint)))
        })
    }

    /// Adds what `old` did not have; elements may refer to it afterwards.
    pub fn add(&self, old: Option<&Sticky>, batch: &mut Batch) {
        let kept = old.filter(|old| old.chain() == self.chain());
        for endpoint in &self.endpoints {
            if kept.is_none_or(|kept| !kept.endpoints.contains(endpoint)) {
                self.add_endpoint(endpoint, batch);
            }
        }
        let chain = self.chain();
        batch.add_chain(&Chain::regular(&chain));
        if kept.is_some() {
            batch.flush_chain(&chain);
        }
        let [r0, r1, r2, r3] = [Register(0), Register(1), Register(2), Register(3)];
        for endpoint in &self.endpoints {
            let name = self.endpoint_chain(endpoint);
            let expressions = vec![
                Expression::source_address(r0),
                Expression::InSet {
                    set: name.clone(),
                    from: r0,
                    inverted: false,
                },
                Expression::Decide(RuleVerdict::Goto(name)),
            ];
            batch.append_rule(&Rule::new(&chain, expressions));
        }
        let address = match self.frontend {
            Frontend::Address { .. } => Expression::destination_address(r0),
            Frontend::NodePort { .. } => Expression::address(Ipv4Addr::UNSPECIFIED, r0),
        };
        let newcomer = vec![
            address,
            Expression::transport_protocol(r1),
            Expression::destination_port(r2),
            Expression::Random {
                modulus: self.endpoints.len() as u32,
                to: r3,
            },
            Expression::verdict_map(STICKY, r0),
        ];
        batch.append_rule(&Rule::new(&chain, newcomer));
    }

    /// Removes what `new` does not have; no element refers to it any more.
    pub fn remove(&self, new: Option<&Sticky>, batch: &mut Batch) {
        let kept = new.filter(|new| new.chain() == self.chain());
        if kept.is_none() {
            batch.flush_chain(&self.chain());
            batch.delete_chain(&self.chain());
        }
        for endpoint in &self.endpoints {
            if kept.is_none_or(|kept| !kept.endpoints.contains(endpoint)) {
                let name = self.endpoint_chain(endpoint);
                batch.flush_chain(&name);
                batch.delete_chain(&name);
                batch.delete_set(&name);
            }
        }
    }

    fn add_endpoint(&self, endpoint: &Endpoint, batch: &mut Batch) {
        let [r0, r1] = [Register(0), Register(1)];
        let name = self.endpoint_chain(endpoint);
        batch.add_set(&Set {
            name: name.clone(),
            key: vec![Datatype::Address],
            data: None,
            dynamic_size: Some(MOST_CLIENTS),
        });
        batch.add_chain(&Chain::regular(&name));
        let expressions = vec![
            Expression::source_address(r0),
            Expression::Remember {
                set: name.clone(),
                key: r0,
                timeout_seconds: u64::from(self.seconds),
            },
            Expression::address(endpoint.address, r0),
            Expression::Value {
                value: endpoint.port.to_be_bytes().to_vec(),
                to: r1,
            },
            Expression::DestinationNat {
                address: r0,
                port: Some(r1),
            },
        ];
        batch.append_rule(&Rule::new(name, expressions));
    }
}

/// `address . protocol . port`; the address is 0.0.0.0 for node ports.
pub fn frontend_key(frontend: &Frontend) -> Vec<u8> {
    match *frontend {
        Frontend::Address {
            address,
            protocol,
            port,
        } => Element::address_protocol_port(address, protocol, port),
        Frontend::NodePort { protocol, port } => {
            Element::address_protocol_port(Ipv4Addr::UNSPECIFIED, protocol, port)
        }
    }
}
