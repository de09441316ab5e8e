//! Counting pods exactly once, although they may go at any time: a pod that has ended is first
//! listed in the status as uncounted, then released (its finalizer is removed), then moved from
//! the list into the totals. Pure; `mod.rs` writes between the steps.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::failure_policy;
use super::indexes::Indexes;
use super::plan::{self, condition};
use super::pod;
use super::view::View;

/// At most this many pods are listed as uncounted.
const MOST_UNCOUNTED: usize = 500;

/// The pods there are after the plan was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub active: i32,
    pub ready: i32,
    pub terminating: i32,
}

/// The first step.
pub struct Tracking {
    /// To be written before any pod is released.
    pub status: JobStatus,
    pub release: Vec<Arc<Pod>>,
    /// UIDs of the pods that held the status back when this was made.
    held: BTreeSet<String>,
    /// The condition that ends the Job, once nothing is uncounted and nothing terminates.
    terminal: Option<JobCondition>,
}

/// `verdict` ends the Job; `delayed` are pods that must stay for now.
pub fn track(
    view: &View<'_>,
    counts: Counts,
    verdict: Option<JobCondition>,
    delayed: &BTreeSet<String>,
    suspension: Option<Suspension>,
    now: Timestamp,
) -> Tracking {
    let mut status = view.status.clone();
    let held: BTreeSet<String> = view
        .pods
        .iter()
        .filter(|pod| view.is_held(pod))
        .filter_map(|pod| pod.metadata.uid.clone())
        .collect();
    status.active = Some(counts.active).filter(|active| *active > 0);
    status.ready = Some(counts.ready);
    status.terminating = Some(counts.terminating);
    if status.start_time.is_none() && !view.is_suspended() {
        status.start_time = Some(Time(now));
    }
    if let Some(suspension) = suspension {
        suspension.apply(&mut status, now);
    }
    settle(&mut status, &held);
    let mut accounts = Accounts {
        view,
        verdict: verdict.as_ref(),
        now,
        succeeded: Vec::new(),
        failed: Vec::new(),
        indexes: Vec::new(),
        release: Vec::new(),
    };
    let listed = uncounted_total(&status);
    let mut complete = true;
    for pod in view.pods {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if !view.is_held(pod) || !accounts.may_release(pod, delayed.contains(&uid)) {
            continue;
        }
        accounts.count(pod);
        let new = accounts.succeeded.len() + accounts.failed.len() + accounts.indexes.len();
        if listed + new >= MOST_UNCOUNTED {
            complete = false;
            break;
        }
    }
    let Accounts {
        succeeded,
        failed,
        indexes,
        release,
        ..
    } = accounts;
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    extend(&mut uncounted.succeeded, succeeded);
    extend(&mut uncounted.failed, failed);
    if view.is_indexed() {
        let completed: Indexes = view.counted_indexes().with(indexes);
        status.succeeded = Some(completed.total()).filter(|total| *total > 0);
        status.completed_indexes = Some(completed.to_string()).filter(|text| !text.is_empty());
        status.failed_indexes = view.failed_indexes.as_ref().map(Indexes::to_string);
    }
    Tracking {
        terminal: verdict
            .map(|verdict| conclude(&mut status, verdict, now))
            .filter(|_| complete),
        status,
        release,
        held,
    }
}

impl Tracking {
    /// The last step: `status` is what the server answered to the first write, `released` are the
    /// UIDs of the released pods.
    pub fn finish(&self, mut status: JobStatus, released: &BTreeSet<String>) -> JobStatus {
        let held: BTreeSet<String> = self.held.difference(released).cloned().collect();
        settle(&mut status, &held);
        let terminating = status.terminating.unwrap_or(0);
        if let Some(terminal) = &self.terminal
            && uncounted_total(&status) == 0
            && terminating == 0
        {
            let conditions = status.conditions.get_or_insert_default();
            conditions.push(terminal.clone());
            if terminal.type_ == "Complete" {
                status.completion_time = terminal.last_transition_time.clone();
            }
        }
        status
    }
}

/// A Job that begins or ends to be suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    Suspended,
    Resumed,
}

impl Suspension {
    /// What has to be noted, if the status does not say it yet.
    pub fn due(view: &View<'_>) -> Option<Suspension> {
        let before = view.condition("Suspended").is_some();
        match (view.is_suspended(), before) {
            (true, false) => Some(Suspension::Suspended),
            (false, true) => Some(Suspension::Resumed),
            _ => None,
        }
    }

