//! Counts the connections per address and per user, and chooses the one that is closed for a new one.
//!
//! An address or a user over its limit loses an idle connection, the oldest first, before a new one is
//! refused: a client behind the same address as an attacker gets its connection, and keeps it with its
//! first good credential. Pure bookkeeping; the connection closes itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::activity::Activity;
use crate::bounds::{Bounds, Shares};
use crate::descriptors;

/// Messages about closed connections come no more often.
const REPORT_PERIOD: Duration = Duration::from_secs(10);

/// The user has as many connections as one user may have, and all of them are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyConnections;

/// The connections of one listener.
pub struct Ledger {
    pub bounds: Bounds,
    open: Mutex<Open>,
    evicted: AtomicU64,
    refused: AtomicU64,
    last_report: Mutex<Option<Instant>>,
}

/// Figures of a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub authenticated: usize,
    pub unauthenticated: usize,
    /// Idle connections that were closed to make room for others.
    pub evicted: u64,
    /// Connections that were closed at once.
    pub refused: u64,
}

/// Numbers of connections grow, so the smallest is the oldest.
#[derive(Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, OpenConnection>,
    strangers: HashMap<IpAddr, BTreeSet<u64>>,
    unauthenticated: usize,
    users: BTreeMap<Arc<str>, BTreeSet<u64>>,
}

struct OpenConnection {
    holder: Holder,
    activity: Arc<Activity>,
}

enum Holder {
    Address(IpAddr),
    User(Arc<str>),
}

/// A connection's place in the ledger; free again when the last clone is dropped.
#[derive(Clone)]
pub struct Slot(Arc<Place>);

struct Place {
    ledger: Arc<Ledger>,
    number: u64,
    activity: Arc<Activity>,
}

impl Ledger {
    pub fn new(bounds: Bounds) -> Arc<Ledger> {
        Arc::new(Ledger {
            bounds,
            open: Mutex::default(),
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            last_report: Mutex::new(None),
        })
    }

