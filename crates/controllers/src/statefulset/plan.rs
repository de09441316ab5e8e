//! What to do next with a StatefulSet's pods, and what its status says. Pure.
//!
//! One round goes through three stages and ends at the first that has to wait: the pods that should
//! exist, from the lowest ordinal; the pods that should not, from the highest; then the update,
//! from the highest. With `OrderedReady` each pod waits for the one before it; with `Parallel`
//! nothing waits in the first two stages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::{identity, retention};
use crate::int_or_percent::{Rounding, resolve};
use crate::meta;

/// A template under the name of its ControllerRevision.
pub struct Revision {
    pub name: String,
    pub template: PodTemplateSpec,
}

/// One StatefulSet as the controller sees it.
pub struct Observed<'a> {
    pub set: &'a StatefulSet,
    /// The pods that belong to the set.
    pub pods: &'a [Arc<Pod>],
    /// The claim of that name in the set's namespace.
    pub claims: &'a dyn Fn(&str) -> Option<Arc<PersistentVolumeClaim>>,
    /// The revision before the update under way.
    pub current: &'a Revision,
    /// The revision that pods shall have.
    pub update: &'a Revision,
    pub collisions: i32,
    pub now: Timestamp,
    /// How long the replacement of a failed pod of this name still has to wait.
    pub pause: &'a dyn Fn(&str) -> Duration,
}

#[derive(Debug, PartialEq)]
pub enum Action {
    /// The claims first: a pod without them cannot be scheduled.
    Create(Box<Pod>, Vec<PersistentVolumeClaim>),
    /// Claims of a pod that exists already.
    CreateClaims(Arc<Pod>, Vec<PersistentVolumeClaim>),
    Delete(Arc<Pod>),
    /// Gives a pod back its labels and volumes.
    Repair(Box<Pod>),
    SetOwners(Arc<PersistentVolumeClaim>, Vec<OwnerReference>),
}

pub struct Plan {
    pub actions: Vec<Action>,
    pub status: StatefulSetStatus,
    /// The names of failed pods that are deleted to be created anew.
    pub replaced: Vec<String>,
    /// When a failed pod that has to wait may be replaced.
    pub retry: Option<Duration>,
}

pub fn plan(observed: &Observed<'_>) -> Plan {
    let mut planner = Planner {
        observed,
        ordered: spec(observed.set).pod_management_policy.as_deref() != Some("Parallel"),
        actions: Vec::new(),
        replaced: Vec::new(),
        retry: None,
    };
    let updating = match observed.set.metadata.deletion_timestamp {
        Some(_) => 0,
        None => planner.run(),
    };
    let Planner {
        actions,
        replaced,
        retry,
        ..
    } = planner;
    Plan {
        actions,
        status: status(observed, updating),
        replaced,
        retry,
    }
}

struct Planner<'a> {
    observed: &'a Observed<'a>,
    ordered: bool,
    actions: Vec<Action>,
    replaced: Vec<String>,
    retry: Option<Duration>,
}

/// Whether a stage is through, or something has to be waited for.
#[derive(PartialEq)]
enum Stage {
    Through,
    Waits,
}