    fn apply(self, status: &mut JobStatus, now: Timestamp) {
        let mut made = match self {
            Suspension::Suspended => {
                status.start_time = None;
                condition("Suspended", "JobSuspended", "Job suspended", now)
            }
            Suspension::Resumed => {
                status.start_time = Some(Time(now));
                condition("Suspended", "JobResumed", "Job resumed", now)
            }
        };
        if self == Suspension::Resumed {
            made.status = "False".to_owned();
        }
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != "Suspended");
        conditions.push(made);
    }
}

/// Whether all wanted completions are there and nothing runs any more.
pub fn is_complete(view: &View<'_>, active: i32) -> bool {
    let succeeded = plan::succeeded(view);
    active == 0
        && match view.spec.completions {
            None => succeeded > 0,
            Some(completions) => succeeded >= completions,
        }
}

struct Accounts<'a> {
    view: &'a View<'a>,
    verdict: Option<&'a JobCondition>,
    now: Timestamp,
    succeeded: Vec<String>,
    failed: Vec<String>,
    indexes: Vec<i32>,
    release: Vec<Arc<Pod>>,
}

impl Accounts<'_> {
    fn may_release(&self, pod: &Pod, delayed: bool) -> bool {
        self.view.job.metadata.deletion_timestamp.is_some()
            || self.verdict.is_some()
            || semantics::pod::phase(pod) == "Succeeded"
            || pod::is_leaving(pod) && pod::may_still_succeed(pod, self.now).is_none()
            || self.view.is_failed(pod) && !delayed
    }

    fn count(&mut self, pod: &Arc<Pod>) {
        self.release.push(pod.clone());
        let view = self.view;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let index = view.valid_index(pod);
        let listed = view.uncounted(pod);
        if semantics::pod::phase(pod) == "Succeeded" && !listed.failed {
            match index {
                Some(index) if view.is_indexed() => self.indexes.push(index),
                None if view.is_indexed() => {}
                _ if !listed.succeeded => self.succeeded.push(uid),
                _ => {}
            }
            return;
        }
        let ends_badly = self
            .verdict
            .is_some_and(|verdict| verdict.type_ != "SuccessCriteriaMet");
        let counts = (view.is_failed(pod) || ends_badly)
            && !pod::is_leaving(pod)
            && !listed.failed
            && (!view.is_indexed() || index.is_some())
            && failure_policy::action_for(view.job, pod).counts();
        if counts {
            self.failed.push(uid);
        }
    }
}

/// Notes the decision and returns the condition that follows from it.
fn conclude(status: &mut JobStatus, verdict: JobCondition, now: Timestamp) -> JobCondition {
    let reason = verdict.reason.clone().unwrap_or_default();
    let message = verdict.message.clone().unwrap_or_default();
    let terminal = match verdict.type_.as_str() {
        "SuccessCriteriaMet" => "Complete",
        _ => "Failed",
    };
    let conditions = status.conditions.get_or_insert_default();
    let noted = conditions.iter().any(|one| one.type_ == verdict.type_);
    if verdict.type_ != "Failed" && !noted {
        conditions.push(verdict);
    }
    condition(terminal, &reason, &message, now)
}

/// Moves released pods from the lists into the totals.
fn settle(status: &mut JobStatus, held: &BTreeSet<String>) {
    let uncounted: &mut UncountedTerminatedPods =
        status.uncounted_terminated_pods.get_or_insert_default();
    let settle = |uids: &mut Option<Vec<String>>, total: &mut Option<i32>| {
        let all = uids.take().unwrap_or_default();
        let before = all.len();
        let still: Vec<String> = all.into_iter().filter(|uid| held.contains(uid)).collect();
        let gone = (before - still.len()) as i32;
        if gone > 0 {
            *total = Some(total.unwrap_or(0) + gone);
        }
        *uids = Some(still).filter(|uids| !uids.is_empty());
    };
    settle(&mut uncounted.succeeded, &mut status.succeeded);
    settle(&mut uncounted.failed, &mut status.failed);
}

fn extend(uids: &mut Option<Vec<String>>, more: Vec<String>) {
    if !more.is_empty() {
        uids.get_or_insert_default().extend(more);
    }
}

fn uncounted_total(status: &JobStatus) -> usize {
    let length = |uids: &Option<Vec<String>>| uids.as_ref().map_or(0, Vec::len);
    status
        .uncounted_terminated_pods
        .as_ref()
        .map_or(0, |uncounted| {
            length(&uncounted.succeeded) + length(&uncounted.failed)
        })
}
