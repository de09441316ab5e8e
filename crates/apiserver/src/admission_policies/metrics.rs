//! What is counted about policies, under upstream's names. Policies that are bound no more are
//! forgotten, so that there are only so many.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::time::Duration;

use parking_lot::Mutex;

use crate::admission_hooks::{Histogram, head};

/// Upper bounds of upstream's buckets, in seconds.
const BUCKETS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];

pub(crate) struct PolicyMetrics {
    /// `validating` or `mutating`.
    subsystem: &'static str,
    /// The first word of the help.
    word: &'static str,
    /// Held for moments only.
    counted: Mutex<BTreeMap<Key, Histogram<6>>>,
}

/// Policy, binding, error and action.
type Key = (String, String, ErrorType, &'static str);

/// Why an expression did not admit a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ErrorType {
    Compile,
    Invalid,
    OutOfBudget,
    /// Counted of mutations only.
    #[allow(dead_code)]
    None,
}

impl ErrorType {
    /// Told by its words, as upstream tells it: what is denied counts as invalid.
    pub fn of_message(message: &str) -> ErrorType {
        if message.starts_with("compilation") {
            ErrorType::Compile
        } else if message.starts_with("validation failed due to running out of cost budget") {
            ErrorType::OutOfBudget
        } else {
            ErrorType::Invalid
        }
    }

    fn text(self) -> &'static str {
        match self {
            ErrorType::Compile => "compile_error",
            ErrorType::Invalid => "invalid_error",
            ErrorType::OutOfBudget => "out_of_budget",
            ErrorType::None => "no_error",
        }
    }
}

/// One expression of a policy that was evaluated, and what followed.
pub(crate) struct Checked<'a> {
    pub policy: &'a str,
    pub binding: &'a str,
    pub error: ErrorType,
    /// `allow`, `deny`, `warn` or `audit`.
    pub action: &'static str,
    pub took: Duration,
}

impl PolicyMetrics {
    pub fn new(subsystem: &'static str, word: &'static str) -> PolicyMetrics {
        PolicyMetrics {
            subsystem,
            word,
            counted: Mutex::default(),
        }
    }

    pub fn checked(&self, checked: &Checked<'_>) {
        let key = (
            checked.policy.to_string(),
            checked.binding.to_string(),
            checked.error,
            checked.action,
        );
        let mut counted = self.counted.lock();
        counted
            .entry(key)
            .or_default()
            .observe(checked.took, &BUCKETS);
    }

    /// Forgets the policies that are not among these.
    pub(super) fn keep(&self, names: &BTreeSet<&str>) {
        let mut counted = self.counted.lock();
        counted.retain(|(policy, ..), _| names.contains(policy.as_str()));
    }

    /// Everything in Prometheus' text form.
    pub fn write(&self, text: &mut String) -> fmt::Result {
        let counted = self.counted.lock().clone();
        let PolicyMetrics {
            subsystem, word, ..
        } = self;
        let labels = |(policy, binding, error, action): &Key| {
            let error = error.text();
            format!(
                "enforcement_action=\"{action}\",error_type=\"{error}\",policy={policy:?},policy_binding={binding:?}"
            )
        };
        let name = format!("apiserver_{subsystem}_admission_policy_check_total");
        let help = format!(
            "[BETA] {word} admission policy check total, labeled by policy and further identified by binding and enforcement action taken."
        );
        head(text, &name, "counter", &help)?;
        for (key, durations) in &counted {
            writeln!(text, "{name}{{{}}} {}", labels(key), durations.count())?;
        }
        let name = format!("apiserver_{subsystem}_admission_policy_check_duration_seconds");
        let help = format!(
            "[BETA] {word} admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken."
        );
        head(text, &name, "histogram", &help)?;
        for (key, durations) in &counted {
            durations.write(text, &name, &labels(key), &BUCKETS)?;
        }
        Ok(())
    }
}