    pub fn counts(&self) -> Counts {
        let open = self.open.lock();
        Counts {
            authenticated: open.connections.len() - open.unauthenticated,
            unauthenticated: open.unauthenticated,
            evicted: self.evicted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// A place for a new connection, which got the number `descriptor` from the kernel. `None` means: close
    /// it, no one can make room.
    pub(crate) fn admit(self: &Arc<Ledger>, peer: IpAddr, descriptor: u64) -> Option<Slot> {
        self.admit_within(self.bounds.shares(descriptors::limit()), peer, descriptor)
    }

    fn admit_within(
        self: &Arc<Ledger>,
        shares: Shares,
        peer: IpAddr,
        descriptor: u64,
    ) -> Option<Slot> {
        let peer = network_of(peer);
        let mut open = self.open.lock();
        let full = open.strangers.get(&peer).map_or(0, BTreeSet::len) >= shares.per_peer;
        let victim = if full {
            Some(open.oldest_idle(open.strangers.get(&peer)))
        } else if open.unauthenticated >= shares.unauthenticated {
            Some(open.oldest_idle(open.strangers.values().max_by_key(|held| held.len())))
        } else if descriptor >= shares.first_reserved {
            let stranger = open.strangers.values().max_by_key(|held| held.len());
            let user = open.users.values().max_by_key(|held| held.len());
            let victim = open.oldest_idle(stranger);
            Some(victim.or_else(|| open.oldest_idle(user)))
        } else {
            None
        };
        match victim {
            Some(Some(victim)) => self.evict(&mut open, victim),
            Some(None) => {
                drop(open);
                self.refused.fetch_add(1, Ordering::Relaxed);
                self.report();
                return None;
            }
            None => {}
        }
        let number = open.next;
        open.next += 1;
        let activity = Arc::new(Activity::new());
        open.strangers.entry(peer).or_default().insert(number);
        open.unauthenticated += 1;
        let entry = OpenConnection {
            holder: Holder::Address(peer),
            activity: activity.clone(),
        };
        open.connections.insert(number, entry);
        drop(open);
        Some(Slot(Arc::new(Place {
            ledger: self.clone(),
            number,
            activity,
        })))
    }

    /// The kernel had no descriptor for a connection that waits: an idle stranger gives up its own.
    pub(crate) fn make_room(&self) {
        let mut open = self.open.lock();
        let most = open.strangers.values().max_by_key(|held| held.len());
        if let Some(victim) = open.oldest_idle(most) {
            self.evict(&mut open, victim);
        }
    }

    fn authenticate(
        &self,
        number: u64,
        user: &str,
        per_user: usize,
    ) -> Result<(), TooManyConnections> {
        let mut open = self.open.lock();
        // Evicted while its first request came in: it may finish that.
        let Some(entry) = open.connections.get(&number) else {
            return Ok(());
        };
        let Holder::Address(peer) = entry.holder else {
            return Ok(());
        };
        if open.users.get(user).map_or(0, BTreeSet::len) >= per_user {
            match open.oldest_idle(open.users.get(user)) {
                Some(victim) => self.evict(&mut open, victim),
                None => {
                    drop(open);
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    self.report();
                    return Err(TooManyConnections);
                }
            }
        }
        open.leave_address(peer, number);
        let user: Arc<str> = match open.users.get_key_value(user) {
            Some((known, _)) => known.clone(),
            None => user.into(),
        };
        open.users.entry(user.clone()).or_default().insert(number);
        if let Some(entry) = open.connections.get_mut(&number) {
            entry.holder = Holder::User(user);
        }
        Ok(())
    }

    fn evict(&self, open: &mut Open, number: u64) {
        if let Some(entry) = open.remove(number) {
            entry.activity.evicted.cancel();
            self.evicted.fetch_add(1, Ordering::Relaxed);
            self.report();
        }
    }

    /// Logs that connections are closed, at most once per period.
    fn report(&self) {
        let now = Instant::now();
        let mut last = self.last_report.lock();
        if last.is_some_and(|last| now < last + REPORT_PERIOD) {
            return;
        }
        *last = Some(now);
        tracing::warn!(
            evicted = self.evicted.load(Ordering::Relaxed),
            refused = self.refused.load(Ordering::Relaxed),
            "there are too many connections: idle ones and new ones are being closed"
        );
    }
}

impl Open {
    fn oldest_idle(&self, held: Option<&BTreeSet<u64>>) -> Option<u64> {
        let idle = |number: &&u64| {
            let entry = self.connections.get(number);
            entry.is_some_and(|entry| entry.activity.is_idle())
        };
        held?.iter().find(idle).copied()
    }

    fn leave_address(&mut self, peer: IpAddr, number: u64) {
        if let Some(held) = self.strangers.get_mut(&peer)
            && held.remove(&number)
        {
            self.unauthenticated -= 1;
            if held.is_empty() {
                self.strangers.remove(&peer);
            }
        }
    }

    fn remove(&mut self, number: u64) -> Option<OpenConnection> {
        let entry = self.connections.remove(&number)?;
        match &entry.holder {
            Holder::Address(peer) => self.leave_address(*peer, number),
            Holder::User(user) => {
                if let Some(held) = self.users.get_mut(user) {
                    held.remove(&number);
                    if held.is_empty() {
                        self.users.remove(user);
                    }
                }
            }
        }
        Some(entry)
    }
}

impl Slot {
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.0.activity
    }

    /// A request of this connection has shown a valid credential of `user`. Only the first counts:
    /// a proxy in front of us may bring many users over one connection.
    pub fn authenticated(&self, user: &str) -> Result<(), TooManyConnections> {
        let place = &self.0;
        if place.activity.is_known() {
            return Ok(());
        }
        let shares = place.ledger.bounds.shares(descriptors::limit());
        place
            .ledger
            .authenticate(place.number, user, shares.per_user)?;
        place.activity.becomes_known();
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.ledger.open.lock().remove(self.number);
    }
}

/// A peer with one IPv6 address of a /64 can use all of them.
fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::InFlight;

    const SHARES: Shares = Shares {
        per_peer: 3,
        unauthenticated: 5,
        per_user: 2,
        first_reserved: 100,
    };

    fn ledger() -> Arc<Ledger> {
        Ledger::new(Bounds::default())
    }

    fn admit(ledger: &Arc<Ledger>, peer: &str) -> Option<Slot> {
        ledger.admit_within(SHARES, peer.parse().expect("an address"), 10)
    }

    fn login(slot: &Slot, user: &str) -> Result<(), TooManyConnections> {
        let place = &slot.0;
        place
            .ledger
            .authenticate(place.number, user, SHARES.per_user)
    }

    fn is_evicted(slot: &Slot) -> bool {
        slot.activity().evicted.is_cancelled()
    }

