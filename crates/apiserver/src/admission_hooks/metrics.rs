//! What is counted about hooks, under upstream's names. Hooks that are configured no more are
//! forgotten, so that there are only so many.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::time::Duration;

use parking_lot::Mutex;

use super::Phase;
use super::rule::Operation;

/// Upper bounds of upstream's buckets, in seconds.
const CALL_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const CONDITION_BUCKETS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
/// Codes above are counted as this, which keeps the number of series bounded.
const HIGHEST_CODE: u16 = 600;

#[derive(Default)]
pub(crate) struct HookMetrics {
    /// Held for moments only.
    counted: Mutex<Counted>,
    /// Of policies, of which only the match conditions are counted here. Held for moments only.
    of_policies: Mutex<Counted>,
}

/// What is counted about one hook.
#[derive(Clone, Default)]
struct OfHook {
    /// By operation, code and whether the request was rejected.
    requests: BTreeMap<(Operation, u16, bool), u64>,
    durations: BTreeMap<(Operation, bool), Histogram<9>>,
    rejections: BTreeMap<(Operation, Rejection, u16), u64>,
    failed_open: u64,
    condition_errors: BTreeMap<Operation, u64>,
    condition_exclusions: BTreeMap<Operation, u64>,
    condition_durations: BTreeMap<Operation, Histogram<8>>,
}

#[derive(Clone)]
pub(crate) struct Histogram<const BUCKETS: usize> {
    counts: [u64; BUCKETS],
    seconds: f64,
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Histogram {
            counts: [0; BUCKETS],
            seconds: 0.0,
        }
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    /// `bounds` are one fewer than the buckets: the last is for everything above.
    pub fn observe(&mut self, took: Duration, bounds: &[f64]) {
        let seconds = took.as_secs_f64();
        self.counts[bounds.partition_point(|bound| *bound < seconds)] += 1;
        self.seconds += seconds;
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn write(
        &self,
        text: &mut String,
        name: &str,
        labels: &str,
        bounds: &[f64],
    ) -> fmt::Result {
        let mut sum = 0;
        for (index, number) in self.counts.iter().enumerate() {
            sum += number;
            let bound = bounds.get(index).map_or("+Inf".to_string(), f64::to_string);
            writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {sum}")?;
        }
        writeln!(text, "{name}_sum{{{labels}}} {}", self.seconds)?;
        writeln!(text, "{name}_count{{{labels}}} {sum}")
    }
}

/// Why a request was rejected on account of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rejection {
    /// The hook said so.
    ByHook,
    /// It could not be called.
    Unanswered,
    /// The server itself failed.
    Internal,
}

impl Rejection {
    fn text(self) -> &'static str {
        match self {
            Rejection::ByHook => "no_error",
            Rejection::Unanswered => "calling_webhook_error",
            Rejection::Internal => "apiserver_internal_error",
        }
    }
}

/// One call of a hook, as it ended.
pub(crate) struct Call<'a> {
    pub phase: Phase,
    pub hook: &'a str,
    pub operation: Operation,
    pub took: Duration,
    /// 200 for success, 0 where there is none.
    pub code: u16,
    pub rejection: Option<Rejection>,
    pub failed_open: bool,
}

/// One evaluation of a hook's match conditions.
pub(crate) struct Excluded<'a> {
    pub phase: Phase,
    pub hook: &'a str,
    pub operation: Operation,
    pub took: Duration,
    pub errors: usize,
    /// Whether a condition is false.
    pub is_excluded: bool,
}

impl HookMetrics {
    pub fn called(&self, call: &Call<'_>) {
        let code = call.code.min(HIGHEST_CODE);
        let is_rejected = call.rejection.is_some();
        self.of(call.phase, call.hook, |counted| {
            let key = (call.operation, code, is_rejected);
            *counted.requests.entry(key).or_default() += 1;
            let durations = counted.durations.entry((call.operation, is_rejected));
            durations.or_default().observe(call.took, &CALL_BUCKETS);
            if let Some(rejection) = call.rejection {
                let key = (call.operation, rejection, code);
                *counted.rejections.entry(key).or_default() += 1;
            }
            counted.failed_open += u64::from(call.failed_open);
        });
    }

    pub fn evaluated(&self, evaluated: &Excluded<'_>) {
        self.of(evaluated.phase, evaluated.hook, |counted| {
            counted.note_conditions(evaluated);
        });
    }

    /// As [`HookMetrics::evaluated`], of a policy in the place of a hook.
    pub fn policy_evaluated(&self, evaluated: &Excluded<'_>) {
        let mut counted = self.of_policies.lock();
        let key = (evaluated.phase, evaluated.hook.to_string());
        counted.entry(key).or_default().note_conditions(evaluated);
    }

    /// Forgets the hooks that are not among these.
    pub(super) fn keep(&self, phase: Phase, names: &BTreeSet<&str>) {
        let mut counted = self.counted.lock();
        counted.retain(|(of, name), _| *of != phase || names.contains(name.as_str()));
    }

    /// Forgets the policies that are not among these.
    pub fn keep_policies(&self, phase: Phase, is_there: impl Fn(&str) -> bool) {
        let mut counted = self.of_policies.lock();
        counted.retain(|(of, name), _| *of != phase || is_there(name));
    }

