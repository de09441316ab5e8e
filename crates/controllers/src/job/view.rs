//! A Job and its pods, sorted out: what has ended and is not counted yet, what runs, which indexes
//! are done. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::failure_policy::{self, FailureAction};
use super::indexes::Indexes;
use super::pod;
use crate::meta;

pub struct View<'a> {
    pub job: &'a Job,
    pub spec: JobSpec,
    pub status: JobStatus,
    /// The pods that belong to the Job.
    pub pods: &'a [Arc<Pod>],
    /// UIDs of pods whose finalizer we took off, though the cache does not show it yet.
    pub released: &'a BTreeSet<String>,
    /// Indexes that have succeeded by what the status says and by what the pods say.
    pub succeeded_indexes: Indexes,
    pub failed_indexes: Option<Indexes>,
}

impl<'a> View<'a> {
    pub fn new(job: &'a Job, pods: &'a [Arc<Pod>], released: &'a BTreeSet<String>) -> View<'a> {
        let mut view = View {
            job,
            spec: job.spec.clone().unwrap_or_default(),
            status: job.status.clone().unwrap_or_default(),
            pods,
            released,
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
        };
        if view.is_indexed() {
            view.succeeded_indexes = view
                .counted_indexes()
                .with(view.ended_indexes(|pod| semantics::pod::phase(pod) == "Succeeded"));
            if view.has_limit_per_index() {
                let counted = view.status.failed_indexes.as_deref().unwrap_or_default();
                let counted = Indexes::parse(counted, view.completions());
                let failed = view.ended_indexes(|pod| view.ends_its_index(pod));
                view.failed_indexes = Some(counted.with(failed));
            }
        }
        view
    }

    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    pub fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    pub fn has_limit_per_index(&self) -> bool {
        self.spec.backoff_limit_per_index.is_some()
    }

    /// Only meaningful for a Job with a fixed number of completions.
    pub fn completions(&self) -> i32 {
        self.spec.completions.unwrap_or(i32::MAX)
    }

    /// Terminating pods are waited for instead of being replaced at once.
    pub fn only_replaces_failed(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
            || self.spec.pod_failure_policy.is_some()
    }

    /// One that the Job stopped has not failed.
    pub fn is_failed(&self, pod: &Pod) -> bool {
        match semantics::pod::phase(pod) {
            _ if pod::is_leaving(pod) => false,
            "Failed" => true,
            "Succeeded" => false,
            _ => !self.only_replaces_failed() && pod.metadata.deletion_timestamp.is_some(),
        }
    }

    pub fn active(&self) -> Vec<Arc<Pod>> {
        let active = self
            .pods
            .iter()
            .filter(|pod| semantics::pod::is_active(pod));
        active.cloned().collect()
    }

    pub fn terminating(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(|pod| meta::is_terminating(pod))
    }

    /// Pods that the Job stopped and that may turn out to have succeeded: they keep their place, or
    /// their index would run, and complete, a second time.
    pub fn leaving(&self, now: Timestamp) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods
            .iter()
            .filter(|pod| self.is_held(pod) && pod::is_leaving(pod))
            .filter(move |pod| pod::may_still_succeed(pod, now).is_some())
    }

    /// Tracked, and not known to have been released.
    pub fn is_held(&self, pod: &Pod) -> bool {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        pod::is_tracked(pod) && !self.released.contains(uid)
    }

    pub fn uncounted(&self, pod: &Pod) -> Uncounted {
        let Some(uncounted) = &self.status.uncounted_terminated_pods else {
            return Uncounted::default();
        };
        let contains = |uids: &Option<Vec<String>>| {
            let uid = pod.metadata.uid.as_ref();
            uids.iter().flatten().any(|one| Some(one) == uid)
        };
        Uncounted {
            succeeded: contains(&uncounted.succeeded),
            failed: contains(&uncounted.failed),
        }
    }

    /// Held pods that have succeeded and are in no count yet.
    pub fn newly_succeeded(&self) -> Vec<&Pod> {
        self.held_with_valid_index()
            .filter(|pod| {
                !self.uncounted(pod).succeeded && semantics::pod::phase(pod) == "Succeeded"
            })
            .collect()
    }

    /// Held pods that have failed and are in no count yet.
    pub fn newly_failed(&self) -> Vec<&Pod> {
        self.held_with_valid_index()
            .filter(|pod| !self.uncounted(pod).failed && self.is_failed(pod))
            .collect()
    }

    pub fn held_with_valid_index(&self) -> impl Iterator<Item = &Pod> {
        self.pods
            .iter()
            .map(|pod| &**pod)
            .filter(|pod| self.is_held(pod))
            .filter(|pod| !self.is_indexed() || self.valid_index(pod).is_some())
    }

    pub fn valid_index(&self, pod: &Pod) -> Option<i32> {
        pod::index(pod).filter(|index| *index < self.completions())
    }

    /// The indexes that the status counts as completed.
    pub fn counted_indexes(&self) -> Indexes {
        let counted = self.status.completed_indexes.as_deref().unwrap_or_default();
        Indexes::parse(counted, self.completions())
    }

    pub fn condition(&self, name: &str) -> Option<&JobCondition> {
        condition(&self.status, name)
    }

    fn ended_indexes(&self, ended: impl Fn(&Pod) -> bool) -> Vec<i32> {
        self.pods
            .iter()
            .filter(|pod| pod::is_tracked(pod) && ended(pod))
            .filter_map(|pod| self.valid_index(pod))
            .collect()
    }

    /// Whether with this pod's failure its index has failed for good.
    fn ends_its_index(&self, pod: &Pod) -> bool {
        if !self.is_failed(pod) {
            return false;
        }
        let limit = self.spec.backoff_limit_per_index.unwrap_or(i32::MAX);
        match failure_policy::action_for(self.job, pod) {
            FailureAction::FailIndex => true,
            verdict => verdict.counts() && pod::index_failures(pod) >= limit,
        }
    }
}

/// Where the status lists a pod that has ended but is not in the totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uncounted {
    pub succeeded: bool,
    pub failed: bool,
}

pub fn condition<'a>(status: &'a JobStatus, name: &str) -> Option<&'a JobCondition> {
    let conditions = status.conditions.iter().flatten();
    conditions
        .into_iter()
        .find(|condition| condition.type_ == name && condition.status == "True")
}

/// A Job that has completed or failed: nothing happens to it any more.
pub fn is_finished(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| {
        condition(status, "Complete").is_some() || condition(status, "Failed").is_some()
    })
}
