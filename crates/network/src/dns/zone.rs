//! The cluster's zone: from a question to an answer, as the Kubernetes DNS specification defines it.
//! Pure; it sends no query.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{A, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::Error;
use super::names_index::{NamedEndpoint, NamedPort, NamesIndex, Target};

const TTL: u32 = 30;
/// The version of the DNS specification this follows.
const SPECIFICATION: &str = "1.1.0";
/// A chain of ExternalName Services inside the cluster is followed this far.
const LONGEST_CHAIN: usize = 8;
/// The endpoints of a headless Service that one answer names. More would not fit into a message,
/// and every question would cost as much as the Service is large.
const MOST_RECORDS: usize = 1000;

/// The domain this node answers for with authority.
#[derive(Clone, Debug)]
pub struct Zone {
    domain: Name,
}

/// The zone's answer to a question.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    pub code: ResponseCode,
    pub answers: Vec<Record>,
    pub authorities: Vec<Record>,
    pub additionals: Vec<Record>,
    /// An alias that points out of the cluster: its addresses are to be asked for elsewhere.
    pub continue_at: Option<Name>,
}

#[derive(Debug, PartialEq)]
pub enum ZoneLookup {
    Answered(Answer),
    /// The name is outside of the zone.
    Elsewhere,
}

/// The object that a name inside the zone belongs to.
enum Found<'a> {
    /// It exists but has no records of its own (`svc.cluster.local`).
    Empty,
    Apex,
    Text(&'static str),
    Addresses(Vec<Ipv4Addr>),
    Service {
        target: &'a Target,
        name: Name,
    },
    Ports {
        records: Vec<(u16, Name, Ipv4Addr)>,
    },
}

impl Zone {
    pub fn new(domain: &str) -> Result<Zone, Error> {
        let mut domain = Name::from_ascii(domain.trim_end_matches('.').to_lowercase())
            .map_err(|_| Error::Domain(domain.to_owned()))?;
        domain.set_fqdn(true);
        Ok(Zone { domain })
    }

    pub fn answer(&self, index: &NamesIndex, name: &Name, kind: RecordType) -> ZoneLookup {
        if self.domain.zone_of(name) {
            let mut answer = Answer::default();
            self.answer_inside(index, name, kind, &mut answer, 0);
            if answer.answers.is_empty() {
                answer.authorities.push(self.soa());
            }
            return ZoneLookup::Answered(answer);
        }
        match reverse_address(name) {
            Some(address) => self.answer_reverse(index, name, kind, address),
            None => ZoneLookup::Elsewhere,
        }
    }

    fn answer_inside(
        &self,
        index: &NamesIndex,
        name: &Name,
        kind: RecordType,
        answer: &mut Answer,
        depth: usize,
    ) {
        let mut put = |data: RData| {
            answer
                .answers
                .push(Record::from_rdata(name.clone(), TTL, data))
        };
        match self.find(index, name) {
            None => answer.code = ResponseCode::NXDomain,
            Some(Found::Empty) => {}
            Some(Found::Apex) => match kind {
                RecordType::SOA => answer.answers.push(self.soa()),
                RecordType::NS => put(RData::NS(NS(self.name_server()))),
                _ => {}
            },
            Some(Found::Text(text)) if kind == RecordType::TXT => {
                put(RData::TXT(TXT::new(vec![text.to_owned()])))
            }
            Some(Found::Text(_)) => {}
            Some(Found::Addresses(addresses)) if kind == RecordType::A => {
                addresses
                    .into_iter()
                    .for_each(|address| put(RData::A(A(address))));
            }
            Some(Found::Addresses(_)) => {}
            Some(Found::Ports { records }) if kind == RecordType::SRV => {
                put_srv(name, records, answer)
            }
            Some(Found::Ports { .. }) => {}
            Some(Found::Service { target, name: own }) => match target {
                Target::External { name: alias } => {
                    let Ok(mut alias) = Name::from_ascii(alias) else {
                        return;
                    };
                    alias.set_fqdn(true);
                    put(RData::CNAME(CNAME(alias.clone())));
                    if !matches!(kind, RecordType::A | RecordType::AAAA) {
                    } else if !self.domain.zone_of(&alias) {
                        answer.continue_at = Some(alias);
                    } else if depth < LONGEST_CHAIN {
                        self.answer_inside(index, &alias, kind, answer, depth + 1);
                        // The alias itself exists.
                        answer.code = ResponseCode::NoError;
                    }
                }
                Target::ClusterIp { address, .. } if kind == RecordType::A => {
                    put(RData::A(A(*address)))
                }
                Target::Headless { endpoints } if kind == RecordType::A => {
                    endpoints
                        .keys()
                        .take(MOST_RECORDS)
                        .for_each(|endpoint| put(RData::A(A(endpoint.address))));
                }
                target if kind == RecordType::SRV => {
                    put_srv(name, self.ports(target, &own, |_| true), answer);
                }
                _ => {}
            },
        }
    }

