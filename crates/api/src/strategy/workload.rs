//! Defaults, validation and cells of all kinds with a selector and a pod template.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata;
use crate::selector::LabelSelector;
use crate::strategy::checks;
use crate::strategy::checks::label_selector;
use crate::strategy::pod;

/// Defaults of `spec.template`.
pub fn default_template(object: &mut Value) {
    if let Some(spec) = object.at_mut(&["spec", "template", "spec"])
        && !spec.is_null()
    {
        pod::defaults::pod_spec(spec);
    }
}

/// Checks `spec.selector` and that it matches `spec.template`, and the template, of a kind whose
/// pods run for ever. `noun` and `kind` are what messages call the kind.
pub fn selector_and_template(object: &Value, noun: &str, kind: &str) -> Vec<FieldError> {
    let path = Path::new("spec");
    let selector_path = path.child("selector");
    let mut errors = required_selector(object, noun);
    let selector = object.at(&["spec", "selector"]);
    let null = Value::Null;
    match LabelSelector::from_document(selector.unwrap_or(&null)) {
        Ok(parsed) => {
            let template = object.at(&["spec", "template"]).unwrap_or(&null);
            let at = path.child("template");
            if !parsed.is_everything() {
                errors.extend(unmatched_template(template, &parsed, &at));
            }
            errors.extend(pod_template(template, &at));
            errors.extend(always_restarting(template, &at, kind));
        }
        Err(_) => {
            let value = selector.cloned().unwrap_or_default();
            let detail = "invalid label selector";
            errors.push(FieldError::invalid(&selector_path, value, detail));
        }
    }
    errors
}

/// Checks a `spec.selector` that must be there and must not be empty.
pub fn required_selector(object: &Value, noun: &str) -> Vec<FieldError> {
    let path = Path::new("spec").child("selector");
    let selector = object.at(&["spec", "selector"]);
    let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
        return vec![FieldError::required(&path, "")];
    };
    let mut errors = label_selector::validate(selector, &path);
    if is_empty_selector(selector) {
        let detail = format!("empty selector is invalid for {noun}");
        errors.push(FieldError::invalid(&path, selector.clone(), detail));
    }
    errors
}

/// Whether a label selector selects everything by saying nothing.
pub fn is_empty_selector(selector: &Value) -> bool {
    selector.fields_at(&["matchLabels"]).count() == 0
        && selector.list_at(&["matchExpressions"]).is_empty()
}

/// The error for a template whose labels the selector does not match.
pub fn unmatched_template(
    template: &Value,
    selector: &LabelSelector,
    path: &Path,
) -> Option<FieldError> {
    if selector.matches_object(template) {
        return None;
    }
    let labels = template.at(&["metadata", "labels"]).cloned();
    let at = path.child("metadata").child("labels");
    let detail = "`selector` does not match template `labels`";
    Some(FieldError::invalid(&at, labels.unwrap_or_default(), detail))
}

/// Checks a pod template: `{metadata, spec}`.
pub fn pod_template(template: &Value, path: &Path) -> Vec<FieldError> {
    let empty = Value::object();
    let spec = template.get("spec").unwrap_or(&empty);
    let spec_path = path.child("spec");
    let labels = template.at(&["metadata", "labels"]);
    let mut errors = metadata::labels(labels, &path.child("labels"));
    let annotations = template.at(&["metadata", "annotations"]);
    let at = path.child("annotations");
    errors.extend(metadata::annotations(annotations, &at));
    errors.extend(pod::annotations::validate(annotations, spec, &at));
    errors.extend(pod::validate::pod_spec(spec, None, &spec_path));
    if !spec.list_at(&["ephemeralContainers"]).is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        let at = spec_path.child("ephemeralContainers");
        errors.push(FieldError::forbidden(&at, detail));
    }
    errors
}

/// The error for a template under a selector that is not there: it selects nothing.
pub fn unmatched_by_nothing(template: &Value, path: &Path) -> Option<FieldError> {
    let labels = template.at(&["metadata", "labels"]).cloned();
    let at = path.child("metadata").child("labels");
    let detail = "`selector` does not match template `labels`";
    Some(FieldError::invalid(&at, labels.unwrap_or_default(), detail))
}

/// Drops from `spec.template` what is not on; called for new objects and for changed ones.
pub fn drop_closed(new: &mut Value, old: Option<&Value>) {
    let at = ["spec", "template", "spec"];
    if let Some(spec) = new.at_mut(&at) {
        pod::gates::drop_closed(spec, old.and_then(|old| old.at(&at)));
    }
}

