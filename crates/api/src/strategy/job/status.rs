//! Validation of updates of a Job's status. Most rules apply only to fields that change, so that a
//! Job that violated a rule before can still be updated.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::repeats::Seen;
use crate::strategy::job::policies;
use crate::strategy::workload;

/// Whether a condition is true.
pub fn is_true(job: &Value, kind: &str) -> bool {
    has_condition(job, kind, "True")
}

fn has_condition(job: &Value, kind: &str, status: &str) -> bool {
    let conditions = job.list_at(&["status", "conditions"]);
    conditions
        .iter()
        .any(|one| one.str_at(&["type"]) == kind && one.str_at(&["status"]) == status)
}

fn is_finished(job: &Value) -> bool {
    is_true(job, "Complete") || is_true(job, "Failed")
}

/// Checks an update of a Job's status.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut check = Check {
        new,
        old,
        path: Path::new("status"),
        errors: Vec::new(),
    };
    check.counters();
    check.conditions();
    check.finished();
    check.indexes();
    check.other();
    check.changes();
    check.errors
}

struct Check<'a> {
    new: &'a Value,
    old: &'a Value,
    path: Path,
    errors: Vec<FieldError>,
}

impl Check<'_> {
    fn changed(&self, name: &str) -> bool {
        let at = ["status", name];
        self.new.at(&at) != self.old.at(&at)
    }

    fn number(&self, name: &str) -> i64 {
        self.new.i64_at(&["status", name]).unwrap_or(0)
    }

    fn turned(&self, kind: &str) -> bool {
        is_true(self.new, kind) != is_true(self.old, kind)
    }

    fn is(&self, kind: &str) -> bool {
        is_true(self.new, kind)
    }

    fn finished_changed(&self) -> bool {
        is_finished(self.new) != is_finished(self.old)
    }

    fn invalid(&mut self, name: &str, detail: &str) {
        let value = self.new.at(&["status", name]).cloned().unwrap_or_default();
        let error = FieldError::invalid(&self.path.child(name), value, detail);
        self.errors.push(error);
    }

    fn condition(&mut self, detail: &str) {
        let at = self.path.child("conditions");
        self.errors.push(FieldError::invalid_omitted(&at, detail));
    }

    fn counters(&mut self) {
        for name in ["active", "succeeded", "failed", "ready", "terminating"] {
            let error = workload::not_negative(self.new, "status", name);
            self.errors.extend(error);
        }
        let path = self.path.child("uncountedTerminatedPods");
        let mut seen = Seen::new();
        for list in ["succeeded", "failed"] {
            let uids = self
                .new
                .list_at(&["status", "uncountedTerminatedPods", list]);
            for (index, uid) in uids.iter().enumerate() {
                let uid = uid.as_str().unwrap_or_default();
                let at = path.child(list).index(index);
                if uid.is_empty() {
                    self.errors
                        .push(FieldError::invalid(&at, uid, "must not be empty"));
                } else if !seen.insert(uid) {
                    self.errors.push(FieldError::duplicate(&at, uid));
                }
            }
        }
    }

    fn conditions(&mut self) {
        let complete = self.is("Complete");
        let complete_changed = self.turned("Complete");
        if (complete_changed || self.turned("Failed")) && complete && self.is("Failed") {
            self.condition("cannot set Complete=True and Failed=true conditions");
        }
        let target_changed = self.turned("FailureTarget");
        if (complete_changed || target_changed) && complete && self.is("FailureTarget") {
            self.condition("cannot set Complete=True and FailureTarget=true conditions");
        }
        let ended = self.new.has(&["status", "completionTime"]);
        if complete_changed || self.changed("completionTime") {
            if ended && !complete {
                let detail = "cannot set completionTime when there is no Complete=True condition";
                self.invalid("completionTime", detail);
            }
            if !ended && complete {
                let at = self.path.child("completionTime");
                let detail = "completionTime is required for Complete jobs";
                self.errors.push(FieldError::required(&at, detail));
            }
        }
        if self.changed("startTime") || self.changed("completionTime") {
            let time = |name: &str| {
                let text = self.new.str_at(&["status", name]);
                text.parse::<jiff::Timestamp>().ok()
            };
            if let (Some(start), Some(end)) = (time("startTime"), time("completionTime"))
                && end < start
            {
                self.invalid("completionTime", "must be equal to or after `startTime`");
            }
        }
        if (self.turned("Failed") || self.changed("failedIndexes"))
            && self.is("Failed")
            && !self.is("FailureTarget")
        {
            self.condition(
                "cannot set Failed=True condition without the FailureTarget=true condition",
            );
        }
        if (complete_changed || self.turned("SuccessCriteriaMet"))
            && complete
            && !self.is("SuccessCriteriaMet")
        {
            self.condition(
                "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            );
        }
    }

    fn finished(&mut self) {
        let finished = is_finished(self.new);
        let finished_changed = self.finished_changed();
        if (finished_changed || self.changed("active")) && finished && self.number("active") > 0 {
            self.invalid("active", "active>0 is invalid for finished job");
        }
        let suspended_empty = self.new.bool_at(&["spec", "suspend"])
            && self.new.i64_at(&["spec", "completions"]) == Some(0);
        if (finished_changed || self.changed("startTime"))
            && !suspended_empty
            && finished
            && !self.new.has(&["status", "startTime"])
        {
            let at = self.path.child("startTime");
            let detail = "startTime is required for finished job";
            self.errors.push(FieldError::required(&at, detail));
        }
        let uncounted = ["succeeded", "failed"].iter().any(|list| {
            let at = ["status", "uncountedTerminatedPods", list];
            !self.new.list_at(&at).is_empty()
        });
        if (finished_changed || self.changed("uncountedTerminatedPods")) && finished && uncounted {
            self.invalid("uncountedTerminatedPods", "must be empty for finished job");
        }
    }

    fn indexes(&mut self) {
        let new = self.new;
        let completions = new.i64_at(&["spec", "completions"]);
        let completed = new.str_at(&["status", "completedIndexes"]);
        let failed = new.at(&["status", "failedIndexes"]).and_then(Value::as_str);
        let per_index = new.has(&["spec", "backoffLimitPerIndex"]);
        let completed_changed = self.changed("completedIndexes");
        let failed_changed = self.changed("failedIndexes");
        if let Some(completions) = completions {
            if completed_changed && let Err(problem) = policies::indexes(completed, completions) {
                let detail = format!("error parsing completedIndexes: {problem}");
                self.invalid("completedIndexes", &detail);
            }
            if let Some(failed) = failed
                && failed_changed
                && per_index
                && let Err(problem) = policies::indexes(failed, completions)
            {
                let detail = format!("error parsing failedIndexes: {problem}");
                self.invalid("failedIndexes", &detail);
            }
        }
        let indexed = new.str_at(&["spec", "completionMode"]) == "Indexed";
        if completed_changed && !completed.is_empty() && !indexed {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            self.invalid("completedIndexes", detail);
        }
        if failed_changed && !per_index && failed.is_some() {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            self.invalid("failedIndexes", detail);
        }
        if let (Some(completions), Some(failed)) = (completions, failed)
            && (failed_changed || completed_changed)
            && let Some(index) = policies::overlap(completed, failed, completions)
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            self.invalid("failedIndexes", &detail);
        }
    }

    fn other(&mut self) {
        let finished = is_finished(self.new);
        if (self.finished_changed() || self.changed("terminating"))
            && finished
            && self.number("terminating") > 0
        {
            self.invalid("terminating", "terminating>0 is invalid for finished job");
        }
        if (self.changed("ready") || self.changed("active"))
            && self.number("ready") > self.number("active")
        {
            self.invalid("ready", "cannot set more ready pods than active");
        }
        let met = self.is("SuccessCriteriaMet");
        if met && self.is("Failed") {
            self.condition("cannot set SuccessCriteriaMet=True and Failed=true conditions");
        }
        if met && self.is("FailureTarget") {
            self.condition("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
        }
        if self.new.has(&["spec", "successPolicy"]) && !met && self.is("Complete") {
            self.condition("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True");
        }
    }

    fn changes(&mut self) {
        for kind in ["Failed", "Complete", "FailureTarget"] {
            if is_true(self.old, kind) && !self.is(kind) {
                self.condition(&format!(
                    "cannot disable the terminal {kind}=True condition"
                ));
            }
        }
        let before = |name: &str| self.old.i64_at(&["status", name]).unwrap_or(0);
        if self.number("failed") < before("failed") {
            self.count_down("failed", "cannot decrease the failed counter");
        }
        let spec = |name: &str| self.new.i64_at(&["spec", name]);
        let scalable = self.new.str_at(&["spec", "completionMode"]) == "Indexed"
            && spec("completions") == spec("parallelism");
        if !scalable && self.number("succeeded") < before("succeeded") {
            self.count_down("succeeded", "cannot decrease the succeeded counter");
        }
        let both = |name: &str| {
            let at = ["status", name];
            self.new.has(&at) && self.old.has(&at)
        };
        if both("completionTime") && self.changed("completionTime") {
            self.invalid("completionTime", "field is immutable");
        }
        let resuming =
            is_true(self.old, "Suspended") && has_condition(self.new, "Suspended", "False");
        if self.changed("startTime")
            && !resuming
            && self.old.has(&["status", "startTime"])
            && !self.new.bool_at(&["spec", "suspend"])
        {
            let detail = "field is immutable for unsuspended job once set";
            self.invalid("startTime", detail);
        }
        let met = self.is("SuccessCriteriaMet");
        let was_met = is_true(self.old, "SuccessCriteriaMet");
        if was_met && !met {
            self.condition("cannot disable the SuccessCriteriaMet=True condition");
        }
        if is_true(self.old, "Complete") && !was_met && met {
            self.condition(
                "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
            );
        }
    }

    fn count_down(&mut self, name: &str, detail: &str) {
        let error = FieldError::invalid(&self.path.child(name), self.number(name), detail);
        self.errors.push(error);
    }
}
