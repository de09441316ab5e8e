//! Which Service holds which frontend. Two Services may ask for the same one (external addresses);
//! the first by namespace and name has it until it lets go, and then the next gets it.

use std::collections::{BTreeMap, BTreeSet};

use client::ObjectKey;

use super::plan::{Backends, Frontend, ServicePlan};

/// The plans of all Services and the claims that follow from them.
#[derive(Default)]
pub struct Ledger {
    plans: BTreeMap<ObjectKey, ServicePlan>,
    claims: BTreeMap<Frontend, BTreeSet<ObjectKey>>,
}

impl Ledger {
    /// Takes a Service's new plan (or its end) and returns the frontends that may have changed.
    pub fn update(&mut self, service: &ObjectKey, plan: Option<ServicePlan>) -> BTreeSet<Frontend> {
        let old = self.plans.remove(service).unwrap_or_default();
        let new = plan.unwrap_or_default();
        let mut touched = BTreeSet::new();
        for (frontend, backends) in &old.frontends {
            if new.frontends.get(frontend) != Some(backends) {
                touched.insert(*frontend);
            }
            if !new.frontends.contains_key(frontend)
                && let Some(claimants) = self.claims.get_mut(frontend)
            {
                claimants.remove(service);
                if claimants.is_empty() {
                    self.claims.remove(frontend);
                }
            }
        }
        for frontend in new.frontends.keys() {
            if !old.frontends.contains_key(frontend) {
                touched.insert(*frontend);
                self.claims
                    .entry(*frontend)
                    .or_default()
                    .insert(service.clone());
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
        self.plans.get(holder)?.frontends.get(frontend)
    }

    /// Everything that should be in the kernel.
    pub fn desired(&self) -> BTreeMap<Frontend, Backends> {
        self.claims
            .keys()
            .filter_map(|frontend| Some((*frontend, self.backends(frontend)?.clone())))
            .collect()
    }
}
