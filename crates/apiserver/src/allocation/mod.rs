//! ClusterIPs and node ports: which are taken is read from the Services in the cache, plus what
//! requests in flight have reserved.

mod companions;
mod range;

pub(crate) use companions::{FAMILY_LABEL, MANAGED_BY, MANAGED_BY_LABEL, companions};

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use api::field::{FieldError, Path};
use api::strategy::service::{
    families, is_headless, needs_cluster_ip, needs_health_check, needs_node_port,
};
use api::{Resource, Status, Value};
use environment::Environment;
use parking_lot::Mutex;

use crate::Error;
use crate::cache::{Cache, CachedObject};
use range::Range;

const FIRST_PORT: u16 = 30000;
const LAST_PORT: u16 = 32767;

pub(crate) struct ServiceAllocator {
    cache: Arc<Cache>,
    environment: Environment,
    range: Range,
    state: Arc<Mutex<State>>,
}

/// The values that one Service has, or one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Taken {
    addresses: BTreeSet<Ipv4Addr>,
    /// Regardless of the protocol.
    ports: BTreeSet<u16>,
}

/// How many Services have each value.
#[derive(Default)]
struct Users {
    addresses: BTreeMap<Ipv4Addr, usize>,
    ports: BTreeMap<u16, usize>,
}

impl Users {
    fn add(&mut self, taken: &Taken) {
        for address in &taken.addresses {
            *self.addresses.entry(*address).or_default() += 1;
        }
        for port in &taken.ports {
            *self.ports.entry(*port).or_default() += 1;
        }
    }

