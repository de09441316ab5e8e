//! What to do next about a Job's pods: end it, or create and delete towards the wanted number.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::JobCondition;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::backoff::{Backoff, finished_at};
use super::failure_policy::{self, FailureAction};
use super::indexes::Indexes;
use super::pod;
use super::view::View;
use crate::owned_pods::{BURST, rank::rank};

#[derive(Debug, Default)]
pub struct Plan {
    /// The condition that ends the Job, if it is to end.
    pub verdict: Option<JobCondition>,
    pub delete: Vec<Arc<Pod>>,
    /// Pods taken away by suspension or scaling do not count as failed and are marked so before
    /// they are deleted; those of an ending Job are counted.
    pub mark_deleted: bool,
    pub create: Vec<Pod>,
    /// Look again after this time.
    pub retry: Option<Duration>,
    /// Pods of failed indexes that wait for their backoff; they must not go before.
    pub delayed: BTreeSet<String>,
}

/// `backoff` includes the pods that have ended newly; `acts` says whether the cache is current and
/// the Job is not being deleted, so that pods may be created.
pub fn plan(view: &View<'_>, backoff: Backoff, acts: bool, now: Timestamp) -> Plan {
    let delayed = delayed_pods(view);
    let mut plan = Plan {
        verdict: verdict(view, now),
        delayed: delayed
            .values()
            .filter_map(|pod| pod.metadata.uid.clone())
            .collect(),
        ..Plan::default()
    };
    if plan.verdict.is_none() {
        plan.retry = remaining_deadline(view, now);
    }
    if plan.verdict.is_some() {
        plan.delete = view.active();
    } else if acts {
        manage(view, backoff, &delayed, now, &mut plan);
    }
    plan
}

