//! Which nodes get a daemon pod and which pods go, and what the status says. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::fit::{self, Fit};
use super::{HASH_LABEL, TEMPLATE_GENERATION, TEMPLATE_GENERATION_LABEL};
use crate::int_or_percent::{Rounding, resolve};
use crate::meta;

/// One DaemonSet as the controller sees it.
pub struct Observed<'a> {
    pub set: &'a DaemonSet,
    pub nodes: &'a [Arc<Node>],
    /// The pods that belong to the set.
    pub pods: &'a [Arc<Pod>],
    /// The hash of the current template's revision.
    pub hash: &'a str,
    pub now: Timestamp,
}

#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Names of nodes.
    pub create: Vec<String>,
    pub delete: Vec<Arc<Pod>>,
    /// Ended pods among those to delete, with a word on how they ended.
    pub ended: Vec<(Arc<Pod>, Ended)>,
    /// When a failed pod that has to wait may be replaced.
    pub retry: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Failed,
    Succeeded,
}

/// `backoff` says how long a failed pod on a node still has to wait.
pub fn plan(observed: &Observed<'_>, backoff: &dyn Fn(&str) -> Duration) -> Plan {
    let mut plan = manage(observed, backoff);
    let strategy = observed.spec().update_strategy.unwrap_or_default();
    let rolls = strategy.type_.as_deref() != Some("OnDelete");
    if rolls && plan.create.is_empty() && plan.delete.is_empty() {
        let limits = Limits::of(observed);
        if limits.surge == 0 {
            plan.delete = replace_in_place(observed, limits.unavailable);
        } else {
            let rolled = replace_by_surge(observed, limits.surge);
            plan.create = rolled.create;
            plan.delete = rolled.delete;
        }
    }
    plan
}

impl<'a> Observed<'a> {
    fn spec(&self) -> DaemonSetSpec {
        self.set.spec.clone().unwrap_or_default()
    }

    fn fits(&self) -> BTreeMap<&'a str, Fit> {
        let mut template = self.spec().template.spec.unwrap_or_default();
        fit::add_tolerations(&mut template);
        let nodes = self.nodes.iter();
        nodes
            .map(|node| {
                let name = node.metadata.name.as_deref().unwrap_or_default();
                (name, fit::fit(&template, node))
            })
            .collect()
    }

    /// By target node; without ended pods that are being deleted.
    fn by_node(&self) -> BTreeMap<&'a str, Vec<&'a Arc<Pod>>> {
        let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in self.pods {
            if semantics::pod::is_terminal(pod) && pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            if let Some(node) = fit::target(pod) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        by_node
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        let generation = meta::annotation(&self.set.metadata, TEMPLATE_GENERATION);
        meta::label(&pod.metadata, HASH_LABEL) == Some(self.hash)
            || generation.is_some()
                && meta::label(&pod.metadata, TEMPLATE_GENERATION_LABEL) == generation
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let min_ready_seconds = self.spec().min_ready_seconds.unwrap_or(0);
        meta::is_available(pod, min_ready_seconds, self.now)
    }
}

/// How far a rolling update may go at once.
struct Limits {
    surge: usize,
    unavailable: usize,
}

impl Limits {
    fn of(observed: &Observed<'_>) -> Limits {
        let desired = observed.fits().values().filter(|f| **f == Fit::Run).count() as i32;
        let strategy = observed.spec().update_strategy.unwrap_or_default();
        let rolling = strategy.rolling_update.unwrap_or_default();
        let one = IntOrString::Int(1);
        let none = IntOrString::Int(0);
        let unavailable = rolling.max_unavailable.as_ref().unwrap_or(&one);
        let surge = rolling.max_surge.as_ref().unwrap_or(&none);
        let surge = resolve(surge, desired, Rounding::Up) as usize;
        let unavailable = resolve(unavailable, desired, Rounding::Up) as usize;
        Limits {
            surge,
            unavailable: if surge == 0 {
                unavailable.max(1)
            } else {
                unavailable
            },
        }
    }
}

