//! Validation of a Job's policies: when its pods fail, when it has succeeded, when pods are
//! replaced; and of lists of indexes such as `1,3-5`.

use crate::document::Value;
use crate::field::{FieldError, Path, quote};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::repeats::Seen;
use crate::strategy::checks;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const MOST_RULES: usize = 20;
const MOST_VALUES: usize = 255;
const MOST_PATTERNS: usize = 20;
const LONGEST_INDEXES: usize = 64 * 1024;

/// Checks `podFailurePolicy`.
pub fn pod_failure(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if !spec.has(&["podFailurePolicy"]) {
        return;
    }
    let rules = spec.list_at(&["podFailurePolicy", "rules"]);
    let path = path.child("rules");
    if rules.len() > MOST_RULES {
        errors.push(FieldError::too_many(&path, rules.len(), MOST_RULES));
    }
    for (index, rule) in rules.iter().enumerate() {
        failure_rule(spec, rule, &path.index(index), errors);
    }
}

/// Checks `podReplacementPolicy`.
pub fn pod_replacement(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(policy) = spec.get("podReplacementPolicy").and_then(Value::as_str) else {
        return;
    };
    let supported: &[&str] = match spec.has(&["podFailurePolicy"]) {
        true => &["Failed"],
        false => &["Failed", "TerminatingOrFailed"],
    };
    if !supported.contains(&policy) {
        errors.push(FieldError::not_supported(path, policy, supported));
    }
}

/// Checks `successPolicy`.
pub fn success(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(policy) = spec.get("successPolicy").filter(|value| !value.is_null()) else {
        return;
    };
    if spec.str_at(&["completionMode"]) != "Indexed" {
        let detail = "requires indexed completion mode";
        let value = shown("successPolicy", policy);
        errors.push(FieldError::invalid(path, value, detail));
        return;
    }
    let rules = policy.list_at(&["rules"]);
    let path = path.child("rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(&path, detail));
    }
    if rules.len() > MOST_RULES {
        errors.push(FieldError::too_many(&path, rules.len(), MOST_RULES));
    }
    let completions = spec.i64_at(&["completions"]).unwrap_or(0);
    for (index, rule) in rules.iter().enumerate() {
        success_rule(rule, completions, &path.index(index), errors);
    }
}

/// A policy as upstream's errors show it: its internal type, with Go's names and nulls.
pub fn shown(name: &str, policy: &Value) -> Value {
    let fields: &[&str] = match name {
        "podFailurePolicy" | "successPolicy" => &["rules"],
        "podFailurePolicy.rules" => &["action", "onExitCodes", "onPodConditions"],
        "podFailurePolicy.rules.onExitCodes" => &["containerName", "operator", "values"],
        "podFailurePolicy.rules.onPodConditions" => &["type", "status"],
        "successPolicy.rules" => &["succeededIndexes", "succeededCount"],
        _ => return policy.clone(),
    };
    match policy {
        Value::Array(items) => {
            let items: Vec<Value> = items.iter().map(|item| shown(name, item)).collect();
            items.into()
        }
        Value::Object(_) => {
            let mut made = Value::object();
            for field in fields {
                let value = policy.get(field).unwrap_or(&Value::Null);
                let (first, rest) = field.split_at(1);
                let go_name = format!("{}{rest}", first.to_uppercase());
                made.set(&[&go_name], shown(&format!("{name}.{field}"), value));
            }
            made
        }
        other => other.clone(),
    }
}

/// A malformed list of indexes, in upstream's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexesError {
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    NotIncreasing { previous: i64, current: i64 },
    #[error("the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'", quote(.0))]
    TooManyParts(String),
    #[error("cannot convert string to integer for index: {}", quote(.0))]
    NotANumber(String),
    #[error("too large index: {}", quote(.0))]
    TooLarge(String),
}

/// The number of indexes in a list such as `1,3-5`.
pub fn indexes(text: &str, completions: i64) -> Result<i64, IndexesError> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut last, mut total) = (None, 0);
    for interval in text.split(',') {
        let (first, end) = interval_of(interval, completions)?;
        if let Some(previous) = last.filter(|last| *last >= first) {
            let current = first;
            return Err(IndexesError::NotIncreasing { previous, current });
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The first index that two lists share.
pub fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        let parts = text.split(',').filter(|_| !text.is_empty());
        let intervals = parts.filter_map(|part| interval_of(part, completions).ok());
        let mut intervals: Vec<(i64, i64)> = intervals.collect();
        intervals.sort_unstable();
        intervals
    };
    let (completed, failed) = (intervals(completed), intervals(failed));
    // The interval that ends first cannot overlap later ones of the other list.
    let (mut left, mut right) = (completed.iter().peekable(), failed.iter().peekable());
    while let (Some((first, last)), Some((start, end))) = (left.peek(), right.peek()) {
        if first <= end && start <= last {
            return Some(*first.max(start));
        }
        match last < end {
            true => drop(left.next()),
            false => drop(right.next()),
        }
    }
    None
}