    /// Names as the specification lays them out, read from the right.
    fn find<'a>(&self, index: &'a NamesIndex, name: &Name) -> Option<Found<'a>> {
        let own = usize::from(self.domain.num_labels());
        let labels: Vec<String> = name
            .iter()
            .map(|label| String::from_utf8_lossy(label).to_lowercase())
            .collect();
        let labels: Vec<&str> = labels
            .iter()
            .take(labels.len().checked_sub(own)?)
            .map(String::as_str)
            .collect();
        match labels.as_slice() {
            [] => Some(Found::Apex),
            ["svc" | "pod"] => Some(Found::Empty),
            ["dns-version"] => Some(Found::Text(SPECIFICATION)),
            [namespace, "svc" | "pod"] => index.knows_namespace(namespace).then_some(Found::Empty),
            [pod, _namespace, "pod"] => Some(Found::Addresses(vec![dashed_address(pod)?])),
            [service, namespace, "svc"] => {
                let target = index.target(namespace, service)?;
                Some(Found::Service {
                    target,
                    name: self.service_name(service, namespace)?,
                })
            }
            [endpoint, service, namespace, "svc"] if !endpoint.starts_with('_') => {
                let Target::Headless { endpoints } = index.target(namespace, service)? else {
                    return None;
                };
                let addresses: Vec<Ipv4Addr> = endpoints
                    .keys()
                    .filter(|candidate| candidate.name == *endpoint)
                    .map(|candidate| candidate.address)
                    .take(MOST_RECORDS)
                    .collect();
                (!addresses.is_empty()).then_some(Found::Addresses(addresses))
            }
            [port, protocol, service, namespace, "svc"] => {
                let (port, protocol) = (port.strip_prefix('_')?, protocol.strip_prefix('_')?);
                let target = index.target(namespace, service)?;
                let name = self.service_name(service, namespace)?;
                let matches = |candidate: &NamedPort| {
                    candidate.name == port && candidate.protocol == protocol
                };
                let records = self.ports(target, &name, matches);
                (!records.is_empty()).then_some(Found::Ports { records })
            }
            _ => None,
        }
    }

    /// (port, host name, its address) for each matching port of each host.
    fn ports(
        &self,
        target: &Target,
        service: &Name,
        matches: impl Fn(&NamedPort) -> bool,
    ) -> Vec<(u16, Name, Ipv4Addr)> {
        match target {
            Target::ClusterIp { address, ports } => ports
                .iter()
                .filter(|port| matches(port))
                .map(|port| (port.number, service.clone(), *address))
                .collect(),
            Target::Headless { endpoints } => endpoints
                .iter()
                .flat_map(|(endpoint, ports)| ports.iter().map(move |port| (endpoint, port)))
                .filter(|(_, port)| matches(port))
                .filter_map(|(NamedEndpoint { name, address }, port)| {
                    Some((
                        port.number,
                        service.prepend_label(name.as_bytes()).ok()?,
                        *address,
                    ))
                })
                .take(MOST_RECORDS)
                .collect(),
            Target::External { .. } => Vec::new(),
        }
    }

    fn answer_reverse(
        &self,
        index: &NamesIndex,
        name: &Name,
        kind: RecordType,
        address: Ipv4Addr,
    ) -> ZoneLookup {
        let names = index.names_of(address);
        if names.is_empty() {
            return ZoneLookup::Elsewhere;
        }
        let mut answer = Answer::default();
        if kind == RecordType::PTR {
            for (host, key) in names {
                let service = self.service_name(&key.name, &key.namespace);
                let full = service.and_then(|service| match host {
                    Some(host) => service.prepend_label(host.as_bytes()).ok(),
                    None => Some(service),
                });
                let records =
                    full.map(|full| Record::from_rdata(name.clone(), TTL, RData::PTR(PTR(full))));
                answer.answers.extend(records);
            }
        } else {
            answer.authorities.push(self.soa());
        }
        ZoneLookup::Answered(answer)
    }

    fn service_name(&self, service: &str, namespace: &str) -> Option<Name> {
        let labels = [service.as_bytes(), namespace.as_bytes(), b"svc"];
        let name = Name::from_labels(labels)
            .ok()?
            .append_domain(&self.domain)
            .ok()?;
        Some(name)
    }

    fn name_server(&self) -> Name {
        self.below_domain(&["ns", "dns"])
    }

    fn soa(&self) -> Record {
        let data = SOA::new(
            self.name_server(),
            self.below_domain(&["hostmaster"]),
            1,
            7200,
            1800,
            86400,
            TTL,
        );
        Record::from_rdata(self.domain.clone(), TTL, RData::SOA(data))
    }

    fn below_domain(&self, labels: &[&str]) -> Name {
        let below = Name::from_labels(labels.iter().map(|label| label.as_bytes()));
        below
            .and_then(|name| name.append_domain(&self.domain))
            .unwrap_or_else(|_| self.domain.clone())
    }
}

fn put_srv(name: &Name, records: Vec<(u16, Name, Ipv4Addr)>, answer: &mut Answer) {
    let weight = (100 / records.len().max(1)).max(1) as u16;
    let mut hosts: HashSet<(Name, Ipv4Addr)> = HashSet::new();
    for (port, host, address) in records {
        let data = RData::SRV(SRV::new(0, weight, port, host.clone()));
        answer
            .answers
            .push(Record::from_rdata(name.clone(), TTL, data));
        if hosts.insert((host.clone(), address)) {
            let extra = Record::from_rdata(host, TTL, RData::A(A(address)));
            answer.additionals.push(extra);
        }
    }
}

/// `10-244-0-5` → 10.244.0.5
fn dashed_address(label: &str) -> Option<Ipv4Addr> {
    label.replace('-', ".").parse().ok()
}

/// `5.0.244.10.in-addr.arpa` → 10.244.0.5
fn reverse_address(name: &Name) -> Option<Ipv4Addr> {
    let text = name.to_ascii().to_lowercase();
    let digits = text.trim_end_matches('.').strip_suffix(".in-addr.arpa")?;
    let mut parts: Vec<&str> = digits.split('.').collect();
    parts.reverse();
    parts.join(".").parse().ok()
}