fn allows_surge(observed: &Observed<'_>) -> bool {
    let strategy = observed.spec().update_strategy.unwrap_or_default();
    strategy.type_.as_deref() != Some("OnDelete") && Limits::of(observed).surge > 0
}

/// One pod on every node that should have one, none elsewhere.
fn manage(observed: &Observed<'_>, backoff: &dyn Fn(&str) -> Duration) -> Plan {
    let mut plan = Plan::default();
    let surge = allows_surge(observed);
    let by_node = observed.by_node();
    let fits = observed.fits();
    for (node, fit) in &fits {
        match (by_node.get(node), fit) {
            (None, Fit::Run) => plan.create.push(node.to_string()),
            (None, _) => {}
            (Some(pods), Fit::Leave) => {
                let staying = pods.iter().filter(|pod| is_staying(pod));
                plan.delete.extend(staying.map(|pod| (*pod).clone()));
            }
            (Some(pods), fit) => {
                let running = sort_out_ended(&mut plan, node, pods, backoff);
                if running.is_empty() {
                    if surge && *fit == Fit::Run {
                        plan.create.push(node.to_string());
                    }
                } else if surge {
                    plan.delete.extend(surplus_with_surge(observed, &running));
                } else {
                    let surplus = running.into_iter().skip(1);
                    plan.delete.extend(surplus.cloned());
                }
            }
        }
    }
    // Their node went before they reached it.
    let homeless = by_node.iter().filter(|(node, _)| !fits.contains_key(*node));
    for pod in homeless.flat_map(|(_, pods)| pods) {
        if meta::node_name(pod).is_empty() && is_staying(pod) {
            plan.delete.push((*pod).clone());
        }
    }
    plan
}

/// Plans the end of ended pods; returns the others, the one most worth keeping first.
fn sort_out_ended<'a>(
    plan: &mut Plan,
    node: &str,
    pods: &[&'a Arc<Pod>],
    backoff: &dyn Fn(&str) -> Duration,
) -> Vec<&'a Arc<Pod>> {
    let mut running = Vec::new();
    for pod in pods.iter().filter(|pod| is_staying(pod)) {
        let ended = match semantics::pod::phase(pod) {
            "Failed" => {
                let wait = backoff(node);
                if !wait.is_zero() {
                    plan.retry = Some(plan.retry.map_or(wait, |earlier| earlier.min(wait)));
                    continue;
                }
                Ended::Failed
            }
            "Succeeded" => Ended::Succeeded,
            _ => {
                running.push(*pod);
                continue;
            }
        };
        plan.ended.push(((*pod).clone(), ended));
        plan.delete.push((*pod).clone());
    }
    running.sort_by_key(|pod| precedence(pod));
    running
}

/// With surge a node may have one pod of the current and one of a former template, the latter as
/// long as it serves and the former is not available yet.
fn surplus_with_surge(observed: &Observed<'_>, running: &[&Arc<Pod>]) -> Vec<Arc<Pod>> {
    let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        running.iter().partition(|pod| observed.is_updated(pod));
    let mut surplus: Vec<Arc<Pod>> = new.iter().skip(1).map(|pod| (*pod).clone()).collect();
    surplus.extend(old.iter().skip(1).map(|pod| (*pod).clone()));
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!semantics::pod::is_ready(old) || observed.is_available(new))
    {
        surplus.push((*old).clone());
    }
    surplus
}

/// Pods of former templates that may go now; their successors are created when they are gone.
fn replace_in_place(observed: &Observed<'_>, limit: usize) -> Vec<Arc<Pod>> {
    let mut unavailable = 0;
    let (mut broken, mut candidates) = (Vec::new(), Vec::new());
    let mut by_node = observed.by_node();
    for (node, fit) in observed.fits() {
        if fit == Fit::Run {
            by_node.entry(node).or_default();
        }
    }
    for pods in by_node.values() {
        match pair(observed, pods) {
            Some((Some(new), None)) => unavailable += usize::from(!observed.is_available(new)),
            Some((None, Some(old))) if !observed.is_available(old) => {
                broken.push((*old).clone());
                unavailable += 1;
            }
            Some((None, Some(old))) => candidates.push((*old).clone()),
            _ => unavailable += 1,
        }
    }
    // Pods that are not available may be deleted at once.
    broken.extend(
        candidates
            .into_iter()
            .take(limit.saturating_sub(unavailable)),
    );
    broken
}

