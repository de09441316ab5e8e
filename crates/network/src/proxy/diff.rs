//! From what the kernel holds to what it should hold: the map elements to delete and to add, as one
//! batch. Shared things (pick chains, hairpin pairs) are counted, and leave with their last user.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::plan::{Backends, Endpoint, Frontend, UDP};
use super::ruleset::{self, Pick, Ranges};
use super::sticky::{Sticky, frontend_key};
use crate::names;
use crate::nft::{Batch, Element, Family, RuleVerdict};

/// A mirror of our table's changing part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    frontends: BTreeMap<Frontend, Backends>,
    picks: BTreeMap<Pick, usize>,
    hairpins: BTreeMap<Ipv4Addr, usize>,
    stale: BTreeMap<Frontend, Vec<Endpoint>>,
}

impl Installed {
    pub fn frontends(&self) -> &BTreeMap<Frontend, Backends> {
        &self.frontends
    }

    /// UDP frontends that lost an endpoint or got their first one since this was last asked, with
    /// those they have now. Unlike a TCP client, one of UDP would go on sending to the lost endpoint
    /// (or to the node itself) for ever, because the kernel treats each packet of a flow like its
    /// first.
    pub fn take_stale(&mut self) -> BTreeMap<Frontend, Vec<Endpoint>> {
        std::mem::take(&mut self.stale)
    }

    /// The elements of one frontend as the kernel should hold them.
    fn elements(
        frontend: &Frontend,
        backends: &Backends,
        ranges: &Ranges,
    ) -> BTreeMap<&'static str, BTreeSet<Element>> {
        let mut sets: BTreeMap<&'static str, BTreeSet<Element>> = BTreeMap::new();
        let mut put = |set: &'static str, element: Element| {
            sets.entry(set).or_default().insert(element);
        };
        let key = frontend_key(frontend);
        let sticky = Sticky::of(frontend, backends);
        let chain = match (&sticky, pick(frontend, backends)) {
            (Some(sticky), _) => sticky.chain(),
            (None, Some(pick)) => pick.chain(),
            (None, None) => {
                match *frontend {
                    // Inside the service range a fixed rule refuses what has no endpoints.
                    Frontend::Address { address, .. } if ranges.services.contains(address) => {}
                    Frontend::Address { .. } => put(ruleset::CLOSED, Element::key(key)),
                    Frontend::NodePort { protocol, port } => put(
                        ruleset::CLOSED_NODE_PORTS,
                        Element::key(Element::protocol_port(protocol, port)),
                    ),
                }
                return sets;
            }
        };
        match *frontend {
            Frontend::Address { address, .. } => {
                put(
                    ruleset::SERVICES,
                    Element::verdict(key.clone(), RuleVerdict::Goto(chain)),
                );
                if !ranges.services.contains(address) {
                    put(ruleset::EXTERNAL_KEYS, Element::key(key.clone()));
                }
            }
            Frontend::NodePort { protocol, port } => {
                let key = Element::protocol_port(protocol, port);
                put(ruleset::NODE_PORT_KEYS, Element::key(key.clone()));
                put(
                    ruleset::NODE_PORTS,
                    Element::verdict(key, RuleVerdict::Goto(chain)),
                );
            }
        }
        match sticky {
            Some(sticky) => sticky
                .elements()
                .for_each(|element| put(ruleset::STICKY, element)),
            None => {
                for (index, endpoint) in backends.endpoints.iter().enumerate() {
                    let slot = [key.as_slice(), &(index as u32).to_ne_bytes()].concat();
                    let target = Element::address_port(endpoint.address, endpoint.port);
                    put(ruleset::ENDPOINTS, Element::value(slot, target));
                }
            }
        }
        sets
    }

    /// Writes into `batch` what makes the kernel follow `changes` (`None` removes a frontend), and
    /// follows them itself.
    ///
    /// 1. Chains that are newly needed are added, because elements will refer to them.
    /// 2. Old elements are deleted, then new ones added; a changed element is both.
    /// 3. Chains (and sets) without any reference are deleted.
    pub fn follow(
        &mut self,
        changes: impl IntoIterator<Item = (Frontend, Option<Backends>)>,
        ranges: &Ranges,
        batch: &mut Batch,
    ) {
        let mut shared = Shared::default();
        let mut deleted: BTreeMap<&'static str, BTreeSet<Element>> = BTreeMap::new();
        let mut added: BTreeMap<&'static str, BTreeSet<Element>> = BTreeMap::new();
        for (frontend, new) in changes {
            let old = self.frontends.remove(&frontend);
            let before = old
                .as_ref()
                .map(|old| Installed::elements(&frontend, old, ranges))
                .unwrap_or_default();
            let after = new
                .as_ref()
                .map(|new| Installed::elements(&frontend, new, ranges))
                .unwrap_or_default();
            let none = BTreeSet::new();
            for (set, elements) in &before {
                let gone = elements
                    .difference(after.get(set).unwrap_or(&none))
                    .cloned();
                deleted.entry(set).or_default().extend(gone);
            }
            for (set, elements) in &after {
                let fresh = elements
                    .difference(before.get(set).unwrap_or(&none))
                    .cloned();
                added.entry(set).or_default().extend(fresh);
            }
            let (before, after) = (old.as_ref(), new.as_ref());
            if frontend.protocol() == UDP
                && (lost_endpoint(before, after) || got_first_endpoint(before, after))
            {
                let now = new
                    .as_ref()
                    .map(|new| new.endpoints.clone())
                    .unwrap_or_default();
                self.stale.insert(frontend, now);
            }
            let sticky = |backends: &Option<Backends>| Sticky::of(&frontend, backends.as_ref()?);
            let (sticky_before, sticky_after) = (sticky(&old), sticky(&new));
            if let Some(after) = &sticky_after
                && sticky_before.as_ref() != Some(after)
            {
                after.add(sticky_before.as_ref(), batch);
            }
            shared
                .stickies
                .extend(sticky_before.map(|before| (before, sticky_after)));
            if let Some(old) = &old {
                self.count(&frontend, old, false, &mut shared);
            }
            if let Some(new) = new {
                self.count(&frontend, &new, true, &mut shared);
                self.frontends.insert(frontend, new);
            }
        }
        for (address, was) in &shared.hairpins {
            let set = match (was, self.hairpins.contains_key(address)) {
                (true, false) => &mut deleted,
                (false, true) => &mut added,
                _ => continue,
            };
            set.entry(ruleset::HAIRPIN)
                .or_default()
                .insert(hairpin(*address));
        }
        for (pick, was) in &shared.picks {
            if !was && self.picks.contains_key(pick) {
                pick.add(batch);
            }
        }
        for (set, elements) in deleted {
            batch.delete_elements(set, &elements.into_iter().collect::<Vec<_>>());
        }
        for (set, elements) in added {
            batch.add_elements(set, &elements.into_iter().collect::<Vec<_>>());
        }
        for (pick, was) in &shared.picks {
            if *was && !self.picks.contains_key(pick) {
                pick.remove(batch);
            }
        }
        for (before, after) in &shared.stickies {
            before.remove(after.as_ref(), batch);
        }
    }

    fn count(&mut self, frontend: &Frontend, backends: &Backends, up: bool, shared: &mut Shared) {
        if let Some(pick) = pick(frontend, backends) {
            change_count(&mut self.picks, pick, up, &mut shared.picks);
        }
        for endpoint in &backends.endpoints {
            change_count(
                &mut self.hairpins,
                endpoint.address,
                up,
                &mut shared.hairpins,
            );
        }
    }
}

