//! What the kinds with a selector and a pod template share.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata;
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::selector::LabelSelector;
use crate::strategy::pod;

/// Defaults of `spec.template`.
pub fn default_template(object: &mut Value) {
    if let Some(spec) = object.at_mut(&["spec", "template", "spec"])
        && !spec.is_null()
    {
        pod::defaults::pod_spec(spec);
    }
}

/// Checks `spec.selector` and that it matches `spec.template`, and the template.
pub fn selector_and_template(object: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let selector_path = path.child("selector");
    let mut errors = Vec::new();
    let selector = object.at(&["spec", "selector"]);
    match selector.filter(|selector| !selector.is_null()) {
        None => errors.push(FieldError::required(&selector_path, "")),
        Some(selector) => {
            errors.extend(label_selector(selector, &selector_path));
            let terms = selector.fields_at(&["matchLabels"]).count()
                + selector.list_at(&["matchExpressions"]).len();
            if terms == 0 {
                let detail = "empty selector is invalid for deployment";
                errors.push(FieldError::invalid(
                    &selector_path,
                    selector.clone(),
                    detail,
                ));
            }
        }
    }
    let null = Value::Null;
    match LabelSelector::from_document(selector.unwrap_or(&null)) {
        Ok(parsed) => errors.extend(template(object, &parsed)),
        Err(_) => {
            let value = selector.cloned().unwrap_or_default();
            errors.push(FieldError::invalid(
                &selector_path,
                value,
                "invalid label selector",
            ));
        }
    }
    errors
}

/// Checks `{matchLabels, matchExpressions}`.
pub fn label_selector(selector: &Value, path: &Path) -> Vec<FieldError> {
    let labels = selector.get("matchLabels");
    let mut errors = metadata::labels(labels, &path.child("matchLabels"));
    for (index, expression) in selector.list_at(&["matchExpressions"]).iter().enumerate() {
        let at = path.child("matchExpressions").index(index);
        let values = expression.list_at(&["values"]);
        let values_path = at.child("values");
        match expression.str_at(&["operator"]) {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                &values_path,
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                &values_path,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                &at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = expression.str_at(&["key"]);
        errors.extend(all_invalid(
            &at.child("key"),
            key,
            names::qualified_name(key),
        ));
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            let wrong = names::label_value(value);
            errors.extend(all_invalid(&values_path.index(index), value, wrong));
        }
    }
    errors
}

/// The error for a negative number at `spec.<name>` or `status.<name>`.
pub fn not_negative(object: &Value, part: &str, name: &str) -> Option<FieldError> {
    let number = object.i64_at(&[part, name])?;
    pod::probes::not_negative(number, &Path::new(part).child(name))
}

/// Names and images of the template's containers, comma-separated.
pub fn container_cells(object: &Value) -> [Value; 2] {
    let containers = object.list_at(&["spec", "template", "spec", "containers"]);
    ["name", "image"].map(|field| {
        let texts: Vec<&str> = containers.iter().map(|one| one.str_at(&[field])).collect();
        texts.join(",").into()
    })
}

/// The selector in text form, where equalities read `a=b`.
pub fn selector_cell(object: &Value) -> Value {
    let selector = object.at(&["spec", "selector"]).unwrap_or(&Value::Null);
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

fn template(object: &Value, selector: &LabelSelector) -> Vec<FieldError> {
    let path = Path::new("spec").child("template");
    let mut errors = Vec::new();
    let empty = Value::object();
    let template = object.at(&["spec", "template"]).unwrap_or(&empty);
    let labels_path = path.child("metadata").child("labels");
    if !selector.is_everything() && !selector.matches_object(template) {
        let labels = template.at(&["metadata", "labels"]).cloned();
        let labels = labels.unwrap_or_else(Value::object);
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(&labels_path, labels, detail));
    }
    let labels = template.at(&["metadata", "labels"]);
    errors.extend(metadata::labels(labels, &path.child("labels")));
    let annotations = template.at(&["metadata", "annotations"]);
    errors.extend(metadata::annotations(
        annotations,
        &path.child("annotations"),
    ));
    let spec = template.get("spec").unwrap_or(&empty);
    let spec_path = path.child("spec");
    errors.extend(pod::validate::pod_spec(spec, &spec_path));
    if !spec.list_at(&["ephemeralContainers"]).is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(
            &spec_path.child("ephemeralContainers"),
            detail,
        ));
    }
    let policy = spec.str_at(&["restartPolicy"]);
    if policy != "Always" {
        let at = spec_path.child("restartPolicy");
        errors.push(FieldError::not_supported(&at, policy, &["Always"]));
    }
    if spec.has(&["activeDeadlineSeconds"]) {
        let detail = "activeDeadlineSeconds in ReplicaSet is not Supported";
        let at = spec_path.child("activeDeadlineSeconds");
        errors.push(FieldError::forbidden(&at, detail));
    }
    errors
}
