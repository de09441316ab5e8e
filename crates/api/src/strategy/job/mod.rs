//! Jobs.

mod policies;
mod spec;
mod status;

#[cfg(test)]
mod tests;

use crate::age::{age, human, object_age};
use crate::document::Value;
use crate::field::{FieldError, FieldErrorKind, Path};
use crate::metadata::{immutable, names};
use crate::resource::{Dependents, MetadataChecks, Strategy, generic};
use crate::selector::LabelSelector;
use crate::strategy::checks;
use crate::strategy::workload;

pub use spec::{default_spec, validate_template};

pub struct Job;

const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

impl Strategy for Job {
    /// Jobs leave their pods behind unless a client says otherwise, which is surprising.
    fn delete_warning(&self) -> Option<&'static str> {
        Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
        )
    }

    fn unsupported_field(&self, field: &str, _api_version: &str) -> String {
        format!("field label {field:?} not supported for Job")
    }

    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        if !object.has(&["spec"]) {
            object.set(&["spec"], Value::object());
        }
        let labels = object.at(&["spec", "template", "metadata", "labels"]);
        if let Some(labels) = labels.filter(|labels| !labels.is_null()).cloned()
            && object.fields_at(&["metadata", "labels"]).count() == 0
        {
            object.set(&["metadata", "labels"], labels);
        }
        let Some(spec) = object.get_mut("spec") else {
            return;
        };
        let parallelism = spec.has(&["parallelism"]);
        if !parallelism && !spec.has(&["completions"]) {
            spec.set(&["completions"], 1);
        }
        spec.set_default(&["parallelism"], 1);
        let limit = match spec.has(&["backoffLimitPerIndex"]) {
            true => i64::from(i32::MAX),
            false => 6,
        };
        spec.set_default(&["backoffLimit"], limit);
        if !spec.has(&["completionMode"]) {
            spec.set(&["completionMode"], "NonIndexed");
        }
        spec.set_default(&["suspend"], false);
        let replacement = match spec.has(&["podFailurePolicy"]) {
            true => "Failed",
            false => "TerminatingOrFailed",
        };
        if !spec.has(&["podReplacementPolicy"]) {
            spec.set(&["podReplacementPolicy"], replacement);
        }
        spec.set_default(&["manualSelector"], false);
        default_spec(spec);
    }

    fn prepare_create_content(&self, object: &mut Value) {
        if !object.bool_at(&["spec", "manualSelector"]) {
            generate_selector(object);
        }
        workload::drop_closed(object, None);
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, _: &str) {
        workload::drop_closed(new, Some(old));
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = generated_selector(object, true);
        errors.extend(spec::validate(object));
        errors.extend(longest_host_name(object));
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource == "status" {
            return status::validate_update(new, old);
        }
        let had = |label: &str| old.has(&["spec", "template", "metadata", "labels", label]);
        let mut errors = generated_selector(new, had(UID_LABELS[1]) && had(NAME_LABELS[1]));
        errors.extend(spec::validate(new));
        errors.extend(longest_host_name(new));
        errors.extend(spec::validate(new));
        errors.extend(update(new, old));
        errors
    }

    fn dependents(&self) -> Dependents {
        Dependents::Orphaned
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let mut fields = generic::metadata_fields(object, true);
        let succeeded = object.i64_at(&["status", "succeeded"]).unwrap_or(0);
        fields.push(("status.successful", succeeded.to_string()));
        fields
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        MetadataChecks::both_of_object(subresource)
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let [containers, images] = workload::container_cells(object);
        vec![
            object.str_at(&["metadata", "name"]).into(),
            state(object).into(),
            completions(object).into(),
            duration(object, now).into(),
            object_age(object, now).into(),
            containers,
            images,
            workload::selector_cell(object),
        ]
    }
}

/// Labels the template with the Job's UID and name, and selects by the UID.
fn generate_selector(object: &mut Value) {
    let name = object.str_at(&["metadata", "name"]).to_string();
    let uid = object.str_at(&["metadata", "uid"]).to_string();
    let template_labels = ["spec", "template", "metadata", "labels"];
    let own_labels = ["metadata", "labels"];
    // A Job without labels of its own shares its template's, what is generated included.
    let shared = object.fields_at(&own_labels).count() > 0
        && object.at(&own_labels) == object.at(&template_labels);
    for (labels, value) in [(NAME_LABELS, name), (UID_LABELS, uid.clone())] {
        for label in labels {
            let at = [template_labels.as_slice(), &[label]].concat();
            if object.at(&at).is_none() {
                object.set(&at, value.as_str());
            }
        }
    }
    if shared && let Some(labels) = object.at(&template_labels).cloned() {
        object.set(&own_labels, labels);
    }
    let at = ["spec", "selector", "matchLabels", UID_LABELS[1]];
    if object.at(&at).is_none() {
        object.set(&at, uid);
    }
}

/// Checks that the generated selector and labels are unchanged.
fn generated_selector(object: &Value, prefixed: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object.bool_at(&["spec", "manualSelector"]) || !object.has(&["spec", "selector"]) {
        return errors;
    }
    let (name, uid) = (
        object.str_at(&["metadata", "name"]),
        object.str_at(&["metadata", "uid"]),
    );
    if uid.is_empty() {
        let at = Path::new("metadata").child("uid");
        errors.push(FieldError::required(&at, ""));
    }
    let mut expected = Value::object();
    for index in 0..=usize::from(prefixed) {
        for (label, value) in [(UID_LABELS[index], uid), (NAME_LABELS[index], name)] {
            errors.extend(has_label(object, label, value));
            expected.set(&["metadata", "labels", label], value);
        }
    }
    let selector = object.at(&["spec", "selector"]).unwrap_or(&Value::Null);
    if let Ok(parsed) = LabelSelector::from_document(selector)
        && !parsed.matches_object(&expected)
    {
        let at = Path::new("spec").child("selector");
        let detail = "`selector` not auto-generated";
        errors.push(FieldError::invalid(&at, selector.clone(), detail));
    }
    errors
}

