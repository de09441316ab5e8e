//! Which Service holds which frontend.
//!
//! Two Services may ask for the same frontend, because a Service may name any address among its
//! `externalIPs`. The stronger right wins (see `Right`), then the older Service, then the first by
//! namespace and name; when that Service gives it up, the next one gets it. An address that is some
//! Service's ClusterIP is never lent to another Service, not even on a port which its owner leaves
//! unused.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use client::ObjectKey;

use super::plan::{Backends, Frontend, Right, ServicePlan};

/// The plans of all Services and the claims that follow from them.
#[derive(Default)]
pub struct Ledger {
    plans: BTreeMap<ObjectKey, ServicePlan>,
    claims: BTreeMap<Frontend, BTreeSet<Claim>>,
    /// The addresses that are ClusterIPs, with the number of frontends their owners have there.
    owned: BTreeMap<Ipv4Addr, usize>,
}

/// Claims to one frontend; the smallest wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    right: Right,
    /// Seconds since the epoch.
    created: i64,
    service: ObjectKey,
}

impl Claim {
    fn of(service: &ObjectKey, plan: &ServicePlan, frontend: &Frontend) -> Claim {
        Claim {
            right: plan.right(frontend),
            created: plan.created,
            service: service.clone(),
        }
    }
}

impl Ledger {
    /// Takes a Service's new plan (or its end) and returns the frontends that may have changed.
    pub fn update(&mut self, service: &ObjectKey, plan: Option<ServicePlan>) -> BTreeSet<Frontend> {
        let old = self.plans.remove(service).unwrap_or_default();
        let new = plan.unwrap_or_default();
        let mut touched = BTreeSet::new();
        let claim = |plan: &ServicePlan, frontend: &Frontend| {
            let asked = plan.frontends.contains_key(frontend);
            asked.then(|| Claim::of(service, plan, frontend))
        };
        for (frontend, backends) in &old.frontends {
            let (before, after) = (claim(&old, frontend), claim(&new, frontend));
            if before != after {
                self.withdraw(frontend, before, &mut touched);
            } else if new.frontends.get(frontend) != Some(backends) {
                touched.insert(*frontend);
            }
        }
        for frontend in new.frontends.keys() {
            let (before, after) = (claim(&old, frontend), claim(&new, frontend));
            if before != after {
                self.enter(frontend, after, &mut touched);
            }
        }
        if !new.frontends.is_empty() {
            self.plans.insert(service.clone(), new);
        }
        touched
    }

    pub fn plan(&self, service: &ObjectKey) -> Option<&ServicePlan> {
        self.plans.get(service)
    }

    /// The backends of the Service that holds the frontend.
    pub fn backends(&self, frontend: &Frontend) -> Option<&Backends> {
        let holder = self.claims.get(frontend)?.first()?;
        if let Frontend::Address { address, .. } = frontend
            && !holder.right.owns_address()
            && self.owned.contains_key(address)
        {
            return None;
        }
        self.plans.get(&holder.service)?.frontends.get(frontend)
    }

    /// Everything that should be in the kernel.
    pub fn desired(&self) -> BTreeMap<Frontend, Backends> {
        self.claims
            .keys()
            .filter_map(|frontend| Some((*frontend, self.backends(frontend)?.clone())))
            .collect()
    }

    fn enter(
        &mut self,
        frontend: &Frontend,
        claim: Option<Claim>,
        touched: &mut BTreeSet<Frontend>,
    ) {
        let Some(claim) = claim else { return };
        touched.insert(*frontend);
        if let Frontend::Address { address, .. } = frontend
            && claim.right.owns_address()
        {
            let count = self.owned.entry(*address).or_default();
            *count += 1;
            if *count == 1 {
                touched.extend(self.claimed_at(*address));
            }
        }
        self.claims.entry(*frontend).or_default().insert(claim);
    }

    fn withdraw(
        &mut self,
        frontend: &Frontend,
        claim: Option<Claim>,
        touched: &mut BTreeSet<Frontend>,
    ) {
        let Some(claim) = claim else { return };
        touched.insert(*frontend);
        if let Some(claims) = self.claims.get_mut(frontend) {
            claims.remove(&claim);
            if claims.is_empty() {
                self.claims.remove(frontend);
            }
        }
        if let Frontend::Address { address, .. } = frontend
            && claim.right.owns_address()
            && let Some(count) = self.owned.get_mut(address)
        {
            *count -= 1;
            if *count == 0 {
                self.owned.remove(address);
                touched.extend(self.claimed_at(*address));
            }
        }
    }

    /// All frontends that anybody claims on one address.
    fn claimed_at(&self, address: Ipv4Addr) -> impl Iterator<Item = Frontend> + '_ {
        let at = |protocol, port| Frontend::Address {
            address,
            protocol,
            port,
        };
        let all = self
            .claims
            .range(at(u8::MIN, u16::MIN)..=at(u8::MAX, u16::MAX));
        all.map(|(frontend, _)| *frontend)
    }
}