fn interval_of(text: &str, completions: i64) -> Result<(i64, i64), IndexesError> {
    let parts: Vec<&str> = text.split('-').collect();
    if parts.len() > 2 {
        return Err(IndexesError::TooManyParts(text.to_string()));
    }
    let index = |text: &str| {
        let number: i64 = text
            .parse()
            .map_err(|_| IndexesError::NotANumber(text.to_string()))?;
        match number >= completions {
            true => Err(IndexesError::TooLarge(text.to_string())),
            false => Ok(number),
        }
    };
    let first = index(parts[0])?;
    match parts.get(1) {
        None => Ok((first, first)),
        Some(last) => {
            let last = index(last)?;
            match first >= last {
                true => Err(IndexesError::NotIncreasing {
                    previous: first,
                    current: last,
                }),
                false => Ok((first, last)),
            }
        }
    }
}

fn failure_rule(spec: &Value, rule: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("action");
    match rule.str_at(&["action"]) {
        "" => errors.push(FieldError::required(&at, valid_values(&ACTIONS))),
        action @ "FailIndex" => {
            if !spec.has(&["backoffLimitPerIndex"]) {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.push(FieldError::invalid(&at, action, detail));
            }
        }
        action if ACTIONS.contains(&action) => {}
        action => errors.push(FieldError::not_supported(&at, action, &ACTIONS)),
    }
    let codes = rule.get("onExitCodes").filter(|value| !value.is_null());
    if let Some(codes) = codes {
        exit_codes(spec, codes, &path.child("onExitCodes"), errors);
    }
    let patterns = rule.list_at(&["onPodConditions"]);
    pod_conditions(patterns, &path.child("onPodConditions"), errors);
    let detail = match (codes.is_some(), patterns.is_empty()) {
        (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.push(FieldError::invalid_omitted(path, detail));
}

fn pod_conditions(patterns: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    if patterns.len() > MOST_PATTERNS {
        errors.push(FieldError::too_many(path, patterns.len(), MOST_PATTERNS));
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let at = path.index(index);
        let kind = pattern.str_at(&["type"]);
        let wrong = names::qualified_name(kind);
        errors.extend(all_invalid(&at.child("type"), kind, wrong));
        let status = pattern.str_at(&["status"]);
        let at = at.child("status");
        if status.is_empty() {
            errors.push(FieldError::required(&at, valid_values(&STATUSES)));
        } else if !STATUSES.contains(&status) {
            errors.push(FieldError::not_supported(&at, status, &STATUSES));
        }
    }
}

fn exit_codes(spec: &Value, codes: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let operator = codes.str_at(&["operator"]);
    let at = path.child("operator");
    if operator.is_empty() {
        errors.push(FieldError::required(&at, valid_values(&OPERATORS)));
    } else if !OPERATORS.contains(&operator) {
        errors.push(FieldError::not_supported(&at, operator, &OPERATORS));
    }
    if let Some(name) = codes.get("containerName").and_then(Value::as_str) {
        let known = ["containers", "initContainers"].iter().any(|list| {
            let containers = spec.list_at(&["template", "spec", list]);
            containers.iter().any(|one| one.str_at(&["name"]) == name)
        });
        if !known {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(
                &path.child("containerName"),
                name,
                detail,
            ));
        }
    }
    let values = codes.list_at(&["values"]);
    let at = path.child("values");
    let given = codes.get("values").cloned().unwrap_or_default();
    if values.is_empty() {
        let detail = "at least one value is required";
        errors.push(FieldError::invalid(&at, given.clone(), detail));
    } else if values.len() > MOST_VALUES {
        errors.push(FieldError::too_many(&at, values.len(), MOST_VALUES));
    }
    let numbers: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    let mut seen = Seen::new();
    for (index, number) in numbers.iter().enumerate() {
        let at = at.index(index);
        if operator == "In" && *number == 0 {
            let detail = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(&at, *number, detail));
        }
        if !seen.insert(*number) {
            errors.push(FieldError::duplicate(&at, *number));
        }
    }
    if !numbers.is_sorted() {
        errors.push(FieldError::invalid(&at, given, "must be ordered"));
    }
}

fn success_rule(rule: &Value, completions: i64, path: &Path, errors: &mut Vec<FieldError>) {
    let indexes_given = rule.get("succeededIndexes").and_then(Value::as_str);
    let count = rule.i64_at(&["succeededCount"]);
    if indexes_given.is_none() && count.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(FieldError::required(path, detail));
    }
    let mut total = 0;
    if let Some(text) = indexes_given {
        let at = path.child("succeededIndexes");
        if text.len() > LONGEST_INDEXES {
            errors.push(FieldError::too_long(&at, LONGEST_INDEXES));
        }
        match indexes(text, completions) {
            Ok(number) => total = number,
            Err(problem) => {
                let detail = format!("error parsing succeededIndexes: {problem}");
                errors.push(FieldError::invalid(&at, text, detail));
            }
        }
    }
    let Some(count) = count else {
        return;
    };
    let at = path.child("succeededCount");
    errors.extend(checks::not_negative(count, &at));
    let mut most = |most: i64, of: &str| {
        if count > most {
            let detail = format!("must be less than or equal to {most} ({of})");
            errors.push(FieldError::invalid(&at, count, detail));
        }
    };
    most(completions, "the number of specified completions");
    if indexes_given.is_some() {
        most(
            total,
            "the number of indexes in the specified succeededIndexes field",
        );
    }
}

/// A list of words in the format of Go's `%q`.
fn valid_values(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    format!("valid values: [{}]", quoted.join(" "))
}
