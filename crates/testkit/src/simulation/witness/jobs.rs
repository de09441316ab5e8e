//! Indexed Jobs: an index runs once at a time and completes once.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{State, number, text};
use crate::simulation::violation::Violation;

#[derive(Default)]
pub struct Job {
    name: String,
    /// Indexes with a pod that has succeeded, whether it still exists or not.
    completed: BTreeSet<String>,
    succeeded: i64,
}

impl State {
    pub(super) fn job_changed(
        &mut self,
        uid: String,
        new: Option<&Value>,
    ) -> Result<(), Violation> {
        let Some(new) = new else {
            self.jobs.remove(&uid);
            return Ok(());
        };
        tracing::debug!(job = text(new, "/metadata/name"), status = ?new.pointer("/status"));
        let job = self.jobs.entry(uid).or_default();
        job.name = text(new, "/metadata/name").to_owned();
        let succeeded = number(new, "/status/succeeded");
        let before = std::mem::replace(&mut job.succeeded, succeeded);
        let completions = number(new, "/spec/completions");
        if succeeded > completions {
            return Err(Violation::new(format!(
                "Job {} counts {succeeded} of {completions} completions",
                job.name
            )));
        }
        if succeeded < before {
            return Err(Violation::new(format!(
                "Job {} counted {before} completions and now {succeeded}",
                job.name
            )));
        }
        Ok(())
    }

    /// A pod of an index is created: no other may be running, and none may have succeeded.
    pub(super) fn check_index(&self, uid: &str, job: &str, index: &str) -> Result<(), Violation> {
        let pod = &self.pods[uid];
        let is_same = |other: &super::Pod| {
            other
                .job
                .as_ref()
                .is_some_and(|(of, at)| of == job && at == index)
        };
        let other = self
            .pods
            .iter()
            .find(|(other, one)| *other != uid && is_same(one) && one.is_active());
        if let Some((_, other)) = other {
            return Err(Violation::new(format!(
                "{} comes while {} is active",
                pod.name, other.name
            )));
        }
        match self.jobs.get(job) {
            Some(job) if job.completed.contains(index) => Err(Violation::new(format!(
                "{} comes for an index that has completed",
                pod.name
            ))),
            _ => Ok(()),
        }
    }

    pub(super) fn index_completes(
        &mut self,
        uid: &str,
        job: &str,
        index: &str,
    ) -> Result<(), Violation> {
        let Some(job) = self.jobs.get_mut(job) else {
            return Ok(());
        };
        match job.completed.insert(index.to_owned()) {
            true => Ok(()),
            false => Err(Violation::new(format!(
                "index {index} of {} completes a second time with {}",
                job.name, self.pods[uid].name
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, phase: &str) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {"name": name, "uid": name,
                "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
                "ownerReferences": [{"kind": "Job", "uid": "j", "controller": true}]},
            "status": {"phase": phase},
        })
    }

    #[test]
    fn an_index_that_runs_or_completes_twice_is_a_violation() {
        let job = json!({"kind": "Job", "metadata": {"name": "once", "uid": "j"},
            "spec": {"completions": 1}});
        let mut state = State::default();
        let mut change = |object: &Value| state.change(None, Some(object));
        change(&job).expect("a Job");
        change(&pod("a", "Running")).expect("the first");
        assert!(change(&pod("b", "Running")).is_err(), "two at once");
        change(&pod("a", "Succeeded")).expect("completes");
        assert!(change(&pod("b", "Succeeded")).is_err(), "twice");
        assert!(change(&pod("c", "Pending")).is_err(), "for nothing");
    }

    #[test]
    fn decreasing_or_excessive_job_counts_are_violations() {
        let job = |succeeded: i64| {
            json!({"kind": "Job", "metadata": {"name": "once", "uid": "j"},
                "spec": {"completions": 2}, "status": {"succeeded": succeeded}})
        };
        let mut state = State::default();
        let mut change = |object: &Value| state.change(None, Some(object));
        change(&job(1)).expect("one");
        assert!(change(&job(0)).is_err());
        assert!(change(&job(3)).is_err());
    }
}