    #[test]
    fn an_address_loses_its_oldest_idle_connection_to_its_next_one() {
        let ledger = ledger();
        let held: Vec<Slot> = (0..3).filter_map(|_| admit(&ledger, "192.0.2.1")).collect();
        let busy = InFlight::begin(held[0].activity());
        let fourth = admit(&ledger, "192.0.2.1").expect("a place");
        let evicted: Vec<bool> = held.iter().map(is_evicted).collect();
        assert_eq!(evicted, [false, true, false]);
        let other = admit(&ledger, "192.0.2.2").expect("another address is not concerned");
        assert_eq!(ledger.counts().unauthenticated, 4);
        // The slots of the evicted are gone from the books once, not twice.
        drop(held);
        drop((busy, fourth, other));
        let counts = Counts {
            evicted: 1,
            ..Counts::default()
        };
        assert_eq!(ledger.counts(), counts);
    }

    #[test]
    fn a_connection_over_the_limit_is_refused_when_all_others_of_its_address_are_in_use() {
        let ledger = ledger();
        let held: Vec<Slot> = (0..3).filter_map(|_| admit(&ledger, "192.0.2.1")).collect();
        let busy: Vec<InFlight> = held
            .iter()
            .map(|slot| InFlight::begin(slot.activity()))
            .collect();
        assert!(admit(&ledger, "192.0.2.1").is_none());
        assert_eq!(ledger.counts().refused, 1);
        drop(busy);
        assert!(admit(&ledger, "192.0.2.1").is_some());
    }

    #[test]
    fn authenticated_connections_do_not_count_for_their_address() {
        let ledger = ledger();
        let user = admit(&ledger, "192.0.2.1").expect("a place");
        login(&user, "jane").expect("within the limit");
        let strangers: Vec<Option<Slot>> = (0..50).map(|_| admit(&ledger, "192.0.2.1")).collect();
        assert!(strangers.iter().all(Option::is_some));
        assert!(!is_evicted(&user));
        let counts = ledger.counts();
        assert_eq!((counts.authenticated, counts.unauthenticated), (1, 3));
    }

    #[test]
    fn all_addresses_together_are_bounded_and_the_one_with_most_connections_loses_one() {
        let ledger = ledger();
        let greedy: Vec<Slot> = (0..3).filter_map(|_| admit(&ledger, "192.0.2.1")).collect();
        let others: Vec<Slot> = (2..9)
            .filter_map(|host| admit(&ledger, &format!("192.0.2.{host}")))
            .collect();
        assert_eq!(others.len(), 7);
        assert_eq!(ledger.counts().unauthenticated, 5);
        assert!(is_evicted(&greedy[0]) && is_evicted(&greedy[1]));
    }

    #[test]
    fn a_users_idle_connection_is_closed_for_the_next_and_busy_ones_refuse_it() {
        let ledger = ledger();
        let slots: Vec<Slot> = (0..3)
            .map(|host| {
                let slot = admit(&ledger, &format!("192.0.2.{host}")).expect("a place");
                let _ = login(&slot, "jane");
                slot
            })
            .collect();
        assert_eq!(
            slots.iter().map(is_evicted).collect::<Vec<_>>(),
            [true, false, false]
        );
        let busy: Vec<InFlight> = slots
            .iter()
            .map(|slot| InFlight::begin(slot.activity()))
            .collect();
        let next = admit(&ledger, "192.0.2.9").expect("a place");
        assert_eq!(login(&next, "jane"), Err(TooManyConnections));
        assert_eq!(login(&next, "joe"), Ok(()));
        drop(busy);
    }

    #[test]
    fn the_reserve_of_descriptors_is_kept_by_closing_idle_connections_first() {
        let ledger = ledger();
        let stranger = admit(&ledger, "192.0.2.1").expect("a place");
        let user = admit(&ledger, "192.0.2.1").expect("a place");
        login(&user, "jane").expect("within the limit");
        let peer: IpAddr = "192.0.2.7".parse().expect("an address");
        let next = |descriptor| ledger.admit_within(SHARES, peer, descriptor);
        let first = next(100).expect("the stranger makes room");
        assert!(is_evicted(&stranger) && !is_evicted(&user));
        let busy = InFlight::begin(first.activity());
        let second = next(101).expect("the idle user makes room");
        assert!(is_evicted(&user));
        let busy_too = InFlight::begin(second.activity());
        assert!(next(102).is_none());
        assert!(next(99).is_some());
        drop((busy, busy_too));
    }

    #[test]
    fn a_network_of_ipv6_addresses_counts_as_one_peer() {
        assert_eq!(
            network_of("2001:db8::1:2:3:4".parse().expect("an address")),
            network_of("2001:db8::9".parse().expect("an address"))
        );
        assert_eq!(
            network_of("::ffff:192.0.2.1".parse().expect("an address")),
            "192.0.2.1".parse::<IpAddr>().expect("an address")
        );
    }
}
