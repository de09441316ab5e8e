//! Validation of a Job's spec, in a Job or in a CronJob's template.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names;
use crate::resource::generic;
use crate::selector::LabelSelector;
use crate::strategy::checks::label_selector;
use crate::strategy::job::{not_negative, policies};
use crate::strategy::{pod, workload};

const MANY_COMPLETIONS: i64 = 100_000;
const MOST_PARALLEL_INDEXED: i64 = 100_000;
const MOST_FAILED_INDEXES: i64 = 100_000;
const MOST_PARALLEL_OF_MANY: i64 = 10_000;
const MOST_FAILED_OF_MANY: i64 = 10_000;
const LONGEST_MANAGER: usize = 63;

/// The defaults that a CronJob's template has too.
pub fn default_spec(spec: &mut Value) {
    for rule in spec.list_at_mut(&["podFailurePolicy", "rules"]) {
        for pattern in rule.list_at_mut(&["onPodConditions"]) {
            pattern.set_default(&["status"], "True");
        }
    }
    if let Some(pod) = spec.at_mut(&["template", "spec"])
        && !pod.is_null()
    {
        pod::defaults::pod_spec(pod);
    }
}

/// Checks the spec of a Job.
pub fn validate(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let empty = Value::object();
    let spec = object.get("spec").unwrap_or(&empty);
    let mut errors = validate_template(spec, &path);
    let selector = spec.get("selector").unwrap_or(&Value::Null);
    let selector_path = path.child("selector");
    match selector.is_null() {
        true => errors.push(FieldError::required(&selector_path, "")),
        false => errors.extend(label_selector::validate(selector, &selector_path)),
    }
    let template = spec.get("template").unwrap_or(&empty);
    let at = path.child("template");
    if let Ok(parsed) = LabelSelector::from_document(selector) {
        match selector.is_null() {
            true => errors.extend(workload::unmatched_by_nothing(template, &at)),
            false => errors.extend(workload::unmatched_template(template, &parsed, &at)),
        }
    }
    errors
}

/// Checks the spec of a Job without its selector, as in a CronJob.
pub fn validate_template(spec: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.extend(not_negative(spec, name, path));
    }
    let per_index = spec.has(&["backoffLimitPerIndex"]);
    if spec.has(&["maxFailedIndexes"]) && !per_index {
        let at = path.child("backoffLimitPerIndex");
        let detail = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(&at, detail));
    }
    managed_by(spec, &path.child("managedBy"), &mut errors);
    completion_mode(spec, path, &mut errors);
    policies::pod_failure(spec, &path.child("podFailurePolicy"), &mut errors);
    policies::success(spec, &path.child("successPolicy"), &mut errors);
    policies::pod_replacement(spec, &path.child("podReplacementPolicy"), &mut errors);
    let empty = Value::object();
    let template = spec.get("template").unwrap_or(&empty);
    let template_path = path.child("template");
    errors.extend(workload::pod_template(template, &template_path));
    let at = template_path.child("spec").child("restartPolicy");
    match template.str_at(&["spec", "restartPolicy"]) {
        "" | "Always" => {
            let detail = "valid values: \"OnFailure\", \"Never\"";
            errors.push(FieldError::required(&at, detail));
        }
        "Never" => {}
        policy @ "OnFailure" => {
            if spec.has(&["podFailurePolicy"]) {
                let detail = "only \"Never\" is supported when podFailurePolicy is specified";
                errors.push(FieldError::invalid(&at, policy, detail));
            }
        }
        policy => {
            let supported = ["OnFailure", "Never"];
            errors.push(FieldError::not_supported(&at, policy, &supported));
        }
    }
    errors
}

/// Copies the fields that a suspended Job's template may change into `old`.
pub fn allow_scheduling(template: &Value, old: &mut Value) {
    let affinity = ["spec", "affinity"];
    let node_affinity = ["spec", "affinity", "nodeAffinity"];
    match (template.has(&affinity), old.has(&affinity)) {
        (false, true) => {
            old.remove(&node_affinity);
            if old.fields_at(&affinity).count() == 0 {
                old.remove(&affinity);
            }
        }
        (true, _) => {
            if !old.has(&affinity) {
                old.set(&affinity, Value::object());
            }
            generic::keep_field(old, template, &node_affinity);
        }
        (false, false) => {}
    }
    for path in [
        ["spec", "nodeSelector"],
        ["spec", "tolerations"],
        ["metadata", "annotations"],
        ["metadata", "labels"],
        ["spec", "schedulingGates"],
    ] {
        generic::keep_field(old, template, &path);
    }
}

fn managed_by(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(manager) = spec.get("managedBy").and_then(Value::as_str) else {
        return;
    };
    errors.extend(names::domain_prefixed_path(manager, path));
    if manager.len() > LONGEST_MANAGER {
        errors.push(FieldError::too_long(path, LONGEST_MANAGER));
    }
}

fn completion_mode(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let number = |name: &str| spec.i64_at(&[name]);
    let (completions, parallelism, failed) = (
        number("completions"),
        number("parallelism"),
        number("maxFailedIndexes"),
    );
    let above =
        |name: &str, value: Option<i64>, most: i64, words: &str, errors: &mut Vec<FieldError>| {
            if let Some(value) = value.filter(|value| *value > most) {
                let detail = format!("must be less than or equal to {most}{words}");
                errors.push(FieldError::invalid(&path.child(name), value, detail));
            }
        };
    match spec.get("completionMode").and_then(Value::as_str) {
        None | Some("NonIndexed") => {
            for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(value) = number(name) {
                    let detail = "requires indexed completion mode";
                    errors.push(FieldError::invalid(&path.child(name), value, detail));
                }
            }
        }
        Some("Indexed") => {
            if completions.is_none() {
                let detail = "when completion mode is Indexed";
                errors.push(FieldError::required(&path.child("completions"), detail));
            }
            above(
                "parallelism",
                parallelism,
                MOST_PARALLEL_INDEXED,
                " when completion mode is Indexed",
                errors,
            );
            let at = path.child("maxFailedIndexes");
            if let (Some(failed), Some(completions)) = (failed, completions)
                && failed > completions
            {
                let detail = "must be less than or equal to completions";
                errors.push(FieldError::invalid(&at, failed, detail));
            }
            above("maxFailedIndexes", failed, MOST_FAILED_INDEXES, "", errors);
            let many = completions.is_some_and(|count| count > MANY_COMPLETIONS)
                && spec.has(&["backoffLimitPerIndex"]);
            if many {
                if failed.is_none() {
                    let detail =
                        format!("must be specified when completions is above {MANY_COMPLETIONS}");
                    errors.push(FieldError::required(&at, detail));
                }
                let words = format!(
                    " when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
                );
                above(
                    "parallelism",
                    parallelism,
                    MOST_PARALLEL_OF_MANY,
                    &words,
                    errors,
                );
                above(
                    "maxFailedIndexes",
                    failed,
                    MOST_FAILED_OF_MANY,
                    &words,
                    errors,
                );
            }
        }
        Some(mode) => {
            let at = path.child("completionMode");
            let supported = ["NonIndexed", "Indexed"];
            errors.push(FieldError::not_supported(&at, mode, &supported));
        }
    }
}