impl Planner<'_> {
    /// Returns how many pods are deleted for the update.
    fn run(&mut self) -> i32 {
        let set = self.observed.set;
        let mut wanted: BTreeMap<i32, Option<Arc<Pod>>> = BTreeMap::new();
        let start = identity::start_ordinal(set);
        for index in 0..identity::replicas(set) {
            wanted.insert(start.saturating_add(index), None);
        }
        let mut condemned = BTreeMap::new();
        for pod in self.observed.pods {
            let Some(ordinal) = identity::ordinal(set, pod) else {
                continue;
            };
            match wanted.get_mut(&ordinal) {
                Some(slot) => *slot = Some(pod.clone()),
                None => {
                    condemned.insert(ordinal, pod.clone());
                }
            }
        }
        if self.fill(&wanted) == Stage::Waits || self.reduce(&wanted, &condemned) == Stage::Waits {
            return 0;
        }
        self.update(&wanted)
    }

    fn fill(&mut self, wanted: &BTreeMap<i32, Option<Arc<Pod>>>) -> Stage {
        for (ordinal, pod) in wanted {
            let stage = match pod {
                Some(pod) => self.keep(*ordinal, pod),
                None => self.create(*ordinal),
            };
            if stage == Stage::Waits && self.ordered {
                return Stage::Waits;
            }
        }
        Stage::Through
    }

    fn create(&mut self, ordinal: i32) -> Stage {
        let set = self.observed.set;
        let revision = self.revision_for_new(ordinal);
        let pod = identity::new_pod(set, &revision.template, &revision.name, ordinal);
        let claims = identity::claims(set, ordinal);
        let waits_for_claim = claims.iter().any(|claim| {
            self.existing(claim)
                .is_some_and(|claim| retention::belongs_to_former_pod(set, &pod, &claim))
        });
        if !waits_for_claim {
            let missing = self.missing(ordinal);
            self.actions.push(Action::Create(Box::new(pod), missing));
        }
        Stage::Waits
    }

    fn keep(&mut self, ordinal: i32, pod: &Arc<Pod>) -> Stage {
        let set = self.observed.set;
        if semantics::pod::is_terminal(pod) {
            if pod.metadata.deletion_timestamp.is_none() {
                self.replace(pod);
            }
            return Stage::Waits;
        }
        if semantics::pod::phase(pod) == "Pending" {
            let missing = self.missing(ordinal);
            if !missing.is_empty() {
                self.actions
                    .push(Action::CreateClaims(pod.clone(), missing));
            }
        }
        if self.ordered && self.is_unavailable(pod) {
            return Stage::Waits;
        }
        if !identity::matches(set, pod, ordinal) {
            let mut repaired = (**pod).clone();
            identity::repair(set, &mut repaired, ordinal);
            self.actions.push(Action::Repair(Box::new(repaired)));
        }
        self.correct_owners(pod);
        Stage::Through
    }

    /// Deletes a pod that has ended; the next round creates it anew. One that fails again and again
    /// waits before.
    fn replace(&mut self, pod: &Arc<Pod>) {
        if semantics::pod::phase(pod) == "Failed" {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let pause = (self.observed.pause)(&name);
            if !pause.is_zero() {
                self.retry = Some(self.retry.map_or(pause, |earlier| earlier.min(pause)));
                return;
            }
            self.replaced.push(name);
        }
        self.actions.push(Action::Delete(pod.clone()));
    }

    fn reduce(
        &mut self,
        wanted: &BTreeMap<i32, Option<Arc<Pod>>>,
        condemned: &BTreeMap<i32, Arc<Pod>>,
    ) -> Stage {
        for pod in condemned.values().rev() {
            self.correct_owners(pod);
        }
        // One unhealthy pod may go although it is not ready: the first of all.
        let first_unhealthy = wanted
            .values()
            .flatten()
            .chain(condemned.values())
            .find(|pod| self.is_unavailable(pod))
            .cloned();
        for pod in condemned.values().rev() {
            let terminating = pod.metadata.deletion_timestamp.is_some();
            if self.ordered {
                let is_first = first_unhealthy
                    .as_ref()
                    .is_some_and(|first| Arc::ptr_eq(first, pod));
                // A pod that has ended will not become ready; waiting for it would be for ever.
                let may_go =
                    is_first || semantics::pod::is_terminal(pod) || !self.is_unavailable(pod);
                if !terminating && may_go {
                    self.actions.push(Action::Delete(pod.clone()));
                }
                return Stage::Waits;
            }
            if !terminating {
                self.actions.push(Action::Delete(pod.clone()));
            }
        }
        Stage::Through
    }

    /// Deletes pods of former templates; the next round creates them anew.
    fn update(&mut self, wanted: &BTreeMap<i32, Option<Arc<Pod>>>) -> i32 {
        let strategy = spec(self.observed.set).update_strategy.unwrap_or_default();
        if strategy.type_.as_deref() == Some("OnDelete") {
            return 0;
        }
        let rolling = strategy.rolling_update.unwrap_or_default();
        let partition = rolling.partition.unwrap_or(0).max(0) as usize;
        // A pod that is only about to be created has been brought up to date by that.
        let unavailable = |pod: &Option<Arc<Pod>>| match pod {
            Some(pod) => self.is_unavailable(pod),
            None => true,
        };
        let outdated = |pod: &Arc<Pod>| {
            identity::revision(pod) != self.observed.update.name
                && pod.metadata.deletion_timestamp.is_none()
        };
        let candidates = wanted.values().enumerate().rev();
        let candidates = candidates.filter(|(index, _)| *index >= partition);
        let mut chosen: Vec<Arc<Pod>> = Vec::new();
        match rolling.max_unavailable {
            Some(limit) => {
                let replicas = wanted.len() as i32;
                let limit = resolve(&limit, replicas, Rounding::Down).max(1) as usize;
                let missing = wanted.values().filter(|pod| unavailable(pod)).count();
                let room = limit.saturating_sub(missing);
                let pods = candidates.filter_map(|(_, pod)| pod.as_ref());
                chosen.extend(pods.filter(|pod| outdated(pod)).take(room).cloned());
            }
            // One at a time: the highest that is outdated, unless one above it is not available.
            None => {
                for (_, pod) in candidates {
                    match pod {
                        Some(pod) if outdated(pod) => {
                            chosen.push(pod.clone());
                            break;
                        }
                        pod if unavailable(pod) => break,
                        _ => {}
                    }
                }
            }
        }
        let count = chosen.len() as i32;
        self.actions.extend(chosen.into_iter().map(Action::Delete));
        count
    }

    /// Ordinals below the partition keep the template they had.
    fn revision_for_new(&self, ordinal: i32) -> &Revision {
        let set = self.observed.set;
        let strategy = spec(set).update_strategy.unwrap_or_default();
        let kept = match (strategy.type_.as_deref(), strategy.rolling_update) {
            (Some("OnDelete"), None) => 0,
            (_, Some(rolling)) => rolling.partition.unwrap_or(0),
            (_, None) => {
                let status = set.status.as_ref();
                status
                    .and_then(|status| status.current_replicas)
                    .unwrap_or(0)
            }
        };
        if ordinal < identity::start_ordinal(set).saturating_add(kept) {
            self.observed.current
        } else {
            self.observed.update
        }
    }

    fn correct_owners(&mut self, pod: &Arc<Pod>) {
        let set = self.observed.set;
        let Some(ordinal) = identity::ordinal(set, pod) else {
            return;
        };
        for claim in identity::claims(set, ordinal) {
            let Some(claim) = self.existing(&claim) else {
                continue;
            };
            if let Some(owners) = retention::corrected_owners(set, pod, &claim) {
                self.actions.push(Action::SetOwners(claim.clone(), owners));
            }
        }
    }

    fn missing(&self, ordinal: i32) -> Vec<PersistentVolumeClaim> {
        let mut claims = identity::claims(self.observed.set, ordinal);
        // One that is being deleted is asked for too: the refusal says why the pod waits.
        claims.retain(|claim| {
            self.existing(claim)
                .is_none_or(|claim| claim.metadata.deletion_timestamp.is_some())
        });
        claims
    }

    fn existing(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolumeClaim>> {
        let name = claim.metadata.name.as_ref()?;
        (self.observed.claims)(name)
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        let min_ready_seconds = spec(self.observed.set).min_ready_seconds.unwrap_or(0);
        pod.metadata.deletion_timestamp.is_some()
            || semantics::pod::phase(pod) != "Running"
            || !meta::is_available(pod, min_ready_seconds, self.observed.now)
    }
}