fn has_label(object: &Value, label: &str, expected: &str) -> Option<FieldError> {
    let labels = object.at(&["spec", "template", "metadata", "labels"]);
    let path = Path::new("spec")
        .child("template")
        .child("metadata")
        .child("labels");
    let actual = labels
        .and_then(|labels| labels.get(label))
        .and_then(Value::as_str);
    match actual {
        None => Some(FieldError::required(
            &path.key(label),
            format!("must be '{expected}'"),
        )),
        Some(actual) if actual == expected => None,
        Some(_) => Some(FieldError::invalid(
            &path.key(label),
            labels.cloned().unwrap_or_default(),
            format!("must be '{expected}'"),
        )),
    }
}

/// The names of an indexed Job's pods contain the Job's name and their index.
fn longest_host_name(object: &Value) -> Option<FieldError> {
    let completions = object
        .i64_at(&["spec", "completions"])
        .filter(|count| *count > 0)?;
    if object.str_at(&["spec", "completionMode"]) != "Indexed" {
        return None;
    }
    let name = object.str_at(&["metadata", "name"]);
    let longest = format!("{name}-{}", completions - 1);
    let detail = format!("will not able to create pod with invalid DNS label: {longest}");
    let at = Path::new("metadata").child("name");
    (!names::dns_label(&longest).is_empty()).then(|| FieldError::invalid(&at, name, detail))
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let at = |name: &'static str| ["spec", name];
    let fixed =
        |name: &'static str| immutable(new.at(&at(name)), old.at(&at(name)), &path.child(name));
    if new.str_at(&at("completionMode")) == "Indexed" {
        let completions = new.i64_at(&at("completions"));
        let changed = completions != old.i64_at(&at("completions"));
        if let Some(count) = completions
            && changed
            && Some(count) != new.i64_at(&at("parallelism"))
        {
            let detail = "can only be modified in tandem with spec.parallelism";
            errors.push(FieldError::invalid(
                &path.child("completions"),
                count,
                detail,
            ));
        }
    } else {
        errors.extend(fixed("completions"));
    }
    errors.extend(fixed("selector"));
    errors.extend(template_update(new, old));
    for name in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        errors.extend(fixed(name).map(|mut error| {
            if let FieldErrorKind::Invalid { value } = &mut error.kind {
                *value = policies::shown(name, value);
            }
            error
        }));
    }
    errors
}

/// Scheduling fields and container resources of a template may change while its Job is suspended and
/// has no pods.
fn template_update(new: &Value, old: &Value) -> Option<FieldError> {
    let at = ["spec", "template"];
    let path = Path::new("spec").child("template");
    let empty = Value::object();
    let template = new.at(&at).unwrap_or(&empty);
    let mut allowed = old.at(&at).unwrap_or(&empty).clone();
    let suspended = old.bool_at(&["spec", "suspend"]);
    let started = old.has(&["status", "startTime"]);
    let paused = status::is_true(old, "Suspended");
    let active = old.i64_at(&["status", "active"]).unwrap_or(0) != 0;
    let mutable = suspended && (!started || paused) && !active;
    if mutable {
        spec::allow_scheduling(template, &mut allowed);
    }
    if !(suspended && mutable) {
        return immutable(Some(template), Some(&allowed), &path);
    }
    for list in ["containers", "initContainers"] {
        let containers = template.list_at(&["spec", list]);
        if containers.len() != allowed.list_at(&["spec", list]).len() {
            continue;
        }
        for (old, new) in allowed
            .list_at_mut(&["spec", list])
            .iter_mut()
            .zip(containers)
        {
            if old.get("name") == new.get("name") {
                generic::keep_field(old, new, &["resources"]);
            }
        }
    }
    let (new, old) = (template.get("spec"), allowed.get("spec"));
    immutable(new, old, &Path::new("spec").child("template.spec"))
}

fn state(object: &Value) -> &'static str {
    let is = |kind: &str| status::is_true(object, kind);
    if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if object.has(&["metadata", "deletionTimestamp"]) {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(object: &Value) -> String {
    let succeeded = object.i64_at(&["status", "succeeded"]).unwrap_or(0);
    let parallelism = object.i64_at(&["spec", "parallelism"]).unwrap_or(0);
    match object.i64_at(&["spec", "completions"]) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn duration(object: &Value, now: jiff::Timestamp) -> String {
    let time = |name: &str| object.str_at(&["status", name]);
    let parsed = |name: &str| time(name).parse::<jiff::Timestamp>().ok();
    match (parsed("startTime"), parsed("completionTime")) {
        (None, _) => String::new(),
        (Some(_), None) => age(time("startTime"), now),
        (Some(start), Some(end)) => human(end.as_second() - start.as_second()),
    }
}

/// The error for a negative number.
fn not_negative(spec: &Value, name: &str, path: &Path) -> Option<FieldError> {
    checks::not_negative(spec.i64_at(&[name])?, &path.child(name))
}