/// Nodes that get a second pod before their first one goes, and first ones that may go.
fn replace_by_surge(observed: &Observed<'_>, limit: usize) -> Plan {
    let fits = observed.fits();
    let desired = fits.values().filter(|fit| **fit == Fit::Run).count();
    let mut plan = Plan::default();
    let (mut surging, mut available) = (0, 0);
    let (mut candidates, mut misplaced) = (Vec::new(), Vec::new());
    for (node, pods) in observed.by_node() {
        let Some((new, old)) = pair(observed, &pods) else {
            surging += 1;
            continue;
        };
        if old.or(new).is_some_and(|pod| observed.is_available(pod)) {
            available += 1;
        }
        let runs = fits.get(node) == Some(&Fit::Run);
        match (new, old) {
            (_, None) => {}
            (Some(new), Some(old)) => {
                if observed.is_available(new) {
                    plan.delete.push((*old).clone());
                } else {
                    surging += 1;
                }
            }
            (None, Some(old)) => match (observed.is_available(old), runs) {
                (false, true) => plan.create.push(node.to_owned()),
                (false, false) => plan.delete.push((*old).clone()),
                (true, true) => candidates.push(node.to_owned()),
                (true, false) => misplaced.push((*old).clone()),
            },
        }
    }
    let room = limit.saturating_sub(surging);
    plan.create.extend(candidates.into_iter().take(room));
    let spare = usize::saturating_sub(available, desired);
    plan.delete.extend(misplaced.into_iter().take(spare));
    plan
}

type Pair<'a> = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>);

/// The pod of the current and the one of a former template on a node; nothing when there are
/// several of either, which the next round of [`manage`] mends.
fn pair<'a>(observed: &Observed<'_>, pods: &[&'a Arc<Pod>]) -> Option<Pair<'a>> {
    let (mut new, mut old) = (None, None);
    for pod in pods.iter().filter(|pod| is_staying(pod)) {
        let place = if observed.is_updated(pod) {
            &mut new
        } else {
            &mut old
        };
        if place.replace(*pod).is_some() {
            return None;
        }
    }
    Some((new, old))
}

fn is_staying(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
}

/// Bound before unbound, older before younger.
fn precedence(pod: &Pod) -> (bool, i64, String) {
    (
        meta::node_name(pod).is_empty(),
        meta::created(&pod.metadata),
        pod.metadata.name.clone().unwrap_or_default(),
    )
}

pub fn status(observed: &Observed<'_>, collisions: i32) -> DaemonSetStatus {
    let by_node = observed.by_node();
    let mut status = DaemonSetStatus::default();
    let (mut updated, mut available) = (0, 0);
    for (node, fit) in observed.fits() {
        let mut pods = by_node.get(node).cloned().unwrap_or_default();
        pods.sort_by_key(|pod| precedence(pod));
        let pod = pods.first();
        if fit != Fit::Run {
            status.number_misscheduled += i32::from(pod.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = pod else {
            continue;
        };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(semantics::pod::is_ready(pod));
        available += i32::from(observed.is_available(pod));
        updated += i32::from(observed.is_updated(pod));
    }
    let positive = |count: i32| Some(count).filter(|count| *count > 0);
    let old = observed.set.status.clone().unwrap_or_default();
    status.number_available = positive(available);
    status.number_unavailable = positive(status.desired_number_scheduled - available);
    status.updated_number_scheduled = positive(updated);
    status.observed_generation = observed.set.metadata.generation;
    status.collision_count = positive(collisions).or(old.collision_count);
    status.conditions = old.conditions;
    status
}
