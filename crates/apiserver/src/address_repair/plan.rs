//! What Services claim, what the records say, and what has to be done to bring them together. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::Value;

use crate::allocation::{FAMILY_LABEL, MANAGED_BY, MANAGED_BY_LABEL};

/// A record may be older than its Service by the time that a request may take.
const UNFINISHED_SECONDS: i64 = 60;
/// A record that another server writes and takes back again.
const REVERTED_SECONDS: i64 = 5;

/// Namespace and name.
pub type ServiceName = (String, String);

/// What a Service has.
pub struct Claim {
    addresses: BTreeSet<IpAddr>,
    is_external_name: bool,
    created: i64,
}

/// What an IPAddress says.
pub struct Record {
    /// The Service it belongs to, if it is one.
    parent: Option<ServiceName>,
    is_managed: bool,
    has_family: bool,
    is_held: bool,
    created: i64,
}

/// An address with its prefix length.
pub type Network = (IpAddr, u8);

#[derive(Default)]
pub struct World {
    /// By key, with their revisions.
    pub services: BTreeMap<Arc<str>, (u64, Claim)>,
    pub records: BTreeMap<Arc<str>, (u64, Record)>,
    pub ranges: Vec<Network>,
}

/// One transaction; `service` is who the decision depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Create {
        address: IpAddr,
        service: ServiceName,
    },
    Delete {
        address: IpAddr,
        service: Option<ServiceName>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    OutOfRange,
    NotAllocated,
    WrongReference,
    AlreadyAllocated,
    /// Of a record: it belongs to no Service.
    Modified,
    /// Of a record: its Service is gone.
    Leaked,
    /// Of a record: its Service has another address.
    Stray,
}

/// Something that users are told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub fault: Fault,
    pub address: IpAddr,
    pub service: ServiceName,
}

pub enum Subject {
    Service(String, String),
    Record(IpAddr),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct RepairPlan {
    pub steps: Vec<Step>,
    pub findings: BTreeSet<Finding>,
    /// The second in which something has to be looked at again.
    pub due: Option<i64>,
}

impl Claim {
    pub fn of(service: &Value) -> Claim {
        let list = service.list_at(&["spec", "clusterIPs"]).iter();
        let first = service.at(&["spec", "clusterIP"]).into_iter();
        let texts = list.chain(first).filter_map(Value::as_str);
        Claim {
            addresses: texts.filter_map(|text| text.parse().ok()).collect(),
            is_external_name: service.str_at(&["spec", "type"]) == "ExternalName",
            created: created(service),
        }
    }
}

impl Record {
    pub fn of(object: &Value) -> Record {
        let parent = ["spec", "parentRef"];
        let field = |name: &str| object.str_at(&[parent[0], parent[1], name]).to_string();
        let is_service = field("group").is_empty() && field("resource") == "services";
        let label = |name: &str| object.str_at(&["metadata", "labels", name]);
        let address = object.str_at(&["metadata", "name"]).parse::<IpAddr>();
        let family = match address {
            Ok(IpAddr::V6(_)) => "IPv6",
            _ => "IPv4",
        };
        Record {
            parent: is_service.then(|| (field("namespace"), field("name"))),
            is_managed: label(MANAGED_BY_LABEL) == MANAGED_BY,
            has_family: label(FAMILY_LABEL) == family,
            is_held: !object.list_at(&["metadata", "finalizers"]).is_empty(),
            created: created(object),
        }
    }
}

fn created(object: &Value) -> i64 {
    let text = object.str_at(&["metadata", "creationTimestamp"]);
    let time = text.parse::<jiff::Timestamp>();
    time.map_or(0, jiff::Timestamp::as_second)
}

impl World {
    pub fn plan(&self, now: i64) -> RepairPlan {
        let mut outcome = RepairPlan::default();
        for (key, (_, claim)) in &self.services {
            let (namespace, name) = key.split_once('/').unwrap_or(("", key));
            let service = (namespace.to_string(), name.to_string());
            for address in &claim.addresses {
                self.check_claim(&service, *address, &mut outcome);
            }
        }
        for (key, (_, record)) in &self.records {
            if let Ok(address) = key.parse() {
                self.check_record(address, record, now, &mut outcome);
            }
        }
        outcome
    }

    fn claim(&self, (namespace, name): &ServiceName) -> Option<&Claim> {
        let key = crate::cache::key_of(namespace, name);
        self.services.get(key.as_str()).map(|(_, claim)| claim)
    }