    fn remove(&mut self, taken: &Taken) {
        for address in &taken.addresses {
            take_one(&mut self.addresses, *address);
        }
        for port in &taken.ports {
            take_one(&mut self.ports, *port);
        }
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[derive(Default)]
struct State {
    /// The revision of Services that `services` was read at; none before the first time.
    version: Option<u64>,
    /// What each Service has, by its key.
    services: BTreeMap<Arc<str>, Taken>,
    /// The same by value.
    users: Users,
    /// The revision that `recorded` was read at.
    recorded_version: Option<u64>,
    /// Addresses that have an IPAddress object, whoever made it.
    recorded: BTreeSet<Ipv4Addr>,
    /// The revision that `ranges` was read at.
    ranges_version: u64,
    /// Ranges that ServiceCIDR objects add.
    ranges: Vec<Range>,
    in_flight: Taken,
}

/// Values held until the Service that has them shows in the cache; freed on drop.
pub(crate) struct Reservation {
    state: Option<Arc<Mutex<State>>>,
    taken: Taken,
}

impl Reservation {
    pub fn none() -> Reservation {
        Reservation {
            state: None,
            taken: Taken::default(),
        }
    }

    pub fn holds(&self) -> bool {
        self.taken != Taken::default()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(state) = &self.state {
            let mut state = state.lock();
            for address in &self.taken.addresses {
                state.in_flight.addresses.remove(address);
            }
            for port in &self.taken.ports {
                state.in_flight.ports.remove(port);
            }
        }
    }
}

impl ServiceAllocator {
    pub fn new(
        cache: Arc<Cache>,
        environment: Environment,
        range: &str,
    ) -> Result<ServiceAllocator, Error> {
        let wrong = || Error::Configuration(format!("service range {range:?} is not an IPv4 CIDR"));
        let range = Range::parse(range).ok_or_else(wrong)?;
        Ok(ServiceAllocator {
            cache,
            environment,
            range,
            state: Arc::default(),
        })
    }

    /// The cluster's own range, as a CIDR.
    pub fn range(&self) -> String {
        format!("{}/{}", Ipv4Addr::from(self.range.network), self.range.bits)
    }

    /// The address of the `kubernetes` Service.
    pub fn first_address(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.range.network + 1)
    }

    /// Reads what changed since the last time.
    fn refresh(&self, state: &mut State) {
        self.refresh_services(state);
        self.refresh_records(state);
        let ranges = self.cache.named("networking.k8s.io", "servicecidrs");
        let version = ranges.changed();
        if version != state.ranges_version {
            state.ranges = self
                .cache
                .snapshot(&ranges)
                .iter()
                .filter_map(|(_, entry)| entry.object().ok())
                .flat_map(|object| usable_ranges(&object))
                .filter(|range| *range != self.range)
                .collect();
            state.ranges_version = version;
        }
    }

    fn refresh_services(&self, state: &mut State) {
        let kind = self.cache.named("", "services");
        let version = kind.changed();
        if Some(version) == state.version {
            return;
        }
        let changes = state.version.and_then(|known| kind.changes_since(known));
        // A change newer than `version` may be among them; to take it in twice does no harm.
        state.version = Some(version);
        let Some(changes) = changes else {
            state.services.clear();
            state.users = Users::default();
            for (key, entry) in self.cache.snapshot(&kind).iter() {
                state.set_service(key, Some(entry));
            }
            return;
        };
        for change in changes {
            if let Some(entry) = change.current.as_ref().or(change.previous.as_ref()) {
                state.set_service(&entry.key, change.current.as_ref());
            }
        }
    }

    fn refresh_records(&self, state: &mut State) {
        let kind = self.cache.named("networking.k8s.io", "ipaddresses");
        let version = kind.changed();
        if Some(version) == state.recorded_version {
            return;
        }
        let known = state.recorded_version.replace(version);
        let Some(changes) = known.and_then(|known| kind.changes_since(known)) else {
            let snapshot = self.cache.snapshot(&kind);
            state.recorded = snapshot
                .iter()
                .filter_map(|(key, _)| key.parse().ok())
                .collect();
            return;
        };
        for change in changes {
            let entry = change.current.as_ref().or(change.previous.as_ref());
            let Some(address) = entry.and_then(|entry| entry.key.parse().ok()) else {
                continue;
            };
            match change.current {
                Some(_) => state.recorded.insert(address),
                None => state.recorded.remove(&address),
            };
        }
    }

    fn reserve(
        &self,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<Reservation, Vec<FieldError>> {
        let mut state = self.state.lock();
        self.refresh(&mut state);
        let mut reservation = Reservation {
            state: Some(self.state.clone()),
            taken: Taken::default(),
        };
        let held = old.map(taken_by).unwrap_or_default();
        let wrong = families::settle(service, old);
        let result = match wrong.is_empty() {
            true => self
                .settle_address(service, &held, &mut state, &mut reservation)
                .and_then(|()| self.settle_ports(service, &held, &mut state, &mut reservation))
                .and_then(|()| self.settle_health(service, old, &mut state, &mut reservation)),
            false => Err(wrong),
        };
        // Dropping the reservation takes the lock.
        drop(state);
        result.map(|()| reservation)
    }

    fn settle_address(
        &self,
        service: &mut Value,
        held: &Taken,
        state: &mut State,
        reservation: &mut Reservation,
    ) -> Result<(), Vec<FieldError>> {
        if !needs_cluster_ip(service) {
            return Ok(());
        }
        let asked = service.str_at(&["spec", "clusterIP"]).to_string();
        if !is_headless(service) {
            let address = match asked.parse::<Ipv4Addr>() {
                Ok(address) if held.addresses.contains(&address) => address,
                Ok(address) => {
                    let ranges = std::iter::once(&self.range).chain(&state.ranges);
                    let problem = if !ranges.into_iter().any(|range| range.contains(address)) {
                        Some(format!(
                            "failed to allocate IP {address}: the provided IP ({address}) is not in the valid range. The range of valid IPs is {}/{}",
                            Ipv4Addr::from(self.range.network),
                            self.range.bits
                        ))
                    } else if state.is_taken(address) {
                        Some(format!(
                            "failed to allocate IP {address}: provided IP is already allocated"
                        ))
                    } else {
                        None
                    };
                    if let Some(problem) = problem {
                        let list: Vec<Value> = vec![asked.into()];
                        let path = Path::new("spec").child("clusterIPs");
                        return Err(vec![FieldError::invalid(&path, list, problem)]);
                    }
                    address
                }
                Err(_) if asked.is_empty() => {
                    let Some(address) = self.free_address(state) else {
                        let path = Path::new("spec").child("clusterIP");
                        return Err(vec![FieldError::invalid(
                            &path,
                            "",
                            "failed to allocate a serviceIP: range is full",
                        )]);
                    };
                    address
                }
                // Validation has the words for what is no address.
                Err(_) => return Ok(()),
            };
            if !held.addresses.contains(&address) {
                state.in_flight.addresses.insert(address);
                reservation.taken.addresses.insert(address);
            }
            service.set(&["spec", "clusterIP"], address.to_string());
            service.set(
                &["spec", "clusterIPs"],
                vec![Value::from(address.to_string())],
            );
        } else {
            service.set(&["spec", "clusterIPs"], vec![Value::from("None")]);
        }
        Ok(())
    }

    /// A random free address, of the cluster's own range first.
    fn free_address(&self, state: &State) -> Option<Ipv4Addr> {
        std::iter::once(&self.range)
            .chain(&state.ranges)
            .find_map(|range| self.free_in(*range, state))
    }

    /// The lower part of a range is left for those who ask by number.
    /// Whether the address belongs to Services.
    pub fn is_service_address(&self, address: std::net::IpAddr) -> bool {
        let std::net::IpAddr::V4(address) = address else {
            return false;
        };
        let state = self.state.lock();
        let mut ranges = std::iter::once(&self.range).chain(&state.ranges);
        ranges.any(|range| range.contains(address))
    }

    fn free_in(&self, range: Range, state: &State) -> Option<Ipv4Addr> {
        let size = range.size();
        let reserved = (size / 16).clamp(16, 256).min(size / 2);
        let last = size - 2;
        let pick = |from: u32, to: u32| {
            let count = to.checked_sub(from)? + 1;
            let start = (self.environment.random_u64() % u64::from(count)) as u32;
            (0..count)
                .map(|step| Ipv4Addr::from(range.network + from + (start + step) % count))
                .find(|address| !state.is_taken(*address))
        };
        pick(reserved + 1, last).or_else(|| pick(1, reserved.min(last)))
    }

    fn settle_ports(
        &self,
        service: &mut Value,
        held: &Taken,
        state: &mut State,
        reservation: &mut Reservation,
    ) -> Result<(), Vec<FieldError>> {
        if !externally_numbered(service) {
            return Ok(());
        }
        let wanted = needs_node_port(service);
        let list = service.list_at(&["spec", "ports"]).to_vec();
        // Ports of one number share their number on the nodes, regardless of the protocol.
        let mut shared: BTreeMap<i64, u16> = BTreeMap::new();
        let ports = service
            .at_mut(&["spec", "ports"])
            .and_then(Value::as_array_mut);
        for (index, port) in ports.into_iter().flatten().enumerate() {
            let own = port.i64_at(&["nodePort"]).unwrap_or(0);
            if own == 0 && !wanted {
                continue;
            }
            let number = port.i64_at(&["port"]).unwrap_or(0);
            let asked = match (own, shared.get(&number)) {
                (0, Some(found)) => i64::from(*found),
                (0, None) => requested(&list, number),
                _ => own,
            };
            let path = Path::new("spec")
                .child("ports")
                .index(index)
                .child("nodePort");
            let chosen = match asked {
                0 => self.free_port(state).ok_or_else(|| {
                    let detail = "failed to allocate a nodePort: range is full";
                    vec![FieldError::invalid(&path, 0, detail)]
                })?,
                asked => {
                    let mine = |number: u16| {
                        held.ports.contains(&number) || reservation.taken.ports.contains(&number)
                    };
                    port_problem(asked, state, mine)
                        .map_err(|problem| vec![FieldError::invalid(&path, asked, problem)])?
                }
            };
            shared.insert(number, chosen);
            if !held.ports.contains(&chosen) {
                state.in_flight.ports.insert(chosen);
                reservation.taken.ports.insert(chosen);
            }
            port.set(&["nodePort"], i64::from(chosen));
        }
        Ok(())
    }

    /// The port on which a load balancer asks nodes how they do.
    fn settle_health(
        &self,
        service: &mut Value,
        old: Option<&Value>,
        state: &mut State,
        reservation: &mut Reservation,
    ) -> Result<(), Vec<FieldError>> {
        if !needs_health_check(service) || old.is_some_and(needs_health_check) {
            return Ok(());
        }
        let at = ["spec", "healthCheckNodePort"];
        let path = Path::new("spec").child("healthCheckNodePort");
        let asked = service.i64_at(&at).unwrap_or(0);
        let chosen = match asked {
            0 => self
                .free_port(state)
                .ok_or_else(|| "range is full".to_string()),
            asked => port_problem(asked, state, |_| false),
        };
        let chosen = chosen.map_err(|problem| {
            let detail =
                format!("failed to allocate requested HealthCheck NodePort {asked}: {problem}");
            vec![FieldError::invalid(&path, asked, detail)]
        })?;
        state.in_flight.ports.insert(chosen);
        reservation.taken.ports.insert(chosen);
        service.set(&at, i64::from(chosen));
        Ok(())
    }

    /// A random free port.
    fn free_port(&self, state: &State) -> Option<u16> {
        let count = u64::from(LAST_PORT - FIRST_PORT + 1);
        let start = self.environment.random_u64() % count;
        (0..count)
            .map(|step| FIRST_PORT + ((start + step) % count) as u16)
            .find(|number| !state.is_port_taken(*number))
    }
}

/// The number that some port of the Service asks for, for all ports of that number.
fn requested(ports: &[Value], number: i64) -> i64 {
    ports
        .iter()
        .filter(|port| port.i64_at(&["port"]) == Some(number))
        .find_map(|port| port.i64_at(&["nodePort"]).filter(|asked| *asked != 0))
        .unwrap_or(0)
}

/// Whether a port can be had that was asked for by number.
fn port_problem(asked: i64, state: &State, mine: impl Fn(u16) -> bool) -> Result<u16, String> {
    match u16::try_from(asked) {
        Ok(number) if mine(number) => Ok(number),
        Ok(number) if (FIRST_PORT..=LAST_PORT).contains(&number) => {
            match state.is_port_taken(number) {
                true => Err("provided port is already allocated".to_string()),
                false => Ok(number),
            }
        }
        _ => Err(format!(
            "provided port is not in the valid range. The range of valid ports is {FIRST_PORT}-{LAST_PORT}"
        )),
    }
}

impl State {
    fn is_taken(&self, address: Ipv4Addr) -> bool {
        self.in_flight.addresses.contains(&address)
            || self.recorded.contains(&address)
            || self.users.addresses.contains_key(&address)
    }

    fn is_port_taken(&self, number: u16) -> bool {
        self.in_flight.ports.contains(&number) || self.users.ports.contains_key(&number)
    }

    /// Takes in what the Service of that key has now, or that it is gone.
    fn set_service(&mut self, key: &Arc<str>, entry: Option<&Arc<CachedObject>>) {
        if let Some(before) = self.services.remove(key) {
            self.users.remove(&before);
        }
        let object = entry.and_then(|entry| entry.object().ok());
        if let Some(taken) = object.map(|object| taken_by(&object)) {
            self.users.add(&taken);
            self.services.insert(key.clone(), taken);
        }
    }
}

/// The ranges of a ServiceCIDR that is ready and stays.
fn usable_ranges(object: &Value) -> Vec<Range> {
    let deleting = object.at(&["metadata", "deletionTimestamp"]).is_some();
    let ready = object
        .list_at(&["status", "conditions"])
        .iter()
        .any(|condition| {
            condition.str_at(&["type"]) == "Ready" && condition.str_at(&["status"]) == "True"
        });
    if deleting || !ready {
        return Vec::new();
    }
    let ranges = object.list_at(&["spec", "cidrs"]).iter();
    ranges
        .filter_map(|range| Range::parse(range.as_str()?))
        .collect()
}

fn taken_by(service: &Value) -> Taken {
    let addresses = service
        .at(&["spec", "clusterIP"])
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok());
    let ports = service.list_at(&["spec", "ports"]).iter();
    let numbers = ports
        .filter_map(|port| port.i64_at(&["nodePort"]))
        .chain(service.i64_at(&["spec", "healthCheckNodePort"]));
    Taken {
        addresses: addresses.into_iter().collect(),
        ports: numbers
            .filter_map(|number| u16::try_from(number).ok().filter(|number| *number > 0))
            .collect(),
    }
}

/// Whether its ports may have numbers on the nodes: chosen by the user, or found by us.
fn externally_numbered(service: &Value) -> bool {
    needs_node_port(service) || service.str_at(&["spec", "type"]) == "LoadBalancer"
}

/// Gives a Service its addresses and ports; nothing for other kinds. What an update leaves out of
/// what the Service `old` had, its strategy has kept already.
pub(crate) fn reserve(
    services: &ServiceAllocator,
    resource: &Resource,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<Reservation, Status> {
    if !(resource.group.is_empty() && resource.kind == "Service") {
        return Ok(Reservation::none());
    }
    if old.is_some() {
        check_node_ports(object)?;
    }
    services.reserve(object, old).map_err(|errors| {
        let name = object.str_at(&["metadata", "name"]);
        resource.invalid(name, errors)
    })
}

/// Upstream's allocator finds them before anybody looks at the rest, and has no reason to give.
fn check_node_ports(object: &Value) -> Result<(), Status> {
    if !matches!(
        object.str_at(&["spec", "type"]),
        "NodePort" | "LoadBalancer"
    ) {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    for port in object.list_at(&["spec", "ports"]) {
        let number = port.i64_at(&["nodePort"]).unwrap_or(0);
        let one = (port.str_at(&["protocol"]), number);
        if !seen.insert(one) && number != 0 {
            return Err(Status::new(
                api::Reason::Unknown,
                format!("duplicate nodePort: {{{} {number}}}", one.0),
            ));
        }
    }
    Ok(())
}

/// Another server gave the address away in the same moment.
pub(crate) fn taken_meanwhile(resource: &Resource, name: &str) -> Status {
    resource.conflict(
        name,
        "an address was allocated by another server at the same time; please try again",
    )
}
