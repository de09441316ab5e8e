//! Records failed attempts in the timeline: which, why, and when the next one comes.
//! Errors name objects, never their content, and nothing that a container printed.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use semantics::pod::is_sidecar;

use crate::{
    pod::restarts::may_restart,
    pod_spec::{self, Role, find_init_or_app, uid},
    runtime::ContainerRecord,
    spans::{FailedAttempt, Spans},
};

/// The attempts of one pod's steps.
pub(super) struct Attempts {
    spans: Spans,
    pod_uid: String,
    /// When the present attempt of each step began, by the step's name.
    began: BTreeMap<String, i64>,
    /// How often each step has failed in a row.
    failed: BTreeMap<String, u32>,
    /// The last start or run of each container that failed, by the container's name.
    runs: BTreeMap<String, FailedAttempt>,
}

impl Attempts {
    pub fn new(spans: Spans, pod: &Pod) -> Attempts {
        Attempts {
            spans,
            pod_uid: uid(pod),
            began: BTreeMap::new(),
            failed: BTreeMap::new(),
            runs: BTreeMap::new(),
        }
    }

    pub fn begins(&mut self, step: impl Into<String>) {
        self.began.insert(step.into(), self.spans.now());
    }

    pub fn succeeded(&mut self, step: &str) {
        self.began.remove(step);
        self.failed.remove(step);
    }

    /// `retry`: when it is tried again, if that is known.
    pub fn failed(&mut self, step: &str, error: &str, retry: Option<i64>) {
        let start = self.start_of(step);
        self.record(step, start, error, retry);
    }

    /// A container could not be created or started. `retry`: when it is tried again; `None` if
    /// something was created that waits like a container that has ended, which is recorded later.
    pub fn start_failed(
        &mut self,
        container: &str,
        (reason, message): (&'static str, &str),
        retry: Option<i64>,
    ) {
        let start = self.start_of(&format!("StartContainer {container}"));
        let (step, error) = match reason {
            // The message may contain what the hook printed.
            "PostStartHookError" => (format!("PostStart {container}"), reason.to_owned()),
            _ => {
                let verb = match reason {
                    "RunContainerError" => "StartContainer",
                    _ => "CreateContainer",
                };
                (
                    format!("{verb} {container}"),
                    format!("{reason}: {message}"),
                )
            }
        };
        let recorded = self.record(&step, start, &error, retry);
        self.runs.insert(container.to_owned(), recorded);
    }

    /// A container has ended. It is recorded if it should not have.
    pub fn run_ended(&mut self, pod: &Pod, record: &ContainerRecord) {
        // The failed start of one that never ran has been recorded.
        if record.started_at == 0 || record.reason == "StartError" {
            return;
        }
        let Some(spec) = find_init_or_app(pod, &record.name) else {
            return;
        };
        let runs_once = pod_spec::role(pod, &record.name) == Role::Init && !is_sidecar(spec);
        let restarts = may_restart(pod, spec, record.exit_code);
        if record.exit_code == 0 && (runs_once || !restarts) {
            return;
        }
        let reason = match record.reason.as_str() {
            "" => String::new(),
            reason => format!(" ({reason})"),
        };
        let failed = FailedAttempt {
            name: format!("Run {}", record.name),
            start: record.started_at / 1000,
            end: record.finished_at / 1000,
            failure: trace::Failure::new(
                &format!("exit code {}{reason}", record.exit_code),
                u32::try_from(record.restart_count).unwrap_or(0) + 1,
                None,
            ),
        };
        self.spans.record_failure(&self.pod_uid, failed.clone());
        self.runs.insert(record.name.clone(), failed);
    }

    /// The next run of a container that failed comes at this time.
    pub fn run_again_at(&mut self, container: &str, until: i64) {
        let Some(failed) = self.runs.get_mut(container) else {
            return;
        };
        if failed.failure.retry != Some(until) {
            failed.failure.retry = Some(until);
            self.spans.record_failure(&self.pod_uid, failed.clone());
        }
    }

    fn start_of(&mut self, step: &str) -> i64 {
        let began = self.began.remove(step);
        began.unwrap_or_else(|| self.spans.now())
    }

    fn record(&mut self, step: &str, start: i64, error: &str, retry: Option<i64>) -> FailedAttempt {
        let count = self.failed.entry(step.to_owned()).or_default();
        *count += 1;
        let failed = FailedAttempt {
            name: step.to_owned(),
            start,
            end: self.spans.now(),
            failure: trace::Failure::new(error, *count, retry),
        };
        self.spans.record_failure(&self.pod_uid, failed.clone());
        failed
    }
}