    fn check_claim(&self, service: &ServiceName, address: IpAddr, outcome: &mut RepairPlan) {
        let mut find = |fault| {
            outcome.findings.insert(Finding {
                fault,
                address,
                service: service.clone(),
            });
        };
        if !self.ranges.iter().any(|range| contains(*range, address)) {
            return find(Fault::OutOfRange);
        }
        let Some((_, record)) = self.records.get(address.to_string().as_str()) else {
            find(Fault::NotAllocated);
            outcome.steps.push(Step::Create {
                address,
                service: service.clone(),
            });
            return;
        };
        let wrong = match &record.parent {
            Some(parent) if parent == service => false,
            Some(parent) => match self.claim(parent) {
                Some(other) if other.addresses.contains(&address) => {
                    return find(Fault::AlreadyAllocated);
                }
                // The record itself is looked at for this.
                Some(_) if record.is_managed => return,
                _ => true,
            },
            None => true,
        };
        if wrong {
            find(Fault::WrongReference);
        }
        if wrong || !record.is_managed || !record.has_family {
            outcome.delete(address, record, Some(service.clone()));
        }
    }

    fn check_record(&self, address: IpAddr, record: &Record, now: i64, outcome: &mut RepairPlan) {
        if !record.is_managed {
            return;
        }
        let age = now - record.created;
        let (fault, wait, parent) = match &record.parent {
            None => (Fault::Modified, 0, None),
            Some(parent) => match self.claim(parent) {
                None => (Fault::Leaked, UNFINISHED_SECONDS, Some(parent)),
                Some(claim) if claim.addresses.contains(&address) => return,
                Some(claim) if claim.is_external_name => {
                    (Fault::Stray, UNFINISHED_SECONDS, Some(parent))
                }
                Some(claim) if record.created > claim.created => {
                    (Fault::Stray, REVERTED_SECONDS, Some(parent))
                }
                Some(_) => (Fault::Stray, 0, Some(parent)),
            },
        };
        if age < wait {
            let due = record.created + wait;
            outcome.due = Some(outcome.due.map_or(due, |known| known.min(due)));
            return;
        }
        outcome.findings.insert(Finding {
            fault,
            address,
            service: parent.cloned().unwrap_or_default(),
        });
        outcome.delete(address, record, parent.cloned());
    }
}

impl RepairPlan {
    /// Whose finalizer holds a record has to let it go first.
    fn delete(&mut self, address: IpAddr, record: &Record, service: Option<ServiceName>) {
        let is_known = self
            .steps
            .iter()
            .any(|step| matches!(step, Step::Delete { address: known, .. } if *known == address));
        if !record.is_held && !is_known {
            self.steps.push(Step::Delete { address, service });
        }
    }
}

impl Finding {
    /// Who it is about, the reason and the words.
    pub fn words(&self) -> (Subject, &'static str, String) {
        let Finding {
            fault,
            address,
            service: (namespace, name),
        } = self;
        let family = match address {
            IpAddr::V4(_) => "IPv4",
            IpAddr::V6(_) => "IPv6",
        };
        let of_service = || Subject::Service(namespace.clone(), name.clone());
        let of_record = || Subject::Record(*address);
        match fault {
            Fault::OutOfRange => (
                of_service(),
                "ClusterIPOutOfRange",
                format!(
                    "Cluster IP [{family}]: {address} is not within any configured Service CIDR; please recreate service"
                ),
            ),
            Fault::NotAllocated => (
                of_service(),
                "ClusterIPNotAllocated",
                format!("Cluster IP [{family}]: {address} is not allocated; repairing"),
            ),
            Fault::WrongReference => (
                of_service(),
                "ClusterIPNotAllocated",
                format!(
                    "the ClusterIP [{family}]: {address} for Service {namespace}/{name} has a wrong reference; repairing"
                ),
            ),
            Fault::AlreadyAllocated => (
                of_service(),
                "ClusterIPAlreadyAllocated",
                format!(
                    "Cluster IP [{family}]:{address} was assigned to multiple services; please recreate service"
                ),
            ),
            Fault::Modified => (
                of_record(),
                "IPAddressNotAllocated",
                format!(
                    "IPAddress {address} appears to have been modified, not referencing a Service: cleaning up"
                ),
            ),
            Fault::Leaked => (
                of_record(),
                "IPAddressNotAllocated",
                format!(
                    "IPAddress: {address} for Service {namespace}/{name} appears to have leaked: cleaning up"
                ),
            ),
            Fault::Stray => (
                of_record(),
                "IPAddressWrongReference",
                format!(
                    "IPAddress: {address} for Service {namespace}/{name} has a wrong reference; cleaning up"
                ),
            ),
        }
    }
}

pub fn network(text: &str) -> Option<Network> {
    let (address, bits) = text.split_once('/')?;
    Some((address.parse().ok()?, bits.parse().ok()?))
}

fn contains((network, bits): Network, address: IpAddr) -> bool {
    let bits = u32::from(bits);
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let differ = u32::from(network) ^ u32::from(address);
            differ.checked_shr(32u32.saturating_sub(bits)).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let differ = u128::from(network) ^ u128::from(address);
            differ.checked_shr(128u32.saturating_sub(bits)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn now() -> i64 {
        NOW.parse::<jiff::Timestamp>().unwrap().as_second()
    }

    fn world(services: &[(&str, Value)], records: &[(&str, Value)]) -> World {
        let service = |(key, spec): &(&str, Value)| {
            let mut service = api::document!({"spec": spec.clone()});
            service.set(&["metadata", "creationTimestamp"], "2026-01-01T00:00:00Z");
            (Arc::from(*key), (1, Claim::of(&service)))
        };
        let record = |(name, record): &(&str, Value)| {
            let mut record = record.clone();
            record.set(&["metadata", "name"], *name);
            (Arc::from(*name), (1, Record::of(&record)))
        };
        World {
            services: services.iter().map(service).collect(),
            records: records.iter().map(record).collect(),
            ranges: vec![
                network("10.0.0.0/24").unwrap(),
                network("fd00::/112").unwrap(),
            ],
        }
    }

    fn addresses(list: &[&str]) -> Value {
        let list: Vec<Value> = list.iter().map(|text| Value::from(*text)).collect();
        api::document!({"clusterIPs": list})
    }

    fn of(name: &str, created: &str, family: &str) -> Value {
        let mut record = api::document!({
            "metadata": {"creationTimestamp": created},
            "spec": {"parentRef": {"resource": "services", "namespace": "d", "name": name}},
        });
        record.set(&["metadata", "labels", MANAGED_BY_LABEL], MANAGED_BY);
        record.set(&["metadata", "labels", FAMILY_LABEL], family);
        record
    }

    /// The steps as words.
    fn steps(world: &World) -> Vec<String> {
        let steps = world.plan(now()).steps.into_iter();
        steps
            .map(|step| match step {
                Step::Create { address, service } => format!("create {address} {}", service.1),
                Step::Delete { address, .. } => format!("delete {address}"),
            })
            .collect()
    }

    const OLD: &str = "2026-01-01T00:00:00Z";

    #[test]
    fn what_belongs_together_stays() {
        let world = world(
            &[
                ("d/a", addresses(&["10.0.0.1", "fd00::1"])),
                ("d/headless", addresses(&["None"])),
            ],
            &[
                ("10.0.0.1", of("a", OLD, "IPv4")),
                ("fd00::1", of("a", OLD, "IPv6")),
            ],
        );
        assert_eq!(world.plan(now()), RepairPlan::default());
    }

    #[test]
    fn records_that_lack_are_made_within_the_ranges() {
        let services = [
            ("d/a", addresses(&["10.0.0.1"])),
            ("d/b", addresses(&["10.9.0.1"])),
        ];
        let world = world(&services, &[]);
        assert_eq!(steps(&world), ["create 10.0.0.1 a"]);
        let faults: Vec<Fault> = world
            .plan(now())
            .findings
            .into_iter()
            .map(|finding| finding.fault)
            .collect();
        assert_eq!(faults, [Fault::OutOfRange, Fault::NotAllocated]);
    }

    #[test]
    fn records_without_a_service_are_deleted_after_their_time() {
        let fresh = "2026-01-01T00:59:30Z";
        let world = world(
            &[("d/a", addresses(&["10.0.0.1"]))],
            &[
                ("10.0.0.1", of("a", OLD, "IPv4")),
                ("10.0.0.2", of("a", OLD, "IPv4")),
                ("10.0.0.3", of("gone", OLD, "IPv4")),
                ("10.0.0.4", of("gone", fresh, "IPv4")),
                ("10.0.0.5", api::document!({"spec": {}})),
            ],
        );
        assert_eq!(steps(&world), ["delete 10.0.0.2", "delete 10.0.0.3"]);
        assert_eq!(world.plan(now()).due, Some(now() + 30));
    }

    #[test]
    fn a_record_with_other_content_is_replaced() {
        let mut foreign = of("a", OLD, "IPv4");
        foreign.set(&["spec", "parentRef", "resource"], "gateways");
        let mut bare = of("b", OLD, "IPv4");
        bare.remove(&["metadata", "labels"]);
        let world = world(
            &[
                ("d/a", addresses(&["10.0.0.1"])),
                ("d/b", addresses(&["10.0.0.2"])),
                ("d/c", addresses(&["10.0.0.3"])),
                ("d/e", addresses(&["10.0.0.4"])),
                ("d/f", addresses(&["10.0.0.4"])),
            ],
            &[
                ("10.0.0.1", foreign),
                ("10.0.0.2", bare),
                ("10.0.0.3", of("gone", OLD, "IPv4")),
                ("10.0.0.4", of("e", OLD, "IPv4")),
            ],
        );
        assert_eq!(
            steps(&world),
            ["delete 10.0.0.1", "delete 10.0.0.2", "delete 10.0.0.3"]
        );
        let findings = world.plan(now()).findings;
        assert!(
            findings
                .iter()
                .any(|found| found.fault == Fault::AlreadyAllocated && found.service.1 == "f")
        );
    }
}
