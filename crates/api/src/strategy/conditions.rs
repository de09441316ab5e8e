//! Validation of conditions of the common form (`metav1.Condition`).

use std::sync::LazyLock;

use regex::Regex;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names::{self, pattern_error};
use crate::repeats::Seen;

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const REASON: &str = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?";
const LONGEST_REASON: usize = 1024;
const LONGEST_MESSAGE: usize = 32 * 1024;

static REASON_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!("^(?:{REASON})$")).expect("a constant pattern compiles"));

/// Checks a list of conditions.
pub fn validate(conditions: &[Value], path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = Seen::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = path.index(index);
        let kind = condition.str_at(&["type"]);
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(&at.child("type"), kind));
        }
        one(condition, &at, &mut errors);
    }
    errors
}

fn one(condition: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let kind = condition.str_at(&["type"]);
    let wrong = names::qualified_name(kind);
    errors.extend(all_invalid(&path.child("type"), kind, wrong));
    let status = condition.str_at(&["status"]);
    if !STATUSES.contains(&status) {
        let at = path.child("status");
        errors.push(FieldError::not_supported(&at, status, &STATUSES));
    }
    let generation = condition.i64_at(&["observedGeneration"]).unwrap_or(0);
    if generation < 0 {
        let detail = "must be greater than or equal to zero";
        let at = path.child("observedGeneration");
        errors.push(FieldError::invalid(&at, generation, detail));
    }
    if condition.str_at(&["lastTransitionTime"]).is_empty() {
        errors.push(FieldError::required(&path.child("lastTransitionTime"), ""));
    }
    let reason = condition.str_at(&["reason"]);
    let at = path.child("reason");
    if reason.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else {
        if !REASON_PATTERN.is_match(reason) {
            let detail = pattern_error(
                "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
                REASON,
                &[
                    "my_name",
                    "MY_NAME",
                    "MyName",
                    "ReasonA,ReasonB",
                    "ReasonA:ReasonB",
                ],
            );
            errors.push(FieldError::invalid(&at, reason, detail));
        }
        if reason.len() > LONGEST_REASON {
            errors.push(FieldError::too_long(&at, LONGEST_REASON));
        }
    }
    if condition.str_at(&["message"]).len() > LONGEST_MESSAGE {
        let at = path.child("message");
        errors.push(FieldError::too_long(&at, LONGEST_MESSAGE));
    }
}