pub fn condition(name: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: name.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// How many pods have succeeded, with those the status does not count yet.
pub fn succeeded(view: &View<'_>) -> i32 {
    if view.is_indexed() {
        return view.succeeded_indexes.total();
    }
    let status = &view.status;
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let uncounted = uncounted.and_then(|uncounted| Some(uncounted.succeeded.as_ref()?.len()));
    status.succeeded.unwrap_or(0)
        + uncounted.unwrap_or(0) as i32
        + view.newly_succeeded().len() as i32
}

fn failed(view: &View<'_>) -> i32 {
    let status = &view.status;
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let uncounted = uncounted.and_then(|uncounted| Some(uncounted.failed.as_ref()?.len()));
    let new = view.newly_failed();
    let new = new
        .iter()
        .filter(|pod| failure_policy::action_for(view.job, pod).counts());
    status.failed.unwrap_or(0) + uncounted.unwrap_or(0) as i32 + new.count() as i32
}

/// Why the Job ends, if it does. What was decided before stays decided.
fn verdict(view: &View<'_>, now: Timestamp) -> Option<JobCondition> {
    if let Some(met) = view.condition("SuccessCriteriaMet") {
        return Some(met.clone());
    }
    if let Some(target) = view.condition("FailureTarget") {
        let reason = target.reason.as_deref().unwrap_or_default();
        let message = target.message.as_deref().unwrap_or_default();
        return Some(condition("Failed", reason, message, now));
    }
    let fails =
        |reason: &str, message: &str| Some(condition("FailureTarget", reason, message, now));
    let failed_pods = view.pods.iter().filter(|pod| view.is_failed(pod));
    for pod in failed_pods {
        if let FailureAction::FailJob(message) = failure_policy::action_for(view.job, pod) {
            return fails("PodFailurePolicy", &message);
        }
    }
    let limit = view.spec.backoff_limit.unwrap_or(6);
    if failed(view) > limit || restarts_exceed(view, limit) {
        return fails(
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        );
    }
    if remaining_deadline(view, now).is_some_and(|remaining| remaining.is_zero()) {
        return fails(
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        );
    }
    if let Some(failed) = &view.failed_indexes {
        if view
            .spec
            .max_failed_indexes
            .is_some_and(|most| failed.total() > most)
        {
            return fails(
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes",
            );
        }
        let ended = failed.total() + view.succeeded_indexes.total();
        if !failed.is_empty() && ended >= view.completions() {
            return fails("FailedIndexes", "Job has failed indexes");
        }
    }
    success_rule(view).map(|rule| {
        let message = format!("Matched rules at index {rule}");
        condition("SuccessCriteriaMet", "SuccessPolicy", &message, now)
    })
}

/// The first rule of the success policy that holds.
fn success_rule(view: &View<'_>) -> Option<usize> {
    let policy = view.spec.success_policy.as_ref()?;
    if !view.is_indexed() {
        return None;
    }
    policy.rules.iter().position(|rule| {
        let enough = |count: i32| rule.succeeded_count.is_some_and(|wanted| count >= wanted);
        match &rule.succeeded_indexes {
            Some(wanted) => {
                let wanted = Indexes::parse(wanted, view.completions());
                let have = wanted.common(&view.succeeded_indexes);
                !wanted.is_empty() && (have == wanted.total() || enough(have))
            }
            None => enough(view.succeeded_indexes.total()),
        }
    })
}

/// With `restartPolicy: OnFailure` it is the containers' restarts that are limited.
fn restarts_exceed(view: &View<'_>, limit: i32) -> bool {
    let template = view.spec.template.spec.as_ref();
    if template.is_none_or(|spec| spec.restart_policy.as_deref() != Some("OnFailure")) {
        return false;
    }
    let restarts: i32 = view
        .pods
        .iter()
        .filter(|pod| matches!(semantics::pod::phase(pod), "Running" | "Pending"))
        .filter_map(|pod| pod.status.as_ref())
        .flat_map(|status| {
            let init = status.init_container_statuses.iter().flatten();
            init.chain(status.container_statuses.iter().flatten())
        })
        .map(|container| container.restart_count)
        .sum();
    if limit == 0 {
        restarts > 0
    } else {
        restarts >= limit
    }
}

/// Nothing when the Job has no deadline or does not run.
fn remaining_deadline(view: &View<'_>, now: Timestamp) -> Option<Duration> {
    let deadline = view.spec.active_deadline_seconds?;
    if view.is_suspended() {
        return None;
    }
    let started = view.status.start_time.as_ref().map_or(now, |time| time.0);
    let end = started
        .as_millisecond()
        .saturating_add(deadline.saturating_mul(1000));
    let left = (end - now.as_millisecond()).max(0);
    Some(Duration::from_millis(left as u64))
}

fn manage(
    view: &View<'_>,
    backoff: Backoff,
    delayed: &BTreeMap<i32, &Pod>,
    now: Timestamp,
    plan: &mut Plan,
) {
    let active = view.active();
    plan.mark_deleted = true;
    let patience = view.leaving(now);
    let patience = patience.filter_map(|pod| pod::may_still_succeed(pod, now));
    if let Some(wait) = patience.min() {
        plan.retry_in(wait);
    }
    if view.is_suspended() {
        plan.delete = active;
        return;
    }
    let parallelism = view.spec.parallelism.unwrap_or(1).max(0);
    let succeeded = succeeded(view);
    let running = active.len() as i32;
    let wanted = match view.spec.completions {
        // A work queue: the first success says that the queue is empty, the others may finish.
        None if succeeded > 0 => running,
        None => parallelism,
        Some(completions) => (completions - succeeded).clamp(0, parallelism),
    };
    plan.delete = surplus(
        view,
        active.clone(),
        (running - wanted).max(0) as usize,
        now,
    );
    plan.delete.truncate(BURST);
    if !plan.delete.is_empty() {
        return;
    }
    let leaving = match view.only_replaces_failed() {
        true => view.terminating().count() as i32,
        false => view.leaving(now).count() as i32,
    };
    let missing = (wanted - leaving - running).clamp(0, BURST as i32) as usize;
    if missing == 0 {
        return;
    }
    let per_index = view.has_limit_per_index();
    let wait = if per_index {
        Duration::ZERO
    } else {
        backoff.remaining(now)
    };
    if !wait.is_zero() {
        plan.retry_in(wait);
        return;
    }
    if !view.is_indexed() {
        plan.create = vec![pod::new(view.job); missing];
        return;
    }
    let mut waiting: Option<Duration> = None;
    for index in pending_indexes(view, &active, missing, now) {
        let replaced = delayed.get(&index).copied();
        let wait = replaced.map_or(Duration::ZERO, |pod| {
            let backoff = Backoff {
                failures: pod::all_index_failures(pod).unsigned_abs() + 1,
                last: Some(finished_at(pod)),
            };
            backoff.remaining(now)
        });
        if wait.is_zero() {
            let pod = pod::new_for_index(view.job, index, per_index, replaced);
            plan.create.push(pod);
        } else {
            waiting = Some(waiting.map_or(wait, |earlier| earlier.min(wait)));
        }
    }
    if let Some(wait) = waiting {
        plan.retry_in(wait);
    }
}

impl Plan {
    fn retry_in(&mut self, wait: Duration) {
        self.retry = Some(self.retry.map_or(wait, |earlier| earlier.min(wait)));
    }
}

/// The first indexes that neither run nor have ended.
fn pending_indexes(view: &View<'_>, active: &[Arc<Pod>], count: usize, now: Timestamp) -> Vec<i32> {
    let leaving = view.leaving(now);
    let running = active.iter().chain(leaving);
    let running = running.filter_map(|pod| pod::index(pod));
    let mut taken = view.succeeded_indexes.clone().with(running);
    if view.only_replaces_failed() {
        taken = taken.with(view.terminating().filter_map(|pod| pod::index(pod)));
    }
    if let Some(failed) = &view.failed_indexes {
        taken = taken.union(failed);
    }
    taken.first_missing(count, view.completions())
}

/// Pods that are too many: those without a valid index, all but one of each index, and then the
/// least valuable ones, at least `least` in all.
fn surplus(view: &View<'_>, active: Vec<Arc<Pod>>, least: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut ranked = active;
    ranked.sort_by_cached_key(|pod| rank(pod, 0, now));
    let mut surplus: Vec<Arc<Pod>> = Vec::new();
    let mut kept: Vec<Arc<Pod>> = Vec::new();
    if view.is_indexed() {
        let mut seen = BTreeSet::new();
        // The most valuable of an index stays.
        for pod in ranked.into_iter().rev() {
            match view.valid_index(&pod) {
                Some(index) if seen.insert(index) => kept.push(pod),
                _ => surplus.push(pod),
            }
        }
        kept.reverse();
    } else {
        kept = ranked;
    }
    let more = least.saturating_sub(surplus.len());
    surplus.extend(kept.into_iter().take(more));
    surplus
}

/// Per index, the last failed pod of those that will be replaced: it stays until then, because it
/// carries the count of failures and the time of the last one.
fn delayed_pods<'a>(view: &'a View<'_>) -> BTreeMap<i32, &'a Pod> {
    let mut delayed: BTreeMap<i32, &Pod> = BTreeMap::new();
    let Some(failed_indexes) = &view.failed_indexes else {
        return delayed;
    };
    let running: BTreeSet<i32> = view
        .active()
        .iter()
        .filter_map(|pod| pod::index(pod))
        .collect();
    for pod in view.held_with_valid_index() {
        let Some(index) = view.valid_index(pod).filter(|_| view.is_failed(pod)) else {
            continue;
        };
        if view.succeeded_indexes.contains(index)
            || failed_indexes.contains(index)
            || running.contains(&index)
        {
            continue;
        }
        let key = |pod: &Pod| (pod::all_index_failures(pod), finished_at(pod));
        match delayed.get(&index) {
            Some(other) if key(other) > key(pod) => {}
            _ => {
                delayed.insert(index, pod);
            }
        }
    }
    delayed
}