    fn of(&self, phase: Phase, hook: &str, count: impl FnOnce(&mut OfHook)) {
        let mut counted = self.counted.lock();
        count(counted.entry((phase, hook.to_string())).or_default());
    }

    /// Everything in Prometheus' text form.
    pub fn write(&self, text: &mut String) -> fmt::Result {
        let counted = self.counted.lock().clone();
        let of_policies = self.of_policies.lock().clone();
        write_calls(&counted, text)?;
        write_conditions([("webhook", &counted), ("policy", &of_policies)], text)
    }
}

type Counted = BTreeMap<(Phase, String), OfHook>;

impl OfHook {
    fn note_conditions(&mut self, evaluated: &Excluded<'_>) {
        let operation = evaluated.operation;
        let durations = self.condition_durations.entry(operation).or_default();
        durations.observe(evaluated.took, &CONDITION_BUCKETS);
        if evaluated.errors > 0 {
            let errors = self.condition_errors.entry(operation).or_default();
            *errors += evaluated.errors as u64;
        }
        if evaluated.is_excluded {
            *self.condition_exclusions.entry(operation).or_default() += 1;
        }
    }
}

pub(crate) fn head(text: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(text, "# HELP {name} {help}")?;
    writeln!(text, "# TYPE {name} {kind}")
}

fn write_calls(counted: &Counted, text: &mut String) -> fmt::Result {
    let name = "apiserver_admission_webhook_admission_duration_seconds";
    let help = "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).";
    head(text, name, "histogram", help)?;
    for ((phase, hook), of) in counted {
        let kind = phase.of_calls();
        for ((operation, rejected), durations) in &of.durations {
            let labels = format!(
                "name={hook:?},operation=\"{operation}\",rejected=\"{rejected}\",type=\"{kind}\""
            );
            durations.write(text, name, &labels, &CALL_BUCKETS)?;
        }
    }
    let name = "apiserver_admission_webhook_request_total";
    let help = "[ALPHA] Admission webhook request total, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify whether the request was rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.";
    head(text, name, "counter", help)?;
    for ((phase, hook), of) in counted {
        let kind = phase.of_calls();
        for ((operation, code, rejected), number) in &of.requests {
            writeln!(
                text,
                "{name}{{code=\"{code}\",name={hook:?},operation=\"{operation}\",rejected=\"{rejected}\",type=\"{kind}\"}} {number}"
            )?;
        }
    }
    let name = "apiserver_admission_webhook_rejection_count";
    let help = "[ALPHA] Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.";
    head(text, name, "counter", help)?;
    for ((phase, hook), of) in counted {
        let kind = phase.of_calls();
        for ((operation, rejection, code), number) in &of.rejections {
            let error = rejection.text();
            writeln!(
                text,
                "{name}{{error_type=\"{error}\",name={hook:?},operation=\"{operation}\",rejection_code=\"{code}\",type=\"{kind}\"}} {number}"
            )?;
        }
    }
    let name = "apiserver_admission_webhook_fail_open_count";
    let help = "[ALPHA] Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).";
    head(text, name, "counter", help)?;
    for ((phase, hook), of) in counted.iter().filter(|(_, of)| of.failed_open > 0) {
        let (kind, number) = (phase.of_calls(), of.failed_open);
        writeln!(text, "{name}{{name={hook:?},type=\"{kind}\"}} {number}")?;
    }
    Ok(())
}

fn write_conditions(counted: [(&str, &Counted); 2], text: &mut String) -> fmt::Result {
    let labels = |of: &str, phase: Phase, hook: &str, operation: &Operation| {
        let kind = phase.of_conditions();
        format!("kind=\"{of}\",name={hook:?},operation=\"{operation}\",type=\"{kind}\"")
    };
    let each = || {
        let kinds = counted.iter();
        kinds.flat_map(|(of, counted)| counted.iter().map(move |(key, hook)| (*of, key, hook)))
    };
    type Chosen = fn(&OfHook) -> &BTreeMap<Operation, u64>;
    let counters: [(&str, &str, Chosen); 2] = [
        (
            "apiserver_admission_match_condition_evaluation_errors_total",
            "[ALPHA] Admission match condition evaluation errors count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
            |of| &of.condition_errors,
        ),
        (
            "apiserver_admission_match_condition_exclusions_total",
            "[ALPHA] Admission match condition evaluation exclusions count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
            |of| &of.condition_exclusions,
        ),
    ];
    for (name, help, chosen) in counters {
        head(text, name, "counter", help)?;
        for (of, (phase, hook), counted) in each() {
            for (operation, number) in chosen(counted) {
                let labels = labels(of, *phase, hook, operation);
                writeln!(text, "{name}{{{labels}}} {number}")?;
            }
        }
    }
    let name = "apiserver_admission_match_condition_evaluation_seconds";
    let help = "[ALPHA] Admission match condition evaluation time in seconds, identified by name and broken out for each kind containing matchConditions (webhook or policy), operation and type (validate or admit).";
    head(text, name, "histogram", help)?;
    for (of, (phase, hook), counted) in each() {
        for (operation, durations) in &counted.condition_durations {
            let labels = labels(of, *phase, hook, operation);
            durations.write(text, name, &labels, &CONDITION_BUCKETS)?;
        }
    }
    Ok(())
}