/// The errors for fields of a template that pods with restart policy Always must not have.
pub fn always_restarting(template: &Value, path: &Path, kind: &str) -> Vec<FieldError> {
    let path = path.child("spec");
    let mut errors = Vec::new();
    let policy = template.str_at(&["spec", "restartPolicy"]);
    if policy != "Always" {
        let at = path.child("restartPolicy");
        errors.push(FieldError::not_supported(&at, policy, &["Always"]));
    }
    if template.has(&["spec", "activeDeadlineSeconds"]) {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        let at = path.child("activeDeadlineSeconds");
        errors.push(FieldError::forbidden(&at, detail));
    }
    errors
}

/// The error for a counter of collisions that went back.
pub fn decremented_collisions(new: &Value, old: &Value) -> Option<FieldError> {
    let count = |object: &Value| object.i64_at(&["status", "collisionCount"]);
    let (new, old) = (count(new), count(old)?);
    if new.is_some_and(|new| new >= old) {
        return None;
    }
    let at = Path::new("status").child("collisionCount");
    let detail = "cannot be decremented";
    Some(FieldError::invalid(&at, new.unwrap_or(0), detail))
}

/// Checks that none of `counters` in `status` is above another of them.
fn not_above(
    object: &Value,
    counters: &[&str],
    most: &str,
    detail: &str,
) -> impl Iterator<Item = FieldError> {
    let number = |name: &str| object.i64_at(&["status", name]).unwrap_or(0);
    let path = Path::new("status");
    let wrong = counters.iter().filter(|name| number(name) > number(most));
    let errors: Vec<FieldError> = wrong
        .map(|name| FieldError::invalid(&path.child(name), number(name), detail))
        .collect();
    errors.into_iter()
}

/// Checks the counters of `status`: none is negative, those of `below_replicas` are not above
/// `replicas`, and the available ones not above the ready ones, with `ready` as the kind names them.
pub fn status_counters(
    object: &Value,
    counters: &[&str],
    below_replicas: &[&str],
    ready: &str,
) -> Vec<FieldError> {
    let negative = counters.iter();
    let mut errors: Vec<FieldError> = negative
        .filter_map(|name| not_negative(object, "status", name))
        .collect();
    let detail = "cannot be greater than status.replicas";
    errors.extend(not_above(object, below_replicas, "replicas", detail));
    let (available, detail) = (
        ["availableReplicas"],
        format!("cannot be greater than {ready}"),
    );
    errors.extend(not_above(object, &available, "readyReplicas", &detail));
    errors
}

/// The error for a selector that was changed.
pub fn immutable_selector(new: &Value, old: &Value) -> Option<FieldError> {
    let at = ["spec", "selector"];
    metadata::immutable(
        new.at(&at),
        old.at(&at),
        &Path::new("spec").child("selector"),
    )
}

/// The error for a negative number at `spec.<name>` or `status.<name>`.
pub fn not_negative(object: &Value, part: &str, name: &str) -> Option<FieldError> {
    let number = object.i64_at(&[part, name])?;
    checks::not_negative(number, &Path::new(part).child(name))
}

/// Names and images of the template's containers, comma-separated.
pub fn container_cells(object: &Value) -> [Value; 2] {
    containers_cells(object.list_at(&["spec", "template", "spec", "containers"]))
}

/// Names and images of containers, comma-separated.
pub fn containers_cells(containers: &[Value]) -> [Value; 2] {
    ["name", "image"].map(|field| {
        let texts: Vec<&str> = containers.iter().map(|one| one.str_at(&[field])).collect();
        texts.join(",").into()
    })
}

/// A map of labels as `a=b,c=d`.
pub fn labels_cell(labels: Option<&Value>) -> Value {
    let fields = labels.and_then(Value::as_object);
    let fields = fields.into_iter().flat_map(|labels| labels.iter());
    let texts: Vec<String> = fields
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    match texts.is_empty() {
        true => "<none>".into(),
        false => texts.join(",").into(),
    }
}

/// The selector in text form, where equalities read `a=b`.
pub fn selector_cell(object: &Value) -> Value {
    label_selector_cell(object.at(&["spec", "selector"]).unwrap_or(&Value::Null))
}

/// A label selector in text form.
pub fn label_selector_cell(selector: &Value) -> Value {
    let mut terms: Vec<(String, String)> = selector
        .fields_at(&["matchLabels"])
        .map(|(key, value)| {
            let value = value.as_str().unwrap_or_default();
            (key.to_string(), format!("{key}={value}"))
        })
        .collect();
    let mut expressions = Value::object();
    let list = selector.list_at(&["matchExpressions"]).to_vec();
    expressions.set(&["matchExpressions"], list);
    match LabelSelector::from_document(&expressions) {
        Ok(parsed) => terms.extend(
            parsed
                .requirements()
                .iter()
                .map(|requirement| (requirement.key.clone(), requirement.to_string())),
        ),
        Err(_) => return "<invalid>".into(),
    }
    terms.sort();
    let texts: Vec<String> = terms.into_iter().map(|(_, text)| text).collect();
    match texts.is_empty() {
        true => "<none>".into(),
        false => texts.join(",").into(),
    }
}
