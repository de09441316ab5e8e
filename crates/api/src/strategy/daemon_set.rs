//! DaemonSets.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::resource::Strategy;
use crate::selector::LabelSelector;
use crate::strategy::checks::label_selector;
use crate::strategy::{int_or_percent, workload};

pub struct DaemonSet;

/// The annotation that counts changes of the template; it was a field in removed versions.
const TEMPLATE_GENERATION: [&str; 3] = [
    "metadata",
    "annotations",
    "deprecated.daemonset.template.generation",
];

impl Strategy for DaemonSet {
    fn fill_empty(&self, object: &mut Value) {
        let counted = "deprecated.daemonset.template.generation";
        object.set(&["metadata", "annotations", counted], "0");
    }

    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        object.set_default(&["spec", "updateStrategy", "type"], "RollingUpdate");
        if object.str_at(&["spec", "updateStrategy", "type"]) == "RollingUpdate" {
            let rolling = ["spec", "updateStrategy", "rollingUpdate"];
            object.set_missing(&[rolling.as_slice(), &["maxUnavailable"]].concat(), 1);
            object.set_missing(&[rolling.as_slice(), &["maxSurge"]].concat(), 0);
        }
        object.set_default(&["spec", "revisionHistoryLimit"], 10);
        // Upstream has the count as a field, which every version shows as this annotation.
        object.set(
            &TEMPLATE_GENERATION,
            template_generation(object).to_string(),
        );
        workload::default_template(object);
    }

    fn prepare_create_content(&self, object: &mut Value) {
        workload::drop_closed(object, None);
        let generation = template_generation(object).max(1);
        object.set(&TEMPLATE_GENERATION, generation.to_string());
        for name in [
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "numberMisscheduled",
            "numberReady",
        ] {
            object.set(&["status", name], 0);
        }
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        workload::drop_closed(new, Some(old));
        let at = ["spec", "template"];
        let changed = subresource.is_empty() && new.at(&at) != old.at(&at);
        let generation = template_generation(old) + i64::from(changed);
        new.set(&TEMPLATE_GENERATION, generation.to_string());
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec");
        let mut errors = Vec::new();
        let (null, empty) = (Value::Null, Value::object());
        let selector = object.at(&["spec", "selector"]).unwrap_or(&null);
        let template = object.at(&["spec", "template"]).unwrap_or(&empty);
        let selector_path = path.child("selector");
        errors.extend(label_selector::validate(selector, &selector_path));
        let at = path.child("template");
        if let Ok(parsed) = LabelSelector::from_document(selector) {
            // A selector that is not there matches nothing, an empty one everything.
            match selector.is_null() {
                true => errors.extend(workload::unmatched_by_nothing(template, &at)),
                false => errors.extend(workload::unmatched_template(template, &parsed, &at)),
            }
        }
        if !selector.is_null() && workload::is_empty_selector(selector) {
            let detail = "empty selector is invalid for daemonset";
            errors.push(FieldError::invalid(
                &selector_path,
                selector.clone(),
                detail,
            ));
        }
        errors.extend(workload::pod_template(template, &at));
        errors.extend(workload::always_restarting(template, &at, "DaemonSet"));
        errors.extend(workload::not_negative(object, "spec", "minReadySeconds"));
        update_strategy(object, &path.child("updateStrategy"), &mut errors);
        let limit = workload::not_negative(object, "spec", "revisionHistoryLimit");
        errors.extend(limit);
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource == "status" {
            return status(new, old);
        }
        let mut errors: Vec<FieldError> = Vec::new();
        errors.extend(workload::immutable_selector(new, old));
        errors.extend(self.validate_content(new));
        errors
    }

    fn hides_metadata(&self) -> bool {
        true
    }

    /// The count is stored in the metadata.
    fn row_metadata(&self, metadata: &mut Value) {
        metadata.remove(&TEMPLATE_GENERATION[1..]);
        if metadata.fields_at(&["annotations"]).next().is_none() {
            metadata.remove(&["annotations"]);
        }
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let status = |name: &str| Value::from(object.i64_at(&["status", name]).unwrap_or(0));
        let [containers, images] = workload::container_cells(object);
        vec![
            object.str_at(&["metadata", "name"]).into(),
            status("desiredNumberScheduled"),
            status("currentNumberScheduled"),
            status("numberReady"),
            status("updatedNumberScheduled"),
            status("numberAvailable"),
            workload::labels_cell(object.at(&["spec", "template", "spec", "nodeSelector"])),
            object_age(object, now).into(),
            containers,
            images,
            workload::selector_cell(object),
        ]
    }
}

fn template_generation(object: &Value) -> i64 {
    object.str_at(&TEMPLATE_GENERATION).parse().unwrap_or(0)
}

fn update_strategy(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let strategy = object.at(&["spec", "updateStrategy"]);
    match object.str_at(&["spec", "updateStrategy", "type"]) {
        "OnDelete" => {}
        "RollingUpdate" => {
            let path = path.child("rollingUpdate");
            let rolling = object.at(&["spec", "updateStrategy", "rollingUpdate"]);
            let Some(rolling) = rolling.filter(|value| !value.is_null()) else {
                errors.push(FieldError::required(&path, ""));
                return;
            };
            let empty = Value::Null;
            let value = |name: &str| rolling.get(name).unwrap_or(&empty);
            for name in ["maxUnavailable", "maxSurge"] {
                errors.extend(int_or_percent::validate(value(name), &path.child(name)));
            }
            for name in ["maxUnavailable", "maxSurge"] {
                errors.extend(int_or_percent::above_hundred(
                    value(name),
                    &path.child(name),
                ));
            }
            let amount = |name: &str| int_or_percent::amount(rolling.get(name));
            match (amount("maxUnavailable") != 0, amount("maxSurge") != 0) {
                (true, true) => errors.push(FieldError::invalid(
                    &path.child("maxSurge"),
                    value("maxSurge").clone(),
                    "may not be set when maxUnavailable is non-zero",
                )),
                (false, false) => errors.push(FieldError::required(
                    &path.child("maxUnavailable"),
                    "cannot be 0 when maxSurge is 0",
                )),
                _ => {}
            }
        }
        _ => {
            let value = int_or_percent::shown_strategy(strategy);
            let supported = ["RollingUpdate", "OnDelete"];
            errors.push(FieldError::not_supported(path, value, &supported));
        }
    }
}

fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ] {
        errors.extend(workload::not_negative(new, "status", name));
    }
    errors.extend(workload::decremented_collisions(new, old));
    errors
}