/// `updating` pods are deleted in this round for the update.
fn status(observed: &Observed<'_>, updating: i32) -> StatefulSetStatus {
    let set = observed.set;
    let min_ready_seconds = spec(set).min_ready_seconds.unwrap_or(0);
    let count =
        |test: &dyn Fn(&Pod) -> bool| observed.pods.iter().filter(|pod| test(pod)).count() as i32;
    let is_ready =
        |pod: &Pod| semantics::pod::phase(pod) == "Running" && semantics::pod::is_ready(pod);
    let of = |revision: &Revision| {
        count(&|pod: &Pod| {
            pod.metadata.deletion_timestamp.is_none() && identity::revision(pod) == revision.name
        })
    };
    let replicas = observed.pods.len() as i32;
    let ready = count(&is_ready);
    let updated = of(observed.update);
    let mut current = of(observed.current) - updating;
    let mut current_revision = &observed.current.name;
    let wanted = identity::replicas(set);
    let strategy = spec(set).update_strategy.unwrap_or_default();
    let complete = updated == wanted && ready == wanted && replicas == wanted;
    if strategy.type_.as_deref() != Some("OnDelete") && complete {
        current = updated;
        current_revision = &observed.update.name;
    }
    let positive = |count: i32| Some(count).filter(|count| *count > 0);
    let old = set.status.clone().unwrap_or_default();
    StatefulSetStatus {
        replicas,
        ready_replicas: positive(ready),
        available_replicas: Some(count(&|pod: &Pod| {
            is_ready(pod) && meta::is_available(pod, min_ready_seconds, observed.now)
        })),
        current_replicas: positive(current),
        updated_replicas: positive(updated),
        current_revision: Some(current_revision.clone()),
        update_revision: Some(observed.update.name.clone()),
        collision_count: Some(observed.collisions),
        observed_generation: set.metadata.generation,
        conditions: old.conditions,
    }
}

fn spec(set: &StatefulSet) -> k8s_openapi::api::apps::v1::StatefulSetSpec {
    set.spec.clone().unwrap_or_default()
}