/// The difference of two whole states.
pub fn diff(
    desired: &BTreeMap<Frontend, Backends>,
    installed: &mut Installed,
    ranges: &Ranges,
) -> Batch {
    let mut changes: Vec<(Frontend, Option<Backends>)> = Vec::new();
    for frontend in installed
        .frontends
        .keys()
        .filter(|frontend| !desired.contains_key(frontend))
    {
        changes.push((*frontend, None));
    }
    for (frontend, backends) in desired {
        if installed.frontends.get(frontend) != Some(backends) {
            changes.push((*frontend, Some(backends.clone())));
        }
    }
    let mut batch = Batch::new(Family::Ipv4, names::proxy_table(&ranges.cluster_id));
    installed.follow(changes, ranges, &mut batch);
    batch
}

/// One batch that replaces the whole table, regardless of its content.
pub fn full(desired: &BTreeMap<Frontend, Backends>, ranges: &Ranges) -> (Batch, Installed) {
    let mut batch = ruleset::replace(ranges);
    let mut installed = Installed::default();
    let changes = desired
        .iter()
        .map(|(frontend, backends)| (*frontend, Some(backends.clone())));
    installed.follow(changes, ranges, &mut batch);
    (batch, installed)
}

fn pick(frontend: &Frontend, backends: &Backends) -> Option<Pick> {
    (!backends.endpoints.is_empty() && backends.affinity_seconds.is_none()).then_some(Pick {
        node_port: matches!(frontend, Frontend::NodePort { .. }),
        count: backends.endpoints.len() as u32,
    })
}

fn lost_endpoint(old: Option<&Backends>, new: Option<&Backends>) -> bool {
    let kept = |endpoint: &Endpoint| new.is_some_and(|new| new.endpoints.contains(endpoint));
    old.is_some_and(|old| !old.endpoints.iter().all(kept))
}

fn got_first_endpoint(old: Option<&Backends>, new: Option<&Backends>) -> bool {
    let has_any = |backends: &Backends| !backends.endpoints.is_empty();
    !old.is_some_and(has_any) && new.is_some_and(has_any)
}

fn hairpin(address: Ipv4Addr) -> Element {
    Element::key([address.octets(), address.octets()].concat())
}

/// The shared things a change touched, and whether they were there before it; and the chains of
/// services with affinity, before and after.
#[derive(Default)]
struct Shared {
    stickies: Vec<(Sticky, Option<Sticky>)>,
    picks: BTreeMap<Pick, bool>,
    hairpins: BTreeMap<Ipv4Addr, bool>,
}

fn change_count<K: Ord + Copy>(
    counts: &mut BTreeMap<K, usize>,
    key: K,
    up: bool,
    before: &mut BTreeMap<K, bool>,
) {
    before
        .entry(key)
        .or_insert_with(|| counts.contains_key(&key));
    if up {
        *counts.entry(key).or_default() += 1;
    } else if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
