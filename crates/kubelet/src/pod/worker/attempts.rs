//! What a pod's worker tells the timeline of attempts that failed: which, why, and when the next one
//! comes. Errors name objects, never what they hold, and nothing that a container printed.

use super::*;
use crate::spans::FailedAttempt;

/// The attempts of one worker.
#[derive(Default)]
pub(super) struct Attempts {
    /// When the present attempt of each step began, by the step's name.
    began: BTreeMap<String, i64>,
    /// How often each step has failed in a row.
    failed: BTreeMap<String, u32>,
    /// The last start or run of each container that failed, by the container's name.
    runs: BTreeMap<String, FailedAttempt>,
}

impl Worker {
    pub(super) fn attempt_begins(&mut self, step: impl Into<String>) {
        let now = self.now();
        self.attempts.began.insert(step.into(), now);
    }

    pub(super) fn attempt_succeeded(&mut self, step: &str) {
        self.attempts.began.remove(step);
        self.attempts.failed.remove(step);
    }

    /// `retry`: when it is tried again, if that is known.
    pub(super) fn attempt_failed(&mut self, step: &str, error: &str, retry: Option<i64>) {
        let now = self.now();
        let start = self.attempts.began.remove(step).unwrap_or(now);
        self.tell_failed(step, start, error, retry);
    }

    /// A container could not be created or started.
    pub(super) fn start_failed(&mut self, container: &str, failure: &StartFailure) {
        let step = format!("StartContainer {container}");
        let start = self.attempts.began.remove(&step).unwrap_or(self.now());
        let (step, error) = match failure.reason {
            // Its message may have what the hook printed.
            reason @ "PostStartHookError" => (format!("PostStart {container}"), reason.to_owned()),
            reason => {
                let verb = match reason {
                    "RunContainerError" => "StartContainer",
                    _ => "CreateContainer",
                };
                let error = format!("{reason}: {}", failure.message);
                (format!("{verb} {container}"), error)
            }
        };
        // What was made of it waits as one that ended does, and that is told later.
        let retry = failure
            .record
            .is_none()
            .then(|| self.now() + super::START_RETRY);
        let told = self.tell_failed(&step, start, &error, retry);
        self.attempts.runs.insert(container.to_owned(), told);
    }

    /// A container has ended that should not have.
    pub(super) fn run_ended(&mut self, record: &ContainerRecord) {
        // One that never began has been told by its start.
        if self.stopping() || record.started_at == 0 || record.reason == "StartError" {
            return;
        }
        let Some(spec) = find_container(&self.pod, &record.name) else {
            return;
        };
        let runs_once =
            tasks::kind(&self.pod, &record.name) == "init_container" && !is_sidecar(spec);
        let restarts = plan::may_restart(&self.pod, spec, record.exit_code);
        if record.exit_code == 0 && (runs_once || !restarts) {
            return;
        }
        let reason = match record.reason.as_str() {
            "" => String::new(),
            reason => format!(" ({reason})"),
        };
        let told = FailedAttempt {
            name: format!("Run {}", record.name),
            start: record.started_at / 1000,
            end: record.finished_at / 1000,
            failure: trace::Failure::new(
                &format!("exit code {}{reason}", record.exit_code),
                u32::try_from(record.restart_count).unwrap_or(0) + 1,
                None,
            ),
        };
        self.node
            .telemetry
            .spans
            .record_failure(&uid(&self.pod), told.clone());
        self.attempts.runs.insert(record.name.clone(), told);
    }

    /// The next run of a container that failed comes at this time.
    pub(super) fn run_again_at(&mut self, container: &str, until: i64) {
        let Some(told) = self.attempts.runs.get_mut(container) else {
            return;
        };
        if told.failure.retry != Some(until) {
            told.failure.retry = Some(until);
            let told = told.clone();
            self.node
                .telemetry
                .spans
                .record_failure(&uid(&self.pod), told);
        }
    }

    fn tell_failed(
        &mut self,
        step: &str,
        start: i64,
        error: &str,
        retry: Option<i64>,
    ) -> FailedAttempt {
        let count = self.attempts.failed.entry(step.to_owned()).or_default();
        *count += 1;
        let told = FailedAttempt {
            name: step.to_owned(),
            start,
            end: self.node.environment.now_micros(),
            failure: trace::Failure::new(error, *count, retry),
        };
        self.node
            .telemetry
            .spans
            .record_failure(&uid(&self.pod), told.clone());
        told
    }
}
